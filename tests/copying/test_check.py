"""`check_log` finds each way in which a log can be wrong; `verify` and `backup` use it for every engine."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest
from tests.cli.conftest import COMMAND, ENVIRONMENT, Cli
from tests.copying.conftest import fill, log
from tests.server.running import RunningServer

import fencepost
from fencepost import EventStore, Query, Record, SequencedEvent
from fencepost.engine import RecordedAppend
from fencepost.engines.memory import MemoryEngine
from fencepost.tools import check_log


class Damaged(MemoryEngine):
    """Reports the given events and appends, whatever they are."""

    def __init__(self, events: Sequence[SequencedEvent], appends: Sequence[RecordedAppend] = (), head: int = 0) -> None:
        super().__init__()
        self._given, self._appends, self._end = events, appends, head or events[-1].position

    def head(self) -> int:
        return self._end

    def scan(self, query: Query, **options: Any) -> Iterator[Sequence[SequencedEvent]]:
        yield self._given

    def recorded(self, *, after: int, up_to: int) -> Iterator[Sequence[RecordedAppend]]:
        yield self._appends


def event(position: int, **changed: Any) -> SequencedEvent:
    fields = {"type": "A", "raw_tags": '["a"]', "data": b"", "raw_recorded_at": 1, "raw_id": None}
    return SequencedEvent(position, **{**fields, **changed})


@pytest.mark.parametrize(
    ("events", "appends", "head", "problem"),
    [
        ([event(1), event(3)], [], 0, "position 2 is missing"),
        ([event(2), event(1)], [], 0, "position 1 comes after 2"),
        ([event(1)], [], 4, "the log ends at position 1, and the head is 4"),
        ([event(1, raw_tags="[")], [], 0, "tags of the event at position 1 cannot be decoded"),
        ([event(1, raw_metadata="[]")], [], 0, "metadata of the event at position 1 cannot be decoded"),
        ([event(1, raw_recorded_at=10**30)], [], 0, "recorded_at of the event at position 1 cannot be decoded"),
        ([event(1, raw_id=b"short")], [], 0, "position 1"),
        ([event(1, type="")], [], 0, "position 1 could not have been appended: type"),
        ([event(1, raw_id=b"i" * 16), event(2, raw_id=b"i" * 16)], [], 0, "is stored more than once"),
        ([event(1)], [RecordedAppend(1, 1, "{")], 0, "append that ends at 1 cannot be decoded"),
        ([event(1)], [RecordedAppend(1, 1), RecordedAppend(1, 1)], 0, "recorded append 1 to 1 comes after 1"),
    ],
)
def test_each_kind_of_damage_is_found(
    events: list[SequencedEvent], appends: list[RecordedAppend], head: int, problem: str
) -> None:
    with EventStore(Damaged(events, appends, head)) as store:
        found = check_log(store, gapless=True)
    assert not found.sound
    assert any(problem in each for each in found.problems), found.problems


@pytest.mark.parametrize("memory_bytes", [1, 16 * 100, 16 * 900, 10**9])
def test_repeated_ids_are_found_in_little_memory(memory_bytes: int) -> None:
    ids = [b"%016d" % number for number in range(1_000)]
    for repeated in (3, 500, 999):
        stored = [*ids, ids[repeated]]
        log = [event(position, raw_id=id) for position, id in enumerate(stored, start=1)]
        with EventStore(Damaged(log)) as store:
            found = check_log(store, gapless=True, memory_bytes=memory_bytes)
        assert found.problems == [f"the id {UUID(bytes=ids[repeated])} is stored more than once"]
        assert found.events == 1_001


def test_gaps_are_allowed_where_the_engine_makes_them() -> None:
    with EventStore(Damaged([event(1), event(3)])) as store:
        assert check_log(store, gapless=False).sound


def test_a_checkpoint_that_is_not_a_position_is_found() -> None:
    engine = MemoryEngine()
    engine.stage_records({"checkpoints/reader": Record("checkpoints/reader", b"x", 1)})
    (problem,) = check_log(EventStore(engine), gapless=True).problems
    assert "checkpoint 'reader'" in problem


def test_a_sound_log_is_counted() -> None:
    with fencepost.open("memory:", record_conditions=True) as store:
        fill(store, 35)
        found = check_log(store, gapless=True)
    assert (found.problems, found.events, found.appends, found.head) == ([], 35, 4, 35)


def test_verify_reads_a_postgresql_store(cli: Cli, source: str, url: str) -> None:
    cli("copy", source, url)
    counted = {"head": 95, "events": 95, "appends": 10, "checkpoints": 0, "records": 0}
    assert cli("verify", url).lines == [{"sound": True, **counted, "problems": []}]
    assert "Sound: 95 events" in cli("verify", url, "--table").out


def test_verify_finds_damage_in_a_postgresql_store(cli: Cli, source: str, url: str, schema: str) -> None:
    cli("copy", source, url)
    with psycopg.connect(url.partition("?schema")[0].partition("&schema")[0], autocommit=True) as connection:
        connection.execute(f"ALTER TABLE {schema}.event DISABLE TRIGGER USER".encode())
        connection.execute(f"DELETE FROM {schema}.event WHERE position = 7".encode())
    ran = cli("verify", url)
    assert ran.code == 4
    assert "position 7 is missing: 8 comes after 6" in ran.lines[0]["problems"]
    assert "Not sound" in cli("verify", url, "--table").out


@pytest.mark.parametrize("engine", ["postgresql", "http"])
def test_backup_of_another_store_is_an_equal_sqlite_file(
    cli: Cli, source: str, tmp_path: Path, engine: str, request: pytest.FixtureRequest
) -> None:
    backup = str(tmp_path / "backup.db")
    if engine == "http":
        with RunningServer(source) as server:
            assert cli("verify", server.url).lines[0]["sound"]
            assert cli("backup", server.url, backup).lines == [{"to": backup, "head": 95}]
    else:
        url = request.getfixturevalue("url")
        cli("copy", source, url)
        assert cli("backup", url, backup).lines == [{"to": backup, "head": 95}]
        ran = cli("backup", url, backup)
        assert (ran.code, "name a new file" in ran.err) == (2, True)
    assert log(backup) == log(source)
    assert sorted(path.name for path in tmp_path.iterdir() if "backup" in path.name) == ["backup.db"]


def test_a_lake_is_verified_backed_up_and_copied(cli: Cli, source: str, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    command = [*COMMAND, "lake", "export", source, str(lake), "--master", "local[1]"]
    subprocess.run(command, env=ENVIRONMENT, check=True, capture_output=True, timeout=200)
    counted = {"head": 95, "events": 95, "appends": 10, "checkpoints": 0, "records": 0}
    assert cli("verify", f"lake:{lake}").lines == [{"sound": True, **counted, "problems": []}]
    assert cli("backup", f"lake:{lake}", str(tmp_path / "backup.db")).code == 0
    assert cli("copy", f"lake:{lake}", str(tmp_path / "target.db")).code == 0
    assert log(str(tmp_path / "target.db")) == log(str(tmp_path / "backup.db")) == log(source)
