"""Every copy of matching in the engine agrees with `fencepost.buckets.matches`, on the same generated logs and queries.

The definition is written again, for speed, in five places: the search of the tail, the search of the generations,
the shortlist, the first match of a condition, and the test of the index's answers. Each test below goes through the
store, and first makes sure that it reaches the range of the log, and so the code, that it is named after. The parts
themselves are compared in test_search.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.small import shrink
from tests.support.thorough import times

import fencepost
from fencepost import AppendCondition, ConditionFailed, Event, EventStore, Query, QueryItem
from fencepost.buckets import matches
from fencepost.engine import engine_of
from fencepost.engines.sqlite import SqliteEngine, ledger, scans, sizes
from fencepost.engines.sqlite.short_reads import Read
from fencepost.testing.strategies import TAGS, events, queries, types

NEVER = 1_000_000
logs = st.one_of(st.lists(events, min_size=1, max_size=4), st.lists(events, min_size=8, max_size=24))
# Items with one tag take ways of their own through the tail and the shortlist.
single_tags = st.builds(
    QueryItem,
    types=st.frozensets(types, max_size=2),
    tags=st.sampled_from(TAGS).map(lambda tag: frozenset({tag})),
)
queries = st.one_of(queries, st.lists(single_tags, min_size=1, max_size=2).map(Query))
some = settings(max_examples=times(20, thorough=200), deadline=None)


class Range(Enum):
    """Where the events of a log are when they are read."""

    GENERATIONS = "generations"
    TAIL = "tail"
    NEWEST = "newest rows"  # appended through another handle, and not in the tail of this one
    ALL = "all three"


@pytest.fixture(autouse=True, scope="module")
def _small() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        shrink(patch.setattr)
        patch.setattr(sizes, "FEW", 2)
        patch.setattr(sizes, "MANY", 5)
        patch.setattr(sizes, "UNINDEXED_EVENTS", NEVER)  # so that the newest rows stay out of the tail
        yield


def sqlite_of(store: EventStore) -> SqliteEngine:
    engine = engine_of(store)
    assert isinstance(engine, SqliteEngine)
    return engine


@contextmanager
def stored(log: list[Event], where: Range) -> Iterator[EventStore]:
    """A store with the log in the given range, or with a third of it in each."""
    third = len(log) // 3
    in_tail_from, newest_from = {
        Range.GENERATIONS: (len(log), len(log)),
        Range.TAIL: (0, len(log)),
        Range.NEWEST: (0, 0),
        Range.ALL: (third, 2 * third),
    }[where]
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        path = Path(folder) / "log.db"
        with fencepost.open(path) as first:
            patch.setattr(sizes, "TAIL_EVENTS", 1)
            for event in log[:in_tail_from]:
                first.append([event])
            if in_tail_from:
                sqlite_of(first)._writable()._write(lambda: None)  # writes the tail to disk
        patch.setattr(sizes, "TAIL_EVENTS", NEVER)
        with fencepost.open(path) as store, fencepost.open(path) as other:
            if log[in_tail_from:newest_from]:
                store.append(log[in_tail_from:newest_from])
            if log[newest_from:]:
                other.append(log[newest_from:])
            view = sqlite_of(store)._tail.view
            assert (view.tail.floor, view.committed) == (in_tail_from, newest_from)
            yield store


def expected(log: list[Event], query: Query, after: int, up_to: int) -> list[int]:
    return [at for at, event in enumerate(log, 1) if after < at <= up_to and matches(event, query)]


def bounds(data: st.DataObject, log: list[Event]) -> tuple[int, int]:
    """Often the whole log, because most narrow ranges hold no event that matches."""
    after = data.draw(st.one_of(st.just(0), st.integers(0, len(log))), label="after")
    return after, data.draw(st.one_of(st.just(len(log)), st.integers(after, len(log))), label="up_to")


@pytest.mark.parametrize("where", Range)
@some
@given(data=st.data(), log=logs, query=queries, backwards=st.booleans(), limit=st.none() | st.integers(1, 5))
def test_a_scan_finds_what_matches(
    where: Range, data: st.DataObject, log: list[Event], query: Query, backwards: bool, limit: int | None
) -> None:
    after, up_to = bounds(data, log)
    matching = expected(log, query, after, up_to)
    with stored(log, where) as store:
        pages = engine_of(store).scan(query, after=after, up_to=up_to, limit=limit, backwards=backwards)
        found = [event.position for page in pages for event in page]
    assert found == (matching[::-1] if backwards else matching)[:limit]


@pytest.mark.parametrize("where", Range)
@some
@given(data=st.data(), log=logs, query=queries, backwards=st.booleans(), limit=st.none() | st.integers(1, 5))
def test_a_short_read_finds_what_matches(
    where: Range, data: st.DataObject, log: list[Event], query: Query, backwards: bool, limit: int | None
) -> None:
    after, up_to = bounds(data, log)
    matching = expected(log, query, after, up_to)
    with stored(log, where) as store, pytest.MonkeyPatch.context() as patch:
        patch.setattr(sizes, "SHORT_EVENTS", 1_000)
        engine = sqlite_of(store)
        with engine._writing:  # as while another thread writes: the newest rows are not taken into the tail
            ((reach, page),) = engine._short.begin([Read(query, after, up_to, limit, backwards)])
    assert reach == up_to
    if page is None:
        assert not all(item.tags for item in query.items), "a read by tags is short"
    else:
        assert [event.position for event in page] == (matching[::-1] if backwards else matching)[:limit]


@pytest.mark.parametrize("where", Range)
@some
@given(data=st.data(), log=logs, query=queries)
def test_a_condition_fails_on_the_first_event_that_matches(
    where: Range, data: st.DataObject, log: list[Event], query: Query
) -> None:
    after, _ = bounds(data, log)
    matching = expected(log, query, after, len(log))
    with stored(log, where) as store:
        if matching:
            with pytest.raises(ConditionFailed) as refusal:
                store.append([Event("New")], AppendCondition(query, after=after))
            assert refusal.value.conflict.position == matching[0]
        else:
            assert store.append([Event("New")], AppendCondition(query, after=after)).first == len(log) + 1


@pytest.mark.parametrize("where", Range)
@some
@given(log=logs, query=queries)
def test_unless_finds_the_first_event_that_matches(where: Range, log: list[Event], query: Query) -> None:
    matching = expected(log, query, 0, len(log))
    with stored(log, where) as store:
        placed = store.append([Event("New")], unless=query)
    assert placed.already == bool(matching)
    assert placed.first == (matching[0] if matching else len(log) + 1)


@some
@given(log=logs, staged=logs, query=queries)
def test_a_condition_sees_what_its_own_batch_has_staged(log: list[Event], staged: list[Event], query: Query) -> None:
    matching = expected([*log, *staged], query, len(log), len(log) + len(staged))
    with stored(log, Range.TAIL) as store:
        engine = sqlite_of(store)
        view = engine._tail.view
        batch = ledger.BatchLedger(view.tail, None, engine._writable().writer, engine._types)
        for event in staged:
            view.tail.add(event.type, event.tags, None)
        assert batch.first_match(query, len(log)) == (matching[0] if matching else None)


@pytest.mark.parametrize(
    ("where", "method"),
    [(Range.GENERATIONS, "_indexed_page"), (Range.TAIL, "_tail_page"), (Range.NEWEST, "_filtered_page")],
)
def test_a_scan_of_each_range_takes_its_own_way(where: Range, method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the tests above would compare one copy of matching three times."""
    taken: list[str] = []
    for name in ("_indexed_page", "_tail_page", "_filtered_page"):
        original = getattr(scans.Scans, name)

        def noted(self: scans.Scans, *given: object, name: str = name, original: object = original) -> object:
            taken.append(name)
            return original(self, *given)  # type: ignore[operator]

        monkeypatch.setattr(scans.Scans, name, noted)
    with stored([Event("A", tags={"x"})] * 4, where) as store:
        pages = list(engine_of(store).scan(Query.of(tags={"x"}), after=0, up_to=4))
    assert sum(map(len, pages)) == 4
    assert set(taken) == {method}
