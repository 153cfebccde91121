"""The table of recorded appends: created on demand, checked by `verify`, and ignored by all other operations."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.sqlite.outside import outside

import fencepost
import fencepost.aio
from fencepost import AppendCondition, Event, Query, StoreCorrupt, StoreError
from fencepost.engine import Capability, recorded, restore
from fencepost.engines.sqlite import backup, verify

TABLES = "SELECT count(*) FROM sqlite_schema WHERE name = 'appends'"


def fill(path: Path, appends: int = 5) -> None:
    with fencepost.open(path, record_conditions=True) as store:
        for number in range(appends):
            condition = AppendCondition(Query.of(tags={f"n:{number}"}))
            store.append([Event("A", tags={f"n:{number}"})] * 2, condition)


def test_a_store_that_never_records_has_no_table(path: Path) -> None:
    with fencepost.open(path) as store:
        store.append([Event("A")])
        assert list(recorded(store)) == []
    assert outside(path, TABLES) == [[0]]


def test_a_store_begins_to_record_when_it_is_first_asked_to(path: Path) -> None:
    with fencepost.open(path) as store:
        store.append([Event("A")])
    fill(path)
    with fencepost.open(path) as store:
        assert [append.first for append in recorded(store)] == [2, 4, 6, 8, 10]
    assert outside(path, "SELECT json_extract(conditions, '$[0].after') FROM appends LIMIT 1") == [[0]]


def test_what_is_recorded_is_verified_and_comes_along_in_a_backup(path: Path, tmp_path: Path) -> None:
    fill(path)
    backup(path, tmp_path / "copy.db")
    for place in (path, tmp_path / "copy.db"):
        report = verify(place)
        assert report.sound
        assert report.appends == 5


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (
            "UPDATE appends SET first = 3 WHERE last = 6",
            "append that ends at 6: begins at 3, but 4 belongs to another append",
        ),
        (
            "UPDATE appends SET first = 7 WHERE last = 6",
            "append that ends at 6: is said to hold 7 to 6",
        ),
        (
            "UPDATE appends SET last = 11 WHERE last = 10",
            "append that ends at 11: is said to hold 9 to 11",
        ),
        (
            "UPDATE appends SET conditions = '[1]' WHERE last = 2",
            "append that ends at 2: has conditions that cannot",
        ),
        (
            "UPDATE appends SET unless = '{}' WHERE last = 2",
            "append that ends at 2: has conditions that cannot",
        ),
    ],
)
def test_what_was_done_to_the_table_is_found(path: Path, damage: str, said: str) -> None:
    fill(path)
    outside(path, damage)
    (problem,) = verify(path).problems
    assert str(problem).startswith(said)


def test_a_record_for_positions_to_come_is_corruption_and_not_a_rival(path: Path) -> None:
    fill(path, 1)
    outside(path, "INSERT INTO appends VALUES (3, 3, '[]', NULL)")
    with fencepost.open(path, record_conditions=True) as store:
        with pytest.raises(StoreCorrupt, match="beyond the end of the log"):
            store.append([Event("A")])
        assert store.head() == 2
        assert store.append([Event("A")] * 2).last == 4


def test_an_engine_that_cannot_says_so() -> None:
    with pytest.raises(fencepost.InvalidInput, match="record_conditions"):
        fencepost.open("fdb:", record_conditions=True)
    with fencepost.EventStore(Plain()) as store:  # type: ignore[arg-type]
        with pytest.raises(StoreError, match="does not record"):
            recorded(store)
        with pytest.raises(StoreError, match="assigns positions itself"):
            restore(store, [])


class Plain:
    capabilities = Capability.GROUP_COMMIT

    def commit(self, appends: object) -> object: ...

    def interrupt(self) -> None: ...

    def close(self) -> None: ...


async def test_the_blocking_face_of_an_asyncio_store_records_and_restores(path: Path, tmp_path: Path) -> None:
    fill(path)
    with fencepost.open(path) as store:
        events, appends = list(store.read()), list(recorded(store))
    async with fencepost.aio.open(tmp_path / "other.db", record_conditions=True) as other:
        await asyncio.to_thread(restore, other.blocking, events, appends)
        assert list(recorded(other.blocking, after=4)) == appends[2:]
        condition = AppendCondition(Query.of(tags={"n:9"}))
        placed = await other.append([Event("B")], condition)
        assert [append.conditions for append in recorded(other.blocking, after=placed.first - 1)] == [(condition,)]
