"""Searches by leapfrog and by bitmaps find what checking every event finds: both ways, in memory and on disk."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from importlib.resources import files
from itertools import chain, combinations

import apsw
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.thorough import times

from fencepost import Event, Query, QueryItem
from fencepost.buckets import matches
from fencepost.engines import sqlite
from fencepost.engines.sqlite import search, sizes
from fencepost.engines.sqlite.connections import run, transaction
from fencepost.engines.sqlite.generations import Types, ready_parts, shortlist, write_tail
from fencepost.engines.sqlite.tail import Tail, TailPart

TYPES = ["Opened", "Closed"]
TAGS = ["a", "b", "c"]  # few types, so that neighbouring events often match the same query

event = st.builds(Event, st.sampled_from(TYPES), tags=st.sets(st.sampled_from(TAGS)))
events = st.one_of(st.lists(event, max_size=10), st.lists(event, min_size=12, max_size=25))
items = st.builds(
    QueryItem, types=st.sets(st.sampled_from([*TYPES, "Absent"])), tags=st.sets(st.sampled_from([*TAGS, "absent"]))
)
queries = st.lists(items, min_size=1, max_size=3).map(Query)
some = settings(max_examples=times(60, thorough=500), deadline=None)


@pytest.fixture(autouse=True, scope="module", params=[0, 64], ids=["bitmaps", "leapfrog"])
def _in_small_pieces(request: pytest.FixtureRequest) -> Iterator[None]:
    """So that a list of a few dozen positions is read in many pieces, and lies in several generations."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sizes, "LEAPFROG_TERMS", request.param)
        patch.setattr(sizes, "WINDOW", 7)
        patch.setattr(sizes, "FEW", 2)
        patch.setattr(sizes, "MANY", 5)
        patch.setattr(sizes, "RARE", 4)
        patch.setattr(sizes, "INSERT_ROWS", 3)
        patch.setattr(sizes, "GENERATION_EVENTS", 10)
        yield


def expected(log: list[Event], query: Query, after: int, up_to: int, *, backwards: bool) -> list[int]:
    """The keys of the matching events with after < position <= up_to."""
    found = [number for number, event in enumerate(log, 1) if after < number <= up_to and matches(event, query)]
    return [-position for position in reversed(found)] if backwards else found


def tail_of(log: list[Event], floor: int = 0) -> Tail:
    tail = Tail(floor)
    for event in log:
        tail.add(event.type, event.tags, None if event.id is None else event.id.bytes)
    return tail


sorted_lists = st.lists(st.sets(st.integers(-40, 40)).map(sorted), min_size=1, max_size=4)


@some
@given(sorted_lists, st.integers(-45, 45))
def test_an_intersection_has_the_keys_that_all_lists_have(lists: list[list[int]], start: int) -> None:
    def run_of(keys: list[int]) -> search.Run:
        return lambda key, count: [other for other in keys if other >= key][:count]

    common = set.intersection(*map(set, lists))
    found = list(search.intersection([run_of(keys) for keys in lists], start))
    assert found == sorted(key for key in common if key >= start)


@some
@given(st.data(), events, queries, st.booleans())
def test_a_tail_is_searched_as_if_every_event_were_looked_at(
    data: st.DataObject, log: list[Event], query: Query, backwards: bool
) -> None:
    after = data.draw(st.integers(0, len(log)))
    up_to = data.draw(st.integers(after, len(log)))
    found = list(search.search(TailPart(tail_of(log), after, up_to), query, backwards=backwards))
    assert found == expected(log, query, after, up_to, backwards=backwards)


@some
@given(events, queries, st.integers(0, 60))
def test_the_first_match_in_a_tail_is_the_lowest_after_the_condition(
    log: list[Event], query: Query, after: int
) -> None:
    found = expected(log, query, after, len(log), backwards=False)
    assert tail_of(log).first_match(query, after) == (found[0] if found else None)


def test_a_query_of_many_items_reads_each_list_once() -> None:
    """The cost of a condition follows the tags that it names, not its number of items times the length of the log."""
    tags = [f"t{number}" for number in range(12)]
    log = [Event("A", tags={tags[number % 12], tags[number // 12 % 12], "all"}) for number in range(600)]
    keys = 0

    class CountedPart(TailPart):
        def run(self, term: str, type: str, backwards: bool) -> search.Run:
            found = super().run(term, type, backwards)

            def counted(key: int, count: int) -> list[int]:
                nonlocal keys
                read = found(key, count)
                keys += len(read)
                return read

            return counted

    query = Query([QueryItem(tags={"all", *three}) for three in combinations(tags, 3)])
    assert len(query.items) == 220
    assert list(search.search(CountedPart(tail_of(log), 0, len(log)), query)) == []
    assert keys < 2 * sum(1 + len(event.tags) for event in log), "some keys are read twice, at the ends of windows"


@contextmanager
def index_of(log: list[Event], pieces: list[int]) -> Iterator[tuple[apsw.Connection, Types]]:
    """Generations of the log, made of tails of the given lengths and the rest."""
    with closing(apsw.Connection(":memory:")) as connection:
        run(connection, files(sqlite).joinpath("schema.sql").read_text())
        types, floor = Types(), 0
        for piece in (*pieces, len(log)):
            if part := log[floor : floor + piece]:
                with transaction(connection):
                    write_tail(connection, types, tail_of(part, floor))
                floor += len(part)
        yield connection, types


@some
@given(st.data(), events, queries, st.lists(st.integers(1, 20), max_size=6), st.booleans())
def test_generations_are_searched_as_if_every_event_were_looked_at(
    data: st.DataObject, log: list[Event], query: Query, pieces: list[int], backwards: bool
) -> None:
    after = data.draw(st.integers(0, len(log)))
    up_to = data.draw(st.integers(after, len(log)))
    with index_of(log, pieces) as (connection, types):
        parts = ready_parts(connection, types, after, up_to, backwards=backwards)
        found = list(chain.from_iterable(search.search(part, query, backwards=backwards) for part in parts))
    assert found == expected(log, query, after, up_to, backwards=backwards)


@some
@given(st.data(), events, queries, st.lists(st.integers(1, 20), max_size=6))
def test_a_shortlist_has_all_that_match_and_for_single_tags_nothing_else(
    data: st.DataObject, log: list[Event], query: Query, pieces: list[int]
) -> None:
    after = data.draw(st.integers(0, len(log)))
    up_to = data.draw(st.integers(after, len(log)))
    with index_of(log, pieces) as (connection, types):
        short = shortlist(connection, types, query, after, up_to)
    matching = expected(log, query, after, up_to, backwards=False)
    if short is None:
        longest = sizes.RARE
        having = [sum(tag in event.tags for event in log) for item in query.items for tag in item.tags]
        assert not all(item.tags for item in query.items) or max(having) > longest, "it would have been short"
    elif all(len(item.tags) == 1 for item in query.items):
        assert short == matching
    else:
        assert set(matching) <= set(short)
        assert short == sorted(set(short))
        assert all(after < position <= up_to for position in short)
