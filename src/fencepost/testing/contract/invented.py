"""Conflicts invented: a decision whose ground has not moved must not be refused."""

from __future__ import annotations

from uuid import uuid4

import pytest

from ...errors import StoreUnavailable
from ...model import MAX_POSITION, Event, Query
from ..faults import once, raising
from ..stores import Store
from .base import Contract, condition_fails, events, no_new, positions, tagged, typed, types

NEAR_MISSES = {
    "the same type and another tag": Event("Reserved", tags={"seat:2"}),
    "the same tag and another type": Event("Cleaned", tags={"seat:1"}),
    "fewer tags than the query": Event("Reserved", tags={"seat:1"}),
    "no tags at all": Event("Reserved"),
    "a tag that begins like the query's": Event("Reserved", tags={"seat:1", "row:10"}),
    "a tag that the query's begins with": Event("Reserved", tags={"seat:1", "row:"}),
    "a type that begins like the query's": Event("ReservedTwice", tags={"seat:1", "row:1"}),
    "a tag in other letters": Event("Reserved", tags={"Seat:1", "row:1"}),
    "a type in other letters": Event("reserved", tags={"seat:1", "row:1"}),
    "a tag with a space behind": Event("Reserved", tags={"seat:1 ", "row:1"}),
    "a type that is the query's tag": Event("seat:1", tags={"Reserved", "row:1"}),
    "both tags in one": Event("Reserved", tags={"row:1,seat:1", 'row:1","seat:1'}),
}


class ConflictsInvented(Contract):
    @pytest.mark.parametrize("miss", NEAR_MISSES)
    def test_11_no_conflict_is(self, store: Store, miss: str) -> None:
        near = store.append([NEAR_MISSES[miss]])
        query = Query.of(types={"Reserved"}, tags={"seat:1", "row:1"})
        assert store.append(events("Reserved", "seat:1", "row:1"), no_new(query)).first > near.last

    def test_11_an_event_before_after_is_no_conflict(self, store: Store) -> None:
        store.append(events("Reserved", "seat:1"))
        seen = store.append(events("Other")).last
        assert store.append(events("Reserved", "seat:1"), no_new(tagged("seat:1"), seen)).first > seen

    def test_11_an_event_at_after_is_no_conflict(self, store: Store) -> None:
        seen = store.append(events("Reserved", "seat:1")).last
        assert store.append(events("Reserved", "seat:1"), no_new(tagged("seat:1"), seen)).first > seen

    def test_12_after_just_below_the_last_match_it_is_a_conflict(self, store: Store) -> None:
        match = store.append(events("Reserved", "seat:1"))
        condition_fails(store, events("Reserved", "seat:1"), no_new(tagged("seat:1"), match.first - 1))

    def test_12_after_above_the_last_match_is_no_conflict(self, store: Store) -> None:
        store.append(events("Reserved", "seat:1"))
        above = store.append(events("Other", count=2)).last
        assert store.append(events("Reserved", "seat:1"), no_new(tagged("seat:1"), above)).first > above

    @pytest.mark.parametrize("after", [2**31, 2**63 - 1, 2**63, MAX_POSITION])
    @pytest.mark.parametrize("query", [tagged("seat:1"), typed("Reserved"), Query.all()], ids=["tag", "type", "all"])
    def test_12_after_beyond_the_head_is_no_conflict(self, store: Store, query: Query, after: int) -> None:
        head = store.append(events("Reserved", "seat:1")).last
        after = max(after, head)
        assert store.append(events("Reserved", "seat:1"), no_new(query, after)).first > head

    def test_13_the_boundary_of_a_read_that_finds_nothing_is_the_head_that_it_saw(self, store: Store) -> None:
        known = store.append(events("Reserved", "seat:1")).last
        head = store.append(events("Other", count=3)).last
        reading = store.read(tagged("seat:1"), after=known)
        assert list(reading) == []
        assert reading.head == head
        assert store.append(events("Reserved", "seat:1"), no_new(tagged("seat:1"), reading.head)).first > head

    def test_13_the_boundary_of_a_read_from_beyond_the_head_is_the_head(self, store: Store) -> None:
        head = store.append(events("Reserved", "seat:1")).last
        reading = store.read(tagged("seat:1"), after=MAX_POSITION)
        assert list(reading) == []
        assert reading.head == head

    def test_13_the_boundary_of_a_read_of_an_empty_store_is_zero(self, store: Store) -> None:
        reading = store.read(tagged("seat:1"))
        assert list(reading) == []
        assert reading.head == 0
        store.append(events("Reserved", "seat:1"), no_new(tagged("seat:1"), reading.head))
        condition_fails(store, events("Reserved", "seat:1"), no_new(tagged("seat:1"), reading.head))

    def test_14_the_boundary_of_a_limited_read_is_the_last_event_that_it_delivered(self, store: Store) -> None:
        store.append(events("Reserved", "seat:1", count=5))
        reading = store.read(tagged("seat:1"), limit=2)
        delivered = positions(reading)
        assert reading.head == delivered[-1] < store.head()
        failed = condition_fails(store, events("Reserved", "seat:1"), no_new(tagged("seat:1"), reading.head))
        assert failed.conflict.position == positions(store.read(tagged("seat:1")))[2]

    def test_14_the_boundary_of_a_limited_read_that_reached_the_end_is_the_head(self, store: Store) -> None:
        store.append(events("Reserved", "seat:1", count=2))
        head = store.append(events("Other", count=2)).last
        reading = store.read(tagged("seat:1"), limit=3)
        assert len(list(reading)) == 2
        assert reading.head == head

    def test_14_the_boundary_of_a_backwards_read_is_the_head(self, store: Store) -> None:
        store.append(events("Reserved", "seat:1", count=5))
        head = store.append(events("Other")).last
        for limit in (None, 2, 100):
            reading = store.read(tagged("seat:1"), backwards=True, limit=limit)
            list(reading)
            assert reading.head == head
        placed = store.append(events("Reserved", "seat:1"), no_new(tagged("seat:1"), head))
        assert placed.first > head

    def test_14_the_boundary_of_a_bounded_read_is_its_bound(self, store: Store) -> None:
        store.append(events("Reserved", "seat:1", count=5))
        third = positions(store.read())[2]
        reading = store.read(tagged("seat:1"), up_to=third)
        assert len(list(reading)) == 3
        assert reading.head == third
        condition_fails(store, events("Reserved", "seat:1"), no_new(tagged("seat:1"), reading.head))

    def test_15_the_own_events_of_an_append_are_no_conflict(self, store: Store) -> None:
        placed = store.append(events("Reserved", "seat:1", count=3), no_new(tagged("seat:1")))
        assert len(positions(store.read(tagged("seat:1"), after=placed.first - 1))) == 3

    def test_15_a_second_append_of_one_decision_stands_on_the_first(self, store: Store) -> None:
        seen = store.read(tagged("seat:1")).head
        first = store.append(events("Reserved", "seat:1"), no_new(tagged("seat:1"), seen))
        second = store.append(events("Paid", "seat:1"), no_new(tagged("seat:1"), first.last))
        assert types(store.read(tagged("seat:1"))) == ["Reserved", "Paid"]
        assert second.first > first.last

    def test_16_when_the_acknowledgement_is_lost_a_retry_with_the_same_ids_finds_what_was_stored(
        self, store: Store
    ) -> None:
        engine, unlucky = self.faulty(store)
        engine.after = once(raising(StoreUnavailable("the connection broke")))
        reserving = [Event("Reserved", tags={"seat:1"}, id=uuid4()), Event("Paid", tags={"seat:1"}, id=uuid4())]
        condition = no_new(tagged("seat:1"))
        with pytest.raises(StoreUnavailable):
            unlucky.append(reserving, condition)
        placed = unlucky.append(reserving, condition)
        assert placed.already
        assert positions(store.read()) == [placed.first, placed.last]
        assert types(store.read()) == ["Reserved", "Paid"]

    def test_16_when_the_acknowledgement_is_lost_unless_keeps_a_retry_from_writing_twice(self, store: Store) -> None:
        engine, unlucky = self.faulty(store)
        engine.after = once(raising(StoreUnavailable("the connection broke")))
        reserving, condition = events("Reserved", "seat:1", "command:1"), no_new(tagged("seat:1"))
        with pytest.raises(StoreUnavailable):
            unlucky.append(reserving, condition, unless=tagged("command:1"))
        placed = unlucky.append(reserving, condition, unless=tagged("command:1"))
        assert placed.already
        assert positions(store.read()) == [placed.first]

    def test_17_a_storage_error_in_a_commit_is_that_error_and_nothing_is_stored(self, store: Store) -> None:
        engine, unlucky = self.faulty(store)
        engine.before = once(raising(StoreUnavailable("the disk is gone")))
        with pytest.raises(StoreUnavailable, match="the disk is gone"):
            unlucky.append(events("Reserved", "seat:1"), no_new(tagged("seat:1")))
        assert store.head() == 0
        placed = unlucky.append(events("Reserved", "seat:1"), no_new(tagged("seat:1")))
        assert positions(store.read()) == [placed.first]
