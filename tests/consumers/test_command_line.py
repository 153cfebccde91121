"""`fencepost consume` and `fencepost consumers`, as an operator uses them: real processes, JSON, exit codes."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest

import fencepost
from fencepost.decisions import encode

from .places import PATIENCE_S, Added

ROOT = Path(__file__).parents[2]
MODULE = """
import sqlite3
from fencepost import SequencedEvent
from fencepost.consumers import Failures, ReadModel, consumer
from fencepost.decisions import Projection, Tag, on
from tests.consumers.places import Added

@consumer("effects", into="views.db", lease_s=1, failures=Failures(attempts=1, then="set aside"))
def effects(event: Added, tx: sqlite3.Connection, stored: SequencedEvent) -> None:
    if event.amount < 0:
        raise ValueError("negative")
    tx.execute("INSERT INTO effect VALUES (?)", (stored.position,))

class Total(Projection):
    key: Tag
    total: int = 0

    @on
    def _(self, event: Added) -> None:
        self.total += event.amount

totals = ReadModel(Total, into="views.db", table="totals", lease_s=1)

@consumer("strict", lease_s=1, failures=Failures(attempts=1))
def strict(event: Added) -> None:
    if event.amount < 0:
        raise ValueError("negative")
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "views.py").write_text(MODULE)
    with sqlite3.connect(tmp_path / "views.db") as connection:
        connection.execute("CREATE TABLE effect (position INTEGER)")
    append(tmp_path, 1, 1, 1)
    return tmp_path


def append(folder: Path, *amounts: int) -> None:
    with fencepost.open(folder / "log.db") as store:
        store.append([encode(Added("a", amount)) for amount in amounts])


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "fencepost.cli", *arguments]


def environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}


def fencepost_(folder: Path, *arguments: str, code: int = 0) -> list[dict[str, Any]]:
    ran = subprocess.run(command(*arguments), cwd=folder, env=environment(), capture_output=True, text=True, timeout=60)
    assert ran.returncode == code, ran.stderr
    return [json.loads(line) for line in ran.stdout.splitlines()]


@pytest.fixture
def running(folder: Path) -> Iterator[subprocess.Popen[str]]:
    arguments = command("consume", "log.db", "views:effects")
    process = subprocess.Popen(arguments, cwd=folder, env=environment(), stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert json.loads(process.stdout.readline())["consumers"] == ["effects"]
    yield process
    if process.poll() is None:
        process.kill()
    process.communicate()


def status(folder: Path, code: int = 0) -> dict[str, Any]:
    (found,) = fencepost_(folder, "consumers", "status", "log.db", "effects", code=code)
    return found


def eventually(folder: Path, **expected: Any) -> dict[str, Any]:
    deadline = monotonic() + PATIENCE_S
    while True:
        ran = subprocess.run(
            command("consumers", "status", "log.db"), cwd=folder, env=environment(), capture_output=True, text=True
        )
        found: dict[str, Any] = json.loads(ran.stdout.splitlines()[0]) if ran.stdout else {}
        if expected.items() <= found.items():
            return found
        assert monotonic() < deadline, found
        sleep(0.1)


def test_a_consumer_runs_in_a_process_and_is_steered_from_another(folder: Path, running: subprocess.Popen[str]) -> None:
    found = eventually(folder, state="running", lag_events=0)
    assert (found["dead_letters"], found["error"]) == (0, None)
    fencepost_(folder, "consumers", "pause", "log.db", "effects", "--by", "ada")
    append(folder, 1)
    found = eventually(folder, state="paused", lag_events=1)
    assert found["paused_by"] == "ada"
    fencepost_(folder, "consumers", "step", "log.db", "effects")
    eventually(folder, state="paused", lag_events=0)
    fencepost_(folder, "consumers", "resume", "log.db", "effects")
    running.send_signal(signal.SIGTERM)
    assert running.wait(30) == 0
    assert status(folder)["holder"] is None


def test_dead_letters_are_listed_shown_replayed_and_discarded(folder: Path, running: subprocess.Popen[str]) -> None:
    append(folder, -1, 1)
    eventually(folder, dead_letters=1, lag_events=0)
    (letter,) = fencepost_(folder, "consumers", "dead-letters", "list", "log.db", "effects")
    assert letter["error"] == "ValueError: negative"
    position = str(letter["position"])
    shown = fencepost_(folder, "consumers", "dead-letters", "show", "log.db", "effects", position)
    assert [each["type"] for each in shown] == ["Added", "Added"]
    fencepost_(folder, "consumers", "dead-letters", "show", "log.db", "effects", "1", code=1)
    (replayed,) = fencepost_(folder, "consumers", "dead-letters", "replay", "log.db", "effects")
    assert replayed["requested"] == 1
    (discarded,) = fencepost_(folder, "consumers", "dead-letters", "discard", "log.db", "effects", "--all")
    assert discarded["discarded"] == 1
    assert status(folder)["dead_letters"] == 0


def test_a_consumer_whose_process_was_killed_is_reported_as_stalled(
    folder: Path, running: subprocess.Popen[str]
) -> None:
    eventually(folder, state="running", lag_events=0)
    running.kill()
    append(folder, 1)
    eventually(folder, state="stalled")
    status(folder, code=6)


def test_once_ends_when_everything_is_handled(folder: Path) -> None:
    fencepost_(folder, "consume", "log.db", "views:effects", "--once")
    assert status(folder)["lag_events"] == 0


def test_once_exits_with_6_when_a_consumer_stops(folder: Path) -> None:
    append(folder, -1)
    fencepost_(folder, "consume", "log.db", "views:strict", "--once", code=6)
    (found,) = fencepost_(folder, "consumers", "status", "log.db", code=6)
    assert (found["state"], found["error"]) == ("stopped", "ValueError: negative")


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_failure_is_logged_with_its_cause(folder: Path, form: str) -> None:
    append(folder, -1)
    arguments = command("consume", "log.db", "views:strict", "--once", "--log-format", form)
    ran = subprocess.run(arguments, cwd=folder, env=environment(), capture_output=True, text=True, timeout=60)
    if form == "text":
        assert "ERROR fencepost.consumers: consumer 'strict' stopped at position 4" in ran.stderr
        assert "INFO fencepost.consumers: consumer 'strict': leading" in ran.stderr
    else:
        lines = [json.loads(line) for line in ran.stderr.splitlines()]
        assert any(line["level"] == "error" and "stopped at position 4" in line["message"] for line in lines)


def test_a_reset_to_a_time_handles_later_events_again(folder: Path) -> None:
    fencepost_(folder, "consume", "log.db", "views:effects", "--once")
    (reset,) = fencepost_(folder, "consumers", "reset", "log.db", "effects", "--time", "2020-01-01")
    assert reset["position"] == 0
    eventually(folder, lag_events=3)


def test_verify_names_the_row_that_differs(folder: Path) -> None:
    fencepost_(folder, "consume", "log.db", "views:totals", "--once")
    (sound,) = fencepost_(folder, "consumers", "verify", "log.db", "views:totals")
    assert sound["drift"] is None
    with sqlite3.connect(folder / "views.db") as connection:
        connection.execute(f"UPDATE totals_{sound['version']} SET total = 9")
    (drifted,) = fencepost_(folder, "consumers", "verify", "log.db", "views", code=4)
    assert (drifted["drift"]["key"], drifted["drift"]["expected"]["total"]) == (["a"], 3)


def test_check_types_names_the_events_that_cannot_be_decoded(folder: Path) -> None:
    (sound,) = fencepost_(folder, "check-types", "log.db", "views")
    assert sound == {"decoded": {"Added": 3}, "unreadable": 0}
    with fencepost.open(folder / "log.db") as store:
        bad = store.append([fencepost.Event("Added", data=b'{"key": "a", "amount": "many"}')]).last
    unreadable, _ = fencepost_(folder, "check-types", "log.db", "views", code=4)
    assert (unreadable["position"], unreadable["type"]) == (bad, "Added")
    assert "amount" in unreadable["reason"]


def test_a_sample_decodes_the_first_and_every_nth_event(folder: Path) -> None:
    (sampled,) = fencepost_(folder, "check-types", "log.db", "views", "--sample", "2")
    assert sampled == {"decoded": {"Added": 2}, "unreadable": 0}


@pytest.mark.parametrize("arguments", [("check-types", "log.db", "views"), ("consumers", "verify", "log.db", "views")])
def test_progress_is_shown_on_a_terminal_only(folder: Path, arguments: tuple[str, ...]) -> None:
    fencepost_(folder, "consume", "log.db", "views:totals", "--once")
    doing = "checking" if arguments[0] == "check-types" else "verifying totals"
    master, slave = pty.openpty()
    with subprocess.Popen(command(*arguments, "--table"), cwd=folder, env=environment(), stdout=slave, stderr=slave):
        os.close(slave)
        shown = b""
        with suppress(OSError):  # the terminal is closed when the command ends
            while part := os.read(master, 65_536):
                shown += part
    os.close(master)
    assert re.search(rf"{doing}.*\d+/\d+", shown.decode())
    elsewhere = subprocess.run(command(*arguments), cwd=folder, env=environment(), capture_output=True, text=True)
    assert (elsewhere.returncode, elsewhere.stderr) == (0, "")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("consume", "log.db", "viws:effects"), "there is no module 'viws'"),
        (("consume", "log.db", "views:efects"), "'efects' is not a consumer"),
        (("consumers", "pause", "log.db", "efects"), "no process has ever run it"),
        (("consumers", "reset", "log.db", "effects"), "give either --position or --time"),
        (("consumers", "dead-letters", "discard", "log.db", "effects"), "give positions, or --all"),
    ],
)
def test_a_mistake_is_explained(folder: Path, arguments: tuple[str, ...], complaint: str) -> None:
    ran = subprocess.run(command(*arguments), cwd=folder, env=environment(), capture_output=True, text=True)
    assert ran.returncode == 2
    assert complaint in ran.stderr
