"""Subscriptions: the transition from the log to the follower, full buffers, stops and errors.

Every race here is forced: the engine is a memory engine that lets something happen in the middle of a scan or a wait.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from time import monotonic, sleep

import pytest

import fencepost.aio
from fencepost import Event, EventStore, Query, SequencedEvent, StoreClosed
from fencepost.core import subscriptions as module
from fencepost.core.subscriptions import BUFFER_EVENTS, Feed
from fencepost.engines.memory import MemoryEngine
from fencepost.testing.contract.base import Running, events, positions, tagged, take, types
from fencepost.testing.faults import PATIENCE_S, Gate, once


class Interrupted(MemoryEngine):
    """A memory engine in which something happens between two pages, or before a scan or a wait."""

    def __init__(self) -> None:
        super().__init__()
        self.before_scan: Callable[[Query], None] = lambda query: None
        self.after_page: Callable[[Query], None] = lambda query: None
        self.before_head: Callable[[], None] = lambda: None

    def scan(
        self, query: Query, *, after: int, up_to: int, limit: int | None = None, backwards: bool = False
    ) -> Iterator[Sequence[SequencedEvent]]:
        self.before_scan(query)
        for page in super().scan(query, after=after, up_to=up_to, limit=limit, backwards=backwards):
            yield page
            self.after_page(query)

    def head(self) -> int:
        self.before_head()
        return super().head()


@pytest.fixture
def engine() -> Interrupted:
    return Interrupted()


@pytest.fixture
def store(engine: Interrupted) -> Iterator[EventStore]:
    with EventStore(engine) as store:
        yield store


X = tagged("x")


def test_what_is_stored_while_a_feed_catches_up_comes_once(engine: Interrupted, store: EventStore) -> None:
    store.append(events("Past", "x", count=3))
    engine.after_page = once_for(X, lambda: store.append(events("Meanwhile", "x", count=2)))
    subscription = store.subscribe(X, timeout_s=PATIENCE_S)
    received = take(subscription, 5)
    assert received == list(store.read(X))
    subscription.stop()


def test_what_is_stored_between_joining_and_the_last_catch_up_comes_once(
    engine: Interrupted, store: EventStore
) -> None:
    store.append(events("Past", "x", count=3))
    engine.before_scan = once_for(X, lambda: store.append(events("Meanwhile", "x", count=2)))
    subscription = store.subscribe(X, timeout_s=PATIENCE_S)
    assert take(subscription, 5) == list(store.read(X))
    store.append(events("Live", "x"))
    assert types(take(subscription, 1)) == ["Live"]
    subscription.stop()


def test_what_comes_both_from_the_log_and_from_the_follower_is_delivered_once(
    engine: Interrupted, store: EventStore
) -> None:
    other = store.subscribe(timeout_s=0)
    assert list(other) == []
    subscription = store.subscribe(X, timeout_s=PATIENCE_S)

    def store_and_deliver() -> None:
        store.append(events("Both", "x", count=3))
        while len(subscription._feed._fresh) < 3:
            sleep(0.001)

    # When the feed asks for the head, it has joined, and the follower may already have delivered events to it.
    engine.before_head = once(store_and_deliver)
    received = take(subscription, 3)
    store.append(events("Live", "x"))
    assert received + take(subscription, 1) == list(store.read(X))
    subscription.stop()
    other.stop()


def test_what_is_stored_is_past_although_the_follower_has_not_come_so_far(
    engine: Interrupted, store: EventStore
) -> None:
    other = store.subscribe(timeout_s=0)
    assert list(other) == []
    gate = Gate()
    engine.before_scan = once_for(Query.all(), gate)
    store.append(events("Past", "x", count=3))
    gate.wait_until_reached()
    impatient = store.subscribe(X, timeout_s=0)
    assert types(impatient) == ["Past"] * 3
    gate.open()
    impatient.stop()
    other.stop()


def test_every_event_above_the_position_at_which_a_feed_joined_reaches_it(
    engine: Interrupted, store: EventStore
) -> None:
    """The last subscriber leaves in front of a page, and a feed joins behind it, before the next."""
    first = store.subscribe(timeout_s=PATIENCE_S)
    store.append(events("Past"))
    assert len(take(first, 1)) == 1
    feed = Feed(engine, store._follower, X, 0, lambda: None)
    offered: list[int] = []
    feed.offer = lambda event: offered.append(event.position) or True  # type: ignore[method-assign,func-returns-value]
    joined: list[int] = []
    acts = iter([first.stop, lambda: joined.append(store._follower.join(feed))])
    engine.after_page = lambda query: next(acts, lambda: None)()
    head = store.append(events("New", "x", count=4_000)).last
    while not joined or store._follower.position < head:
        sleep(0.001)
    assert offered == positions(store.read(X, after=joined[0]))
    store._follower.leave(feed)


@pytest.mark.parametrize("excess", [-1, 0, 1, BUFFER_EVENTS])
def test_a_buffer_that_runs_over_is_made_up_from_the_log(store: EventStore, excess: int) -> None:
    subscription = store.subscribe(X, timeout_s=PATIENCE_S)
    store.append(events("Past", "x"))
    received = take(subscription, 1)
    for _ in range(2):
        store.append(events("Live", "x", count=BUFFER_EVENTS + excess))
        store.append(events("Other", count=10))
        received += take(subscription, BUFFER_EVENTS + excess)
    assert received == list(store.read(X))
    subscription.stop()


def test_a_consumer_that_is_left_behind_holds_no_more_than_its_buffer(store: EventStore) -> None:
    subscription = store.subscribe(X, timeout_s=PATIENCE_S)
    other = store.subscribe(X, timeout_s=PATIENCE_S)
    store.append(events("Past", "x"))
    assert len(take(subscription, 1)) == len(take(other, 1)) == 1
    store.append(events("Live", "x", count=5 * BUFFER_EVENTS))
    assert len(take(other, 5 * BUFFER_EVENTS)) == 5 * BUFFER_EVENTS
    assert len(subscription._feed._fresh) <= BUFFER_EVENTS
    assert len(take(subscription, 5 * BUFFER_EVENTS)) == 5 * BUFFER_EVENTS
    subscription.stop()
    other.stop()


def test_a_stop_in_the_very_moment_before_the_waiting_is_not_overlooked(store: EventStore) -> None:
    subscription = store.subscribe(X, timeout_s=0)
    assert list(subscription) == []
    assert subscription._feed.live
    subscription._timeout_s = None

    class Stopping(threading.Event):
        def clear(self) -> None:
            subscription.stop()  # as another thread would, between the look at `stopped` and the clearing
            super().clear()

    ready = Stopping()
    subscription._ready = ready
    subscription._feed._on_ready = ready.set
    waiting = Running(partial(take, subscription, 1))
    assert waiting.result() == []


def test_an_event_in_the_very_moment_before_the_waiting_is_not_overlooked(store: EventStore) -> None:
    subscription = store.subscribe(X, timeout_s=PATIENCE_S)
    store.append(events("Past", "x"))
    assert len(take(subscription, 1)) == 1
    arrived = threading.Event()
    offer = subscription._feed.offer

    def noticed(event: SequencedEvent) -> bool:
        served = offer(event)
        arrived.set()
        return served

    subscription._feed.offer = noticed  # type: ignore[method-assign]

    class Late(threading.Event):
        def clear(self) -> None:
            if not arrived.is_set():
                store.append(events("Live", "x"))
                assert arrived.wait(PATIENCE_S)
            super().clear()

    ready = Late()
    subscription._ready = ready
    subscription._feed._on_ready = ready.set
    assert types(take(subscription, 1)) == ["Live"]
    subscription.stop()


def test_an_error_of_the_follower_reaches_every_subscriber_and_each_goes_on(
    engine: Interrupted, store: EventStore
) -> None:
    subscriptions = [store.subscribe(X, timeout_s=PATIENCE_S), store.subscribe(timeout_s=PATIENCE_S)]
    store.append(events("Past", "x"))
    for subscription in subscriptions:
        assert len(take(subscription, 1)) == 1
    engine.before_scan = once_for(Query.all(), raise_os_error)
    store.append(events("Live", "x"))
    for subscription in subscriptions:
        with pytest.raises(OSError, match="gone"):
            take(subscription, 1)
        assert types(take(subscription, 1)) == ["Live"]
        subscription.stop()


def test_an_error_of_the_past_reaches_the_subscriber_and_the_next_try_goes_on(
    engine: Interrupted, store: EventStore
) -> None:
    store.append(events("Past", "x", count=3))
    engine.before_scan = once_for(X, raise_os_error)
    subscription = store.subscribe(X, timeout_s=PATIENCE_S)
    with pytest.raises(OSError, match="gone"):
        next(subscription)
    assert positions(take(subscription, 3)) == positions(store.read(X))
    subscription.stop()


def test_closing_in_the_middle_of_a_page_of_the_past_ends_the_subscription(
    engine: Interrupted, store: EventStore
) -> None:
    store.append(events("Past", "x", count=3_000))

    def closed() -> None:
        raise StoreClosed("the store is closed")

    engine.before_scan = once_for(X, closed)
    assert list(store.subscribe(X)) == []


def test_closing_waits_for_the_follower_to_end(engine: Interrupted, store: EventStore) -> None:
    subscription = store.subscribe(X)
    store.append(events("Past", "x"))
    assert len(take(subscription, 1)) == 1
    store.close()
    assert not any(thread.name == "fencepost-follower" and is_of(thread, store) for thread in threading.enumerate())


def test_the_follower_ends_with_the_last_subscription(store: EventStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WAIT_S", 0.01)
    subscription = store.subscribe(X)
    store.append(events("Past", "x"))
    assert len(take(subscription, 1)) == 1
    thread = store._follower._thread
    assert thread is not None
    subscription.stop()
    thread.join(PATIENCE_S)
    assert not thread.is_alive()
    again = store.subscribe(X, timeout_s=PATIENCE_S)
    store.append(events("Live", "x"))
    assert types(take(again, 2)) == ["Past", "Live"]
    again.stop()


def test_each_new_event_is_read_once_however_many_subscribe(engine: Interrupted, store: EventStore) -> None:
    subscriptions = [store.subscribe(tagged(f"tag:{number}"), timeout_s=PATIENCE_S) for number in range(50)]
    for subscription in subscriptions:
        subscription._timeout_s = 0
        assert list(subscription) == []
    scanned: list[Query] = []
    engine.before_scan = scanned.append
    store.append([Event("Live", tags={f"tag:{number}" for number in range(20)})])
    for subscription in subscriptions[:20]:
        subscription._timeout_s = PATIENCE_S
        assert len(take(subscription, 1)) == 1
    assert scanned == [Query.all()]
    for subscription in subscriptions:
        subscription.stop()


def test_a_subscription_stops_at_the_end_of_its_with_block(store: EventStore) -> None:
    store.append(events("Past", "x", count=2))
    with store.subscribe(X) as subscription:
        assert len(take(subscription, 1)) == 1
    assert list(subscription) == []


def test_a_subscriber_that_waits_is_not_woken_by_what_it_did_not_ask_for(store: EventStore) -> None:
    gate = Gate()
    subscription = store.subscribe(X, timeout_s=PATIENCE_S)
    store.append(events("Past", "x"))
    assert len(take(subscription, 1)) == 1
    subscription._feed._on_ready = gate
    other = store.subscribe(timeout_s=PATIENCE_S)
    store.append(events("Other", count=5))
    assert len(take(other, 6)) == 6
    assert not gate._reached.is_set()
    gate.open()
    subscription.stop()
    other.stop()


def once_for(query: Query, action: Callable[[], object]) -> Callable[[Query], None]:
    """The action at the first scan for that query."""
    act = once(lambda: (action(), None)[1])

    def acted(scanned: Query) -> None:
        if scanned == query:
            act()

    return acted


def raise_os_error() -> None:
    raise OSError("the disk is gone")


def is_of(thread: threading.Thread, store: EventStore) -> bool:
    return thread is store._follower._thread


def test_a_subscription_that_is_dropped_without_stopping_is_forgotten(store: EventStore) -> None:
    store.append(events("Past"))
    for _ in store.subscribe(timeout_s=PATIENCE_S):
        break
    assert until(lambda: store._follower._feeds == set() and store._follower._thread is None)


async def test_so_is_one_of_a_task() -> None:
    async with fencepost.aio.open("memory:") as store:
        await store.append(events("Past"))
        async for _ in store.subscribe(timeout_s=PATIENCE_S):
            break
        follower = store.blocking._follower
        assert await asyncio.to_thread(until, lambda: follower._feeds == set() and follower._thread is None)


def until(holds: Callable[[], bool]) -> bool:
    deadline = monotonic() + PATIENCE_S
    while not holds() and monotonic() < deadline:
        sleep(0.01)
    return holds()
