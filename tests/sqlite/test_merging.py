"""Merging generations: at each step a whole and searchable file, in the end few generations."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import apsw
import pytest

import fencepost
from fencepost import Event, Query
from fencepost.engine import engine_of
from fencepost.engines.sqlite import sizes, verify
from fencepost.engines.sqlite.connections import connect, run
from fencepost.engines.sqlite.engine import SqliteEngine
from fencepost.engines.sqlite.generations import merge_step

pytestmark = pytest.mark.usefixtures("small")

THIRD = Query.of(types={"T0"}, tags={"third:0", "all"})


def fill(path: Path, events: int) -> None:
    """Generations of 8 events and more, none of them merged."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sizes, "MERGED", 1_000)
        with fencepost.open(path) as store:
            for number in range(events):
                store.append([Event(f"T{number % 2}", tags={f"third:{number % 3}", f"n:{number}", "all"})])


@pytest.fixture
def connection(path: Path) -> Iterator[apsw.Connection]:
    fill(path, 80)
    with closing(connect(str(path), timeout_s=10, cache_kib=1_024)) as connection:
        yield connection


def states(connection: apsw.Connection) -> list[tuple[str, int, int, int]]:
    return run(connection, "SELECT state, level, first, last FROM generations ORDER BY first, level")


def test_every_step_leaves_a_file_in_which_everything_is_found(connection: apsw.Connection, path: Path) -> None:
    expected = list(range(1, 81, 6))
    seen = set()
    with fencepost.open(path) as store:
        while merge_step(connection):
            assert verify(path).problems == []
            seen |= {state for state, *_ in states(connection)}
            assert [event.position for event in store.read(THIRD)] == expected
            assert [event.position for event in store.read(THIRD, backwards=True)] == expected[::-1]
    assert seen == {"ready", "building", "dead"}


def test_merging_ends_with_fewer_generations_than_are_merged_at_each_level(connection: apsw.Connection) -> None:
    before = len(states(connection))
    while merge_step(connection):
        pass
    after = states(connection)
    assert {state for state, *_ in after} == {"ready"}
    assert len(after) < before / 2
    # The newest still grows, so one more than the others may be waiting.
    levels = [level for _, level, _, _ in after]
    assert max(levels.count(level) for level in levels) <= sizes.MERGED
    assert levels == sorted(levels, reverse=True), "the older, the larger"
    assert not merge_step(connection)


def test_a_step_moves_a_bounded_number_of_postings(connection: apsw.Connection) -> None:
    most, count = 0, "SELECT count(*) FROM postings"
    stored = connection.execute(count).get
    while merge_step(connection):
        now = connection.execute(count).get
        most = max(most, abs(now - stored))
        stored = now
    assert 0 < most <= sizes.STEP_POSTINGS + sizes.MERGED


def test_what_one_process_has_begun_another_goes_on_with(connection: apsw.Connection, path: Path) -> None:
    while "building" not in {state for state, *_ in states(connection)}:
        merge_step(connection)
    with closing(connect(str(path), timeout_s=10, cache_kib=1_024)) as another:
        while merge_step(another) and merge_step(connection):
            pass
    while merge_step(connection):
        pass
    assert {state for state, *_ in states(connection)} == {"ready"}
    assert verify(path).problems == []


def test_a_store_in_use_merges_by_itself(path: Path) -> None:
    with fencepost.open(path) as store:
        for number in range(200):
            store.append([Event("A", tags={f"n:{number}"})])
        engine = engine_of(store)
        assert isinstance(engine, SqliteEngine)
        ready = [row for row in states(engine._writable().writer) if row[0] == "ready"]
        assert len(ready) <= 12, f"200 events are {200 // sizes.GENERATION_EVENTS} small generations"
        assert max(level for _, level, _, _ in ready) >= 2
    assert verify(path).problems == []
