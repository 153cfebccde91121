"""Order and delivery: every reader and subscriber of a store gets every event, in order, once."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest

from ...model import Query, SequencedEvent
from ..faults import PATIENCE_S
from ..stores import Store
from .base import Contract, Running, contents, events, positions, tagged, take, together, typed

WRITERS = 4
APPENDS = 25  # of each writer
SIZES = [999, 1_000, 1_001, 1_023, 1_024, 1_025, 4_095, 4_096, 4_097]  # around the page sizes in use


class Delivery(Contract):
    def test_18_a_reader_that_goes_on_from_the_head_it_saw_misses_nothing(self, store: Store, again: Store) -> None:
        seen: list[SequencedEvent] = []

        def read_on() -> None:
            head = 0
            while len(seen) < WRITERS * APPENDS:
                reading = again.read(after=head)
                seen.extend(reading)
                assert reading.head >= head
                head = reading.head

        with Running(read_on):
            self._write(store, again)
        assert positions(seen) == sorted(set(positions(seen)))
        assert seen == list(store.read())

    def test_18_a_subscriber_sees_every_position_once_and_in_order(self, store: Store, again: Store) -> None:
        followers = [handle.subscribe(timeout_s=PATIENCE_S) for handle in (store, again)]
        following = [Running(partial(take, follower, WRITERS * APPENDS)) for follower in followers]
        self._write(store, again)
        log = list(store.read())
        for follower, running in zip(followers, following, strict=True):
            assert running.result() == log
            follower.stop()

    def test_18_what_was_readable_stays_as_it_was(self, store: Store, again: Store) -> None:
        snapshots: list[list[SequencedEvent]] = []

        def look() -> None:
            while not snapshots or len(snapshots[-1]) < WRITERS * APPENDS:
                snapshots.append(list(again.read()))

        with Running(look):
            self._write(store, again)
        log = list(store.read())
        assert all(snapshot == log[: len(snapshot)] for snapshot in snapshots)

    def test_18_no_reader_sees_a_part_of_an_append(self, store: Store, again: Store) -> None:
        lengths: list[int] = []

        def look() -> None:
            while not lengths or lengths[-1] < 60:
                lengths.append(len(list(again.read())))

        with Running(look):
            for _ in range(20):
                store.append(events("Happened", count=3))
        assert all(length % 3 == 0 for length in lengths)

    def test_19_a_subscriber_survives_a_long_open_transaction(self, store: Store, again: Store) -> None:
        store.append(events("Before", count=3))
        subscription = again.subscribe(timeout_s=PATIENCE_S)
        with self.older_transaction():
            store.append(events("During", count=3))
            during = take(subscription, 6)
            store.append(events("During", count=3))
            again.append(events("During", count=3))
        store.append(events("After", count=3))
        assert during + take(subscription, 9) == list(store.read())

    def test_20_a_reading_of_thousands_is_the_state_at_its_beginning_however_slow(
        self, store: Store, again: Store
    ) -> None:
        store.append(events("Past", "tag", count=4_200))
        reading = store.read(tagged("tag"))
        read = take(reading, 1_000)
        again.append(events("Later", "tag", count=100))
        read += take(reading, 1_500)
        again.append(events("Later", "tag", count=100))
        read += list(reading)
        assert contents(read) == events("Past", "tag", count=4_200)
        assert read == list(store.read(tagged("tag"), up_to=reading.head))

    def test_20_readings_are_whole_at_every_page_size(self, store: Store) -> None:
        store.append(events("Even", "half", count=4_100))
        store.append(events("Odd", count=4_100))
        log = list(store.read())
        assert len(log) == 8_200
        for size in SIZES:
            bound = log[size - 1].position
            for query in (Query.all(), tagged("half"), typed("Even")):
                assert list(store.read(query, up_to=bound)) == log[:size]
                assert list(store.read(query, limit=size)) == log[:size]
                assert list(store.read(query, up_to=bound, backwards=True)) == log[:size][::-1]

    def test_20_a_subscriber_that_starts_thousands_behind_gets_them_all(self, store: Store) -> None:
        store.append(events("Past", "tag", count=4_200))
        subscription = store.subscribe(tagged("tag"), timeout_s=PATIENCE_S)
        past = take(subscription, 4_200)
        store.append(events("Live", "tag", count=3))
        assert past + take(subscription, 3) == list(store.read())

    @pytest.mark.parametrize("size", [1_023, 1_024, 1_025, 4_200])
    def test_20_a_subscriber_slower_than_the_writers_loses_nothing(self, store: Store, size: int) -> None:
        store.append(events("First", "tag"))
        subscription = store.subscribe(tagged("tag"), timeout_s=PATIENCE_S)
        live = self._made_live(store, subscription)
        for start in range(0, size, 700):  # it takes nothing meanwhile: its buffer fills and runs over
            store.append(events("Live", "tag", count=min(700, size - start)))
        received = live + take(subscription, size)
        store.append(events("Last", "tag", count=2))
        assert received + take(subscription, 2) == list(store.read())

    def test_20_a_slow_subscriber_gets_everything_while_others_go_on_writing(self, store: Store, again: Store) -> None:
        subscription = store.subscribe(tagged("tag"), timeout_s=PATIENCE_S)
        received: list[SequencedEvent] = []

        def write(handle: Store) -> None:
            for _ in range(6):
                handle.append(events("Live", "tag", count=400))
                handle.append(events("Other", count=10))

        writing = [Running(partial(write, handle)) for handle in (store, again)]
        while len(received) < 2 * 6 * 400:
            more = take(subscription, min(37, 2 * 6 * 400 - len(received)))
            assert more, "the subscription ended before all events had come"
            received += more
        for running in writing:
            running.result()
        assert received == list(store.read(tagged("tag")))

    def test_21_a_filter_that_matches_almost_nothing_moves_on_all_the_same(self, store: Store) -> None:
        needle = store.append(events("Rare", "needle")).first
        subscription = store.subscribe(tagged("needle"), timeout_s=PATIENCE_S)
        assert positions(take(subscription, 1)) == [needle]
        for _ in range(5):
            store.append(events("Common", "hay", count=2_000))
        head = store.head()
        quiet = store.subscribe(tagged("needle"), after=needle, timeout_s=0.05)
        assert list(quiet) == []
        assert quiet.position == head
        last = store.append(events("Rare", "needle")).first
        assert positions(take(subscription, 1)) == [last]
        assert positions(take(quiet, 1)) == [last]
        reading = store.read(tagged("needle"), after=needle, up_to=head)
        assert (list(reading), reading.head) == ([], head)

    def test_21_the_position_of_a_live_subscriber_moves_on_although_nothing_matches(self, store: Store) -> None:
        store.append(events("Rare", "needle"))
        subscription = store.subscribe(tagged("needle"), timeout_s=0.05)
        assert len(list(subscription)) == 1
        head = store.append(events("Common", "hay", count=50)).last
        while subscription.position < head:  # the follower needs a moment; if it never moves on, the suite hangs here
            assert list(subscription) == []
        assert subscription.position == head

    def _write(self, *handles: Store) -> None:
        def write(handle: Store, writer: int) -> None:
            for number in range(APPENDS):
                handle.append(events("Happened", f"writer:{writer}", f"number:{number}"))

        together(*[partial(write, handles[writer % len(handles)], writer) for writer in range(WRITERS)])

    def _made_live(self, store: Store, subscription: Iterator[SequencedEvent]) -> list[SequencedEvent]:
        """Take what is there, and one more that comes while the subscription waits for it."""
        past = take(subscription, 1)
        with Running(partial(store.append, events("Live", "tag"))):
            return past + take(subscription, 1)
