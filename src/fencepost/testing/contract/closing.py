"""Closing, and what outlives it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from uuid import uuid4

import pytest

from ...errors import StoreClosed
from ...model import Event, Placed, Put
from ..stores import Store
from .base import Contract, condition_fails, contents, events, no_new, positions, tagged, take, together

VERBS: dict[str, Callable[[Store], object]] = {
    "append": lambda store: store.append(events("A")),
    "read": lambda store: store.read(),
    "head": lambda store: store.head(),
    "subscribe": lambda store: store.subscribe(),
    "checkpoint": lambda store: store.checkpoint("name"),
    "records.get": lambda store: store.records.get("name"),
    "records.list": lambda store: list(store.records.list()),
    "records.put": lambda store: store.records.put("name", b"", expected=0),
}


class Closing(Contract):
    @pytest.mark.parametrize("verb", VERBS)
    def test_a_closed_store_says_so_to(self, store: Store, verb: str) -> None:
        store.append(events("A"))
        store.close()
        with pytest.raises(StoreClosed):
            VERBS[verb](store)

    def test_closing_twice_does_no_harm(self, store: Store) -> None:
        store.close()
        store.close()

    def test_a_reading_that_the_closing_cut_short_is_never_taken_for_a_whole_one(self, store: Store) -> None:
        store.append(events("A", count=3_000))
        reading = store.read()
        read = take(reading, 1)
        store.close()
        try:
            read += list(reading)
        except StoreClosed:
            return
        assert len(read) == 3_000


class Durability(Contract):
    """For stores that outlive their handles: `open_again` must give another one."""

    def test_what_was_acknowledged_is_there_when_the_store_is_opened_again(self, store: Store) -> None:
        given = [
            Event("Full", data=bytes(range(256)), tags={"x", "y"}, id=uuid4(), metadata={"by": "Ada"}),
            *events("Plain", "y", count=50),
        ]
        store.append(given[:1])
        placed = store.append(given[1:], checkpoint=("name", 7), records=[Put("name", b"value", 0)])
        record = store.records.get("name")
        log = list(store.read())
        store.close()
        with closing(self.open_again()) as reopened:
            assert reopened.head() == placed.last
            assert list(reopened.read()) == log
            assert contents(reopened.read(tagged("x"))) == given[:1]
            assert contents(reopened.read(tagged("y"))) == given
            assert reopened.checkpoint("name") == 7
            assert reopened.records.get("name") == record is not None

    def test_what_was_stored_before_opening_is_a_conflict_as_ever(self, store: Store) -> None:
        retried = [Event("Reserved", tags={"seat:1"}, id=uuid4())]
        placed = store.append(retried)
        store.close()
        with closing(self.open_again()) as reopened:
            failed = condition_fails(reopened, events("Reserved", "seat:1"), no_new(tagged("seat:1")))
            assert failed.conflict.position == placed.first
            again = Placed(placed.first, placed.first, already=True)
            assert reopened.append(retried) == again
            assert reopened.append(events("Reserved"), unless=tagged("seat:1")) == again
            assert (
                reopened.append(events("Reserved", "seat:1"), no_new(tagged("seat:1"), placed.last)).first > placed.last
            )

    def test_positions_go_on_where_they_ended(self, store: Store) -> None:
        head = store.append(events("A", count=3)).last
        store.close()
        with closing(self.open_again()) as reopened:
            placed = reopened.append(events("A"))
            assert placed.first > head
            if self.gapless:
                assert placed.first == head + 1

    def test_many_may_open_and_close_the_store_at_once(self, store: Store) -> None:
        store.close()

        def come_and_go() -> list[int]:
            placed = []
            for _ in range(10):
                with closing(self.open_again()) as reopened:
                    placed.append(reopened.append(events("A")).first)
            return placed

        placed = together(*[come_and_go] * 4)
        with closing(self.open_again()) as reopened:
            assert positions(reopened.read()) == sorted(one for of_thread in placed for one in of_thread)

    def test_closing_one_handle_leaves_the_others_open(self, store: Store, again: Store) -> None:
        store.append(events("A"))
        again.close()
        assert store.append(events("A")).first == store.head()
        assert len(list(store.read())) == 2

    def test_two_handles_that_write_in_turns_see_each_other(self, store: Store, again: Store) -> None:
        seen = 0
        for turn in range(20):
            writer, other = (store, again) if turn % 2 else (again, store)
            placed = writer.append(events("A", "tag"), no_new(tagged("tag"), seen))
            failed = condition_fails(other, events("A", "tag"), no_new(tagged("tag"), seen))
            assert failed.conflict.position == placed.first
            seen = placed.last
        assert list(store.read()) == list(again.read())
