"""Reading: the matching events of a range, in either order, and how far the reading reaches."""

from __future__ import annotations

from itertools import product

import pytest

from ...buckets import matches
from ...errors import ReadingNotFinished
from ...model import MAX_POSITION, Event, Query, QueryItem
from ..stores import Store
from .base import Contract, events, positions, tagged, take, typed, types

QUERIES = [
    Query.all(),
    typed("A"),
    typed("A", "B"),
    typed("Never"),
    tagged("x"),
    tagged("x", "y"),
    tagged("x", "y", "z"),
    tagged("never"),
    tagged("x", "never"),
    Query.of(types={"A"}, tags={"x"}),
    Query.of(types={"A", "B"}, tags={"x", "z"}),
    Query.of(types={"Never"}, tags={"x"}),
    typed("A") | tagged("x"),
    typed("A") | typed("B") | tagged("z"),
    Query.of(types={"A"}, tags={"x"}) | Query.of(types={"B"}, tags={"y"}),
    tagged("x") | tagged("x"),
    Query([QueryItem(tags={"x"}), QueryItem(types={"A"}, tags={"x"})]),  # the second finds nothing new
    Query([QueryItem(types={"Never"}), QueryItem()]),
]


class Reading(Contract):
    def test_every_query_finds_what_matches_in_every_range_and_order(self, store: Store) -> None:
        kinds = product("ABC", ["", "x", "y", "xy", "yz", "xyz"])
        for kind, tags in list(kinds) * 2:
            store.append([Event(kind, tags=set(tags))])
        log = list(store.read())
        marks = [0, log[0].position, log[7].position, log[-1].position, MAX_POSITION]
        for query, after, up_to, limit in product(QUERIES, marks, [*marks, None], [None, 1, 3]):
            bound = MAX_POSITION if up_to is None else up_to
            expected = [event for event in log if after < event.position <= bound and matches(event, query)]
            assert list(store.read(query, after=after, up_to=up_to, limit=limit)) == expected[:limit]
            backwards = store.read(query, after=after, up_to=up_to, limit=limit, backwards=True)
            assert list(backwards) == expected[::-1][:limit]

    def test_an_event_that_several_items_match_is_read_once(self, store: Store) -> None:
        placed = store.append(events("A", "x", "y"))
        query = typed("A") | tagged("x") | tagged("y") | Query.all()
        assert positions(store.read(query)) == [placed.first]
        assert positions(store.read(query, backwards=True)) == [placed.first]

    def test_without_a_query_everything_is_read(self, store: Store) -> None:
        store.append(events("A") + events("B", "x"))
        assert types(store.read()) == types(store.read(Query.all())) == ["A", "B"]

    def test_up_to_is_included_and_after_is_not(self, store: Store) -> None:
        store.append(events("A", count=5))
        log = positions(store.read())
        assert positions(store.read(after=log[1], up_to=log[3])) == log[2:4]
        assert positions(store.read(after=log[1], up_to=log[3], backwards=True)) == [log[3], log[2]]
        assert positions(store.read(after=log[1], up_to=log[1])) == []
        assert positions(store.read(after=log[3], up_to=log[1])) == []
        assert positions(store.read(up_to=0)) == []

    def test_without_a_limit_the_head_is_known_before_the_first_event(self, store: Store) -> None:
        head = store.append(events("A", count=3)).last
        reading = store.read(typed("Never"))
        assert reading.head == head
        assert store.read(up_to=head - 1).head == head - 1
        assert store.read(up_to=MAX_POSITION).head == head
        assert store.read(backwards=True).head == head

    def test_a_reading_holds_nothing_that_came_after_its_head(self, store: Store, again: Store) -> None:
        store.append(events("A", count=3))
        forwards, backwards = store.read(), store.read(backwards=True)
        bounded = store.read(up_to=MAX_POSITION)
        limited = store.read(limit=10)
        again.append(events("B", count=3))
        assert types(forwards) == types(backwards) == types(bounded) == types(limited) == ["A"] * 3
        assert forwards.head == limited.head < store.head()

    def test_with_a_limit_the_head_is_known_at_the_end(self, store: Store) -> None:
        store.append(events("A", count=3))
        for backwards in (False, True):
            reading = store.read(limit=2, backwards=backwards)
            with pytest.raises(ReadingNotFinished):
                _ = reading.head
            assert len(list(reading)) == 2
            assert reading.head > 0

    def test_a_limit_that_is_reached_ends_a_reading_at_its_last_event(self, store: Store) -> None:
        store.append(events("A", "x", count=4))
        store.append(events("Other"))
        log = positions(store.read(tagged("x")))
        for limit in (1, 3):
            reading = store.read(tagged("x"), limit=limit)
            assert positions(reading) == log[:limit]
            assert reading.head == log[limit - 1]

    def test_readings_joined_by_their_heads_are_the_whole_log(self, store: Store) -> None:
        for number in range(20):
            store.append(events("A" if number % 3 else "B", "x" if number % 2 else "y"))
        for query in (Query.all(), tagged("x"), typed("B")):
            head, found = 0, []
            while head < store.head():
                reading = store.read(query, after=head, limit=3)
                found += list(reading)
                assert reading.head > head
                head = reading.head
            assert found == list(store.read(query))

    def test_a_reading_is_iterated_once(self, store: Store) -> None:
        store.append(events("A", count=3))
        reading = store.read()
        assert len(take(reading, 2)) == 2
        assert len(list(reading)) == 1
        assert list(reading) == []

    def test_a_reading_that_is_left_halfway_disturbs_no_other_call(self, store: Store, again: Store) -> None:
        store.append(events("A", count=3_000))
        for _ in range(20):
            abandoned = store.read()
            assert len(take(abandoned, 1)) == 1
            again.append(events("B"))
        assert len(list(store.read(typed("B")))) == 20

    def test_the_head_is_the_last_position(self, store: Store, again: Store) -> None:
        for count in (1, 3):
            placed = store.append(events("A", count=count))
            assert store.head() == again.head() == placed.last == positions(store.read())[-1]
