"""No stored bytes end a reader, and no input ends the command other than with an error that names the field."""

from __future__ import annotations

import os
import pty
import subprocess
from pathlib import Path

import pytest

import fencepost
from fencepost import Event

from .conftest import COMMAND, ENVIRONMENT, Cli

DEEP = b"[" * 1_000 + b"]" * 1_000
STEERING = "\x1b[2J\x9b2J\u202e\x07"


@pytest.fixture
def poisoned(path: str) -> str:
    """A store whose second event is poison."""
    with fencepost.open(path) as store:
        store.append([Event("Before"), Event(STEERING, data=DEEP, tags={STEERING}), Event("After")])
    return path


@pytest.mark.parametrize("form", ["--json", "--table"])
@pytest.mark.parametrize(
    "command", [("read",), ("read", "--backwards"), ("tail",), ("tail", "--after", "0"), ("stats",), ("verify",)]
)
def test_a_reader_goes_on_after_poison(cli: Cli, poisoned: str, command: tuple[str, ...], form: str) -> None:
    ran = cli(command[0], poisoned, *command[1:], form)
    assert (ran.code, ran.err) == (0, "")
    assert not any(character in ran.out for character in ("\x1b", "\x9b", "\x07"))
    assert form == "--json" or "\u202e" not in ran.out


def test_data_that_is_nested_too_deeply_is_shown_as_text(cli: Cli, poisoned: str) -> None:
    _, shown, last = cli("read", poisoned).lines
    assert (shown["data_text"], shown["type"], last["type"]) == (DEEP.decode(), STEERING, "After")


def test_a_conflict_with_poison_is_shown(cli: Cli, poisoned: str) -> None:
    for form in ("--json", "--table"):
        assert cli("check", poisoned, "--type", STEERING, form).code == 1


def test_a_line_that_is_nested_too_deeply_is_refused_with_what_to_write_instead(cli: Cli, path: str) -> None:
    cli("init", path)
    ran = cli("append", path, given=b'{"type": "T", "data": %b}' % DEEP)
    assert ran.code == 2
    assert "line 1, event: arrays or objects are nested too deeply" in ran.err
    assert "data_text or data_base64" in ran.err
    assert cli("head", path).out == "0\n"


def test_a_query_or_condition_that_is_nested_too_deeply_is_refused(cli: Cli, path: str) -> None:
    cli("init", path)
    deep = DEEP.decode()
    for options, field in (
        (("read", path, "--query", deep), "query"),
        (("check", path, "--condition", deep), "condition"),
        (("append", path, "--unless", f'{{"items": {deep}}}'), "query"),
    ):
        ran = cli(*options)
        assert ran.code == 2
        assert f"{field}: arrays or objects are nested too deeply" in ran.err


def test_a_tag_of_64_kib_is_refused_and_the_field_named(cli: Cli, path: str) -> None:
    cli("init", path)
    ran = cli("append", path, given=b'{"type": "T", "tags": ["%b"]}' % (b"x" * 65_536))
    assert (ran.code, "line 1, tags: 65536 bytes" in ran.err) == (2, True)


def test_a_position_or_time_that_is_none_is_refused_and_the_field_named(cli: Cli, path: str) -> None:
    cli("init", path)
    for field, value in (
        ("position", "1e999"),
        ("recorded_at", '{"a": [1]}'),
        ("recorded_at", '"2026-01-01T00:00:00"'),
    ):
        ran = cli("append", path, given=f'{{"type": "T", "{field}": {value}}}')
        assert ran.code == 2
        assert f"line 1, {field}" in ran.err


def test_json_on_a_terminal_has_no_invisible_characters(poisoned: str) -> None:
    master, slave = pty.openpty()
    with subprocess.Popen([*COMMAND, "read", poisoned, "--json"], stdout=slave, env=ENVIRONMENT) as process:
        os.close(slave)
        shown = b""
        try:
            while part := os.read(master, 65_536):
                shown += part
        except OSError:
            pass  # the terminal has been closed by the command's end
    os.close(master)
    assert process.returncode == 0
    assert b'"type":"\\u001b[2J\\u009b2J\\u202e\\u0007"' in shown
    assert shown.replace(b"\r\n", b"").decode().isprintable()


def test_an_object_keeps_its_invisible_characters_for_programs(cli: Cli, path: str) -> None:
    data = '{"phone": "\u202d+49\u202c", "family": "👩\u200d👧"}'.encode()
    with fencepost.open(path) as store:
        store.append([Event("T", data=data)])
    assert data.decode() in cli("read", path).out


@pytest.mark.parametrize("form", ["--json", "--table"])
def test_an_output_that_lacks_characters_ends_no_command(path: str, form: str) -> None:
    with fencepost.open(path) as store:
        store.append([Event("Größe", tags={"stadt:Köln"}, data="日本".encode())])
    for command in ("read", "stats"):
        ran = subprocess.run(
            [*COMMAND, command, path, form],
            env={**ENVIRONMENT, "PYTHONIOENCODING": "ascii"},
            capture_output=True,
            check=False,
        )
        assert (ran.returncode, ran.stderr) == (0, b"")
        assert ran.stdout


def test_a_path_that_is_not_utf_8_is_refused(cli: Cli, tmp_path: Path) -> None:
    path = os.fsdecode(os.fsencode(tmp_path) + b"/\xff.db")
    for command in ("read", "init", "head", "stats", "verify"):
        ran = cli(command, path)
        assert ran.code == 2
        assert "\\udcff.db: the path is not UTF-8" in ran.err
    with pytest.raises(fencepost.InvalidInput, match="the path is not UTF-8"):
        fencepost.open(Path(path))
