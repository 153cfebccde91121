"""`fencepost export` and `fencepost import`: the log as lines of JSON, and back, byte for byte."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from tests.cli.conftest import Cli
from tests.copying.conftest import log

import fencepost
from fencepost import Event

pytestmark = pytest.mark.usefixtures("small_parts")


def events_of(address: str) -> list[object]:
    return [entry for entry in log(address) if isinstance(entry, tuple)]


@pytest.mark.parametrize("name", ["log.jsonl", "log.jsonl.gz"])
def test_an_import_of_an_export_is_equal(cli: Cli, source: str, tmp_path: Path, name: str) -> None:
    lines, target = str(tmp_path / name), str(tmp_path / "target.db")
    assert cli("export", source, lines).lines == [{"file": lines, "events": 95, "head": 95}]
    assert cli("import", target, lines).lines == [{"events": 95, "head": 95}]
    assert events_of(target) == events_of(source)
    assert cli("verify", target).code == 0


def test_a_name_that_ends_in_gz_is_compressed_to_the_same_bytes_each_time(
    cli: Cli, source: str, tmp_path: Path
) -> None:
    for name in ("a.gz", "b.gz", "plain"):
        cli("export", source, str(tmp_path / name))
    packed = (tmp_path / "a.gz").read_bytes()
    assert packed == (tmp_path / "b.gz").read_bytes()
    assert gzip.decompress(packed) == (tmp_path / "plain").read_bytes()


def test_an_export_is_what_read_prints(cli: Cli, source: str) -> None:
    assert cli("export", source).out == cli("read", source, "--json").out
    assert cli("export", source, "--after", "5", "--up-to", "9").lines == cli("read", source).lines[5:9]


def test_an_import_of_standard_input_goes_on_after_the_head(cli: Cli, source: str, tmp_path: Path) -> None:
    target = str(tmp_path / "target.db")
    assert cli("import", target, given=cli("export", source, "--up-to", "40").out).code == 0
    ran = cli("import", target, given=cli("export", source, "--after", "35").out)
    assert ran.lines == [{"events": 55, "head": 95}]
    assert events_of(target) == events_of(source)


def test_postgresql_is_exported_and_imported(cli: Cli, source: str, url: str) -> None:
    exported = cli("export", source).out
    assert cli("import", url, given=exported).lines == [{"events": 95, "head": 95}]
    assert cli("export", url).out == exported


def test_an_export_replaces_no_file(cli: Cli, source: str, tmp_path: Path) -> None:
    taken = tmp_path / "taken"
    taken.write_text("Dear Ada")
    ran = cli("export", source, str(taken))
    assert (ran.code, "name a new file" in ran.err) == (2, True)
    assert taken.read_text() == "Dear Ada"


def line(position: object, **changed: object) -> str:
    return json.dumps({"position": position, "type": "A", "recorded_at": "2026-01-01T00:00:00Z", **changed}) + "\n"


ID = "00000000-0000-0000-0000-000000000001"


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        (line(2), "line 1, position: 2 does not follow: the head of the store is 0"),
        (line(1) + "\n" + line(3), "line 3, position: 3 does not follow: the line before it has 1"),
        (line(1) + line(1), "line 2, position: 1 does not follow"),
        (line(1) + "{", "line 2, event: not valid JSON"),
        (line(1) + '{"type": "A", "recorded_at": "2026-01-01T00:00:00Z"}', "line 2, position: missing"),
        (line(1) + '{"type": "A", "position": 2}', "line 2, recorded_at: missing"),
        (line(1, recorded_at="2026-01-01T00:00:00"), "line 1, recorded_at"),
        (line("x"), "line 1, position"),
        (line(0), "line 1, position"),
        (line(1, tags=["y" * 2000]), "line 1, tags"),
        (line(1, id=ID) + "\n" + line(2, id=ID), "line 3: "),
    ],
)
def test_a_problem_names_its_line(cli: Cli, tmp_path: Path, lines: str, problem: str) -> None:
    ran = cli("import", str(tmp_path / "target.db"), given=lines)
    assert ran.code == 2
    assert problem in ran.err
    with fencepost.open(tmp_path / "target.db") as store:
        assert store.head() == 0


def test_an_import_into_another_log_is_refused(cli: Cli, source: str, tmp_path: Path) -> None:
    target = str(tmp_path / "target.db")
    with fencepost.open(target) as store:
        store.append([Event("Another")])
    ran = cli("import", target, given=cli("export", source).out)
    assert (ran.code, "line 1: the store holds another event at position 1" in ran.err) == (2, True)
    assert len(events_of(target)) == 1


def test_a_truncated_gzip_file_is_refused(cli: Cli, source: str, tmp_path: Path) -> None:
    whole = tmp_path / "whole.gz"
    cli("export", source, str(whole))
    cut = tmp_path / "cut.gz"
    cut.write_bytes(whole.read_bytes()[:-20])
    ran = cli("import", str(tmp_path / "target.db"), str(cut))
    assert (ran.code, "not a complete gzip file" in ran.err) == (2, True)


def test_a_file_that_does_not_exist_leaves_no_store(cli: Cli, tmp_path: Path) -> None:
    assert cli("import", str(tmp_path / "target.db"), str(tmp_path / "none")).code == 2
    assert list(tmp_path.iterdir()) == []
