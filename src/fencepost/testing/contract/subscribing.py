"""Subscribing: the past, then everything new; until it is stopped, closed, or silent for too long."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from itertools import chain

import pytest

from ...errors import StoreClosed
from ...model import Event, Query, QueryItem, SequencedEvent
from ..faults import PATIENCE_S, once, raising
from ..stores import Store
from .base import Contract, Running, events, positions, tagged, take, together, typed, types


class Subscribing(Contract):
    def test_the_past_comes_first_then_what_is_new(self, store: Store) -> None:
        store.append(events("Past", count=3))
        subscription = store.subscribe(timeout_s=PATIENCE_S)
        past = take(subscription, 3)
        store.append(events("New", count=2))
        assert past + take(subscription, 2) == list(store.read())

    def test_what_comes_while_the_subscriber_waits_wakes_it(self, store: Store, again: Store) -> None:
        subscription = store.subscribe(typed("New"), timeout_s=PATIENCE_S)
        for writer in (store, again, store):
            waiting = Running(partial(take, subscription, 1))
            assert not waiting.ended(0.05)
            placed = writer.append(events("Other") + events("New"))
            assert positions(waiting.result()) == [placed.last]

    def test_only_what_comes_after_after_is_delivered(self, store: Store) -> None:
        seen = store.append(events("Past", count=3)).first
        subscription = store.subscribe(after=seen, timeout_s=0)
        assert positions(subscription) == positions(store.read(after=seen))

    def test_a_subscription_from_the_head_delivers_only_what_is_new(self, store: Store) -> None:
        head = store.append(events("Past", count=3)).last
        subscription = store.subscribe(after=head, timeout_s=PATIENCE_S)
        store.append(events("New", count=2))
        assert types(take(subscription, 2)) == ["New", "New"]

    def test_with_no_patience_at_all_the_past_is_delivered_whole(self, store: Store) -> None:
        store.append(events("Past", count=2_500))
        subscription = store.subscribe(timeout_s=0)
        assert len(list(subscription)) == 2_500

    def test_after_a_silence_the_iteration_ends_and_can_be_taken_up_again(self, store: Store) -> None:
        subscription = store.subscribe(timeout_s=0.02)
        assert list(subscription) == []
        received: list[SequencedEvent] = []
        for _ in range(3):
            store.append(events("New", count=2))
            while len(received) < len(list(store.read())):
                received += subscription
        assert received == list(store.read())

    def test_stopping_ends_the_iteration(self, store: Store) -> None:
        store.append(events("Past", count=3))
        subscription = store.subscribe()
        assert len(take(subscription, 1)) == 1
        subscription.stop()
        assert list(subscription) == []
        subscription.stop()
        assert list(subscription) == []

    def test_stopping_from_another_thread_ends_the_waiting(self, store: Store) -> None:
        store.append(events("Past"))
        for _ in range(10):
            subscription = store.subscribe()
            with Running(partial(take, subscription, 2)) as waiting:
                waiting.ended(0.002)
                subscription.stop()
            assert len(waiting.result()) <= 1

    def test_closing_the_store_ends_the_waiting(self, store: Store) -> None:
        store.append(events("Past"))
        subscription = store.subscribe()
        with Running(partial(take, subscription, 2)) as waiting:
            assert not waiting.ended(0.05)
            store.close()
        assert types(waiting.result()) == ["Past"]
        assert list(subscription) == []

    def test_closing_the_store_ends_a_subscription_that_never_began(self, store: Store) -> None:
        store.append(events("Past"))
        subscription = store.subscribe()
        store.close()
        assert list(subscription) == []

    def test_closing_the_store_ends_a_subscription_in_the_middle_of_the_past(self, store: Store) -> None:
        store.append(events("Past", count=3_000))
        subscription = store.subscribe()
        assert len(take(subscription, 5)) == 5
        store.close()
        assert list(subscription) == []

    def test_a_closed_store_takes_no_subscribers(self, store: Store) -> None:
        store.close()
        with pytest.raises(StoreClosed):
            store.subscribe()

    def test_the_position_is_what_was_handed_out(self, store: Store) -> None:
        store.append(events("Past", count=3))
        log = positions(store.read())
        subscription = store.subscribe(after=log[0], timeout_s=0)
        assert subscription.position == log[0]
        assert next(subscription).position == log[1] == subscription.position
        assert next(subscription).position == log[2] == subscription.position

    def test_a_subscription_from_the_position_of_another_goes_on_where_it_ended(self, store: Store) -> None:
        store.append(events("A") + events("B") + events("A"))
        received: list[SequencedEvent] = []
        position = 0
        for _ in range(4):
            subscription = store.subscribe(typed("A"), after=position, timeout_s=0)
            received += take(subscription, 1)
            position = subscription.position
            subscription.stop()
            store.append(events("B"))
        assert received == list(store.read(typed("A")))

    def test_the_position_of_a_silent_subscription_is_the_head(self, store: Store) -> None:
        head = store.append(events("Past", count=3)).last
        subscription = store.subscribe(typed("Never"), timeout_s=0)
        assert list(subscription) == []
        assert subscription.position == head

    def test_many_subscribers_with_different_queries_each_get_exactly_their_events(
        self, store: Store, again: Store
    ) -> None:
        queries = [
            *[tagged(f"tag:{number}") for number in range(5)],
            *[typed(f"Type{number}") for number in range(3)],
            *[tagged(f"tag:{number}", f"tag:{number + 1}") for number in range(4)],
            Query.of(types={"Type1", "Type2"}, tags={"tag:1"}),
            Query([QueryItem(types={"Type0"}, tags={"tag:0"}), QueryItem(tags={"tag:4"}), QueryItem(types={"Type2"})]),
            Query.all(),
            typed("End"),
        ]
        queries = [query | typed("End") for query in queries]
        subscriptions = [store.subscribe(query, timeout_s=PATIENCE_S) for query in queries]
        following = [Running(partial(_until_the_end, subscription)) for subscription in subscriptions]

        def write(handle: Store, seed: int) -> None:
            for n in range(seed, seed + 40):
                tags = {f"tag:{n % 5}", f"tag:{n * n % 5}", f"tag:{(n + 1) % 5}"}
                handle.append([Event(f"Type{n % 3}", tags=tags)])

        together(partial(write, store, 0), partial(write, again, 100))
        store.append(events("End"))
        for query, subscription, running in zip(queries, subscriptions, following, strict=True):
            assert running.result() == list(store.read(query))
            subscription.stop()

    def test_a_subscriber_that_stops_does_not_disturb_the_others(self, store: Store) -> None:
        one, two = (store.subscribe(timeout_s=PATIENCE_S) for _ in range(2))
        store.append(events("A"))
        assert types(chain(take(one, 1), take(two, 1))) == ["A", "A"]
        one.stop()
        store.append(events("B"))
        assert types(take(two, 1)) == ["B"]

    def test_a_subscriber_may_come_when_the_last_one_has_just_gone(self, store: Store) -> None:
        for number in range(20):
            store.append(events("A"))
            subscription = store.subscribe(timeout_s=PATIENCE_S)
            assert len(take(subscription, number + 1)) == number + 1
            subscription.stop()

    def test_a_storage_error_reaches_the_subscriber_and_the_next_try_goes_on(self, store: Store) -> None:
        store.append(events("Past", count=2))
        engine, unlucky = self.faulty(store)
        subscription = unlucky.subscribe(timeout_s=PATIENCE_S)
        assert len(take(subscription, 2)) == 2
        engine.before_scan = once(raising(OSError("the disk is gone")))
        store.append(events("New", count=2))
        with pytest.raises(OSError, match="the disk is gone"):
            take(subscription, 2)
        assert types(take(subscription, 2)) == ["New", "New"]
        subscription.stop()


def _until_the_end(subscription: Iterable[SequencedEvent]) -> list[SequencedEvent]:
    received: list[SequencedEvent] = []
    for event in subscription:
        received.append(event)
        if event.type == "End":
            break
    return received
