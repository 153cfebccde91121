"""From a lake back into a store: every column as it was, whatever happened on the way."""

from __future__ import annotations

import hashlib
import signal
import subprocess
import sys
from pathlib import Path
from uuid import UUID

import pytest
from pyspark.sql import SparkSession
from tests.spark.conftest import append_each, wallet_events
from tests.spark.lakes import written
from tests.support.postgres import new_database

import fencepost
from fencepost import (
    AppendCondition,
    Event,
    EventStore,
    InvalidInput,
    Query,
    SequencedEvent,
    StoreCorrupt,
    StoreError,
)
from fencepost.engine import recorded, restore, verify
from fencepost.spark import lake
from fencepost.spark.scanning.lake import LakeScan

SOURCE = str(Path(fencepost.__file__).parents[1])


KILLED = """
import os, signal, sys
import fencepost
from fencepost.engines.sqlite import committer
from fencepost.spark import lake
from fencepost.spark.lake import restoration

def kill(*_):
    os.kill(os.getpid(), signal.SIGKILL)

at = int(sys.argv[3])
restoration.PART_EVENTS = 100
if at == 0:
    committer.insert_recorded_appends = kill
lake.restore(sys.argv[1], fencepost.open(sys.argv[2]), on_progress=lambda done, _: kill() if done == at else None)
"""


@pytest.fixture(scope="module")
def recorded_log(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A store whose appends are recorded, some of them across the borders of chunks."""
    path = str(tmp_path_factory.mktemp("recorded") / "log.db")
    with fencepost.open(path, record_conditions=True) as store:
        append_each(store, wallet_events(500))
        for number in range(60):
            tag = f"n:{number}"
            condition = AppendCondition(Query.of(types={"A", 'qu"ote'}, tags={tag}), after=number)
            unless = Query.of(tags={"once:ü"}) if number % 2 else None
            store.append(
                [Event("A", data=bytes([number]), tags={tag, "t\\"}) for _ in range(7)], condition, unless=unless
            )
    return path


@pytest.fixture(scope="module")
def folder(recorded_log: str, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lake") / "lake"
    lake.export(spark, recorded_log, str(folder), chunk=200)
    return folder


def digest(store: EventStore) -> str:
    """SHA-256 over all columns of all events, and all that was recorded about appends."""
    sums = hashlib.sha256()
    for event in store.read():
        sums.update(repr(event.stored).encode())
    for append in recorded(store):
        sums.update(repr(append).encode())
    return sums.hexdigest()


@pytest.fixture(scope="module")
def expected(recorded_log: str) -> str:
    with fencepost.open(recorded_log) as store:
        return digest(store)


@pytest.mark.parametrize("engine", ["memory", "sqlite", "postgres"])
def test_a_lake_comes_back_with_every_column_as_it_was(
    engine: str, folder: Path, expected: str, tmp_path: Path, postgres_url: str
) -> None:
    addresses = {"memory": "memory:", "sqlite": str(tmp_path / "new.db"), "postgres": new_database(postgres_url)}
    seen: list[tuple[int, int]] = []
    with fencepost.open(addresses[engine], create=True) as store:
        head = lake.restore(str(folder), store, on_progress=lambda done, all: seen.append((done, all)))
        assert head == store.head() == 920
        assert digest(store) == expected
        assert seen[-1] == (920, 920)
        assert lake.restore(str(folder), store) == 920  # and once more does nothing


def test_what_is_in_the_lake_of_recorded_appends_is_what_the_store_says(recorded_log: str, folder: Path) -> None:
    with fencepost.open(recorded_log) as store, LakeScan(str(folder)).open() as kept:
        assert list(recorded(kept)) == list(recorded(store))
        assert list(recorded(kept, after=505, up_to=700)) == list(recorded(store, after=505, up_to=700))


def test_a_restored_file_is_sound_and_goes_on(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "new.db"
    with fencepost.open(path) as store:
        lake.restore(str(folder), store)
        retried = next(event for event in store.read() if event.id == UUID(int=1))
        assert store.append([retried.event]).already
        assert store.append([Event("Next")]).first == 921
    report = verify(path)
    assert report.problems == []
    assert report.appends == 62


def test_a_restore_that_was_killed_goes_on_where_it_was(folder: Path, expected: str, tmp_path: Path) -> None:
    path = tmp_path / "new.db"
    for kill_at, head in ((300, 300), (400, 400), (0, 400)):  # at last between an insert and its commit
        command = [sys.executable, "-c", KILLED, str(folder), str(path), str(kill_at)]
        killed = subprocess.run(command, env={"PYTHONPATH": SOURCE}, check=False)
        assert killed.returncode == -signal.SIGKILL
        with fencepost.open(path) as store:
            assert store.head() == head
    with fencepost.open(path) as store:
        lake.restore(str(folder), store)
        assert digest(store) == expected


def test_a_store_with_another_beginning_is_refused(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "new.db"
    with fencepost.open(path) as store:
        events = stored_events(folder, 300)
        seventh = events[6]
        events[6] = SequencedEvent(7, "Another", seventh.tags, seventh.data, seventh.recorded_at, seventh.id)
        restore(store, events)
        with pytest.raises(InvalidInput, match="position 7 differs from the lake's"):
            lake.restore(str(folder), store)
        assert store.head() == 300


def stored_events(folder: Path, count: int) -> list[fencepost.SequencedEvent]:
    with LakeScan(str(folder)).open() as kept:
        return list(kept.read(up_to=count))


def test_a_damaged_lake_restores_nothing(tmp_path: Path) -> None:
    source = str(tmp_path / "source.db")
    with fencepost.open(source, record_conditions=True) as store:
        for _ in range(30):
            store.append([Event("A")])
    lake_path = tmp_path / "lake" / written(source, tmp_path / "lake", 10, 20, 30).files[2].path
    content = bytearray(lake_path.read_bytes())
    content[len(content) // 2] ^= 1
    lake_path.write_bytes(content)
    with fencepost.open("memory:") as store:
        with pytest.raises(StoreCorrupt, match="SHA-256"):
            lake.restore(str(tmp_path / "lake"), store)
        assert store.head() == 0


def test_a_store_that_gives_positions_of_its_own_refuses(folder: Path) -> None:
    with LakeScan(str(folder)).open() as store, pytest.raises(StoreError, match="assigns positions itself"):
        restore(store, [])
