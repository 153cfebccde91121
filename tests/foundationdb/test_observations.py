"""Observers are notified of tries, error codes, tokens found, pages judged, latencies, watches that fell back."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest
from tests.support.simulated_fdb import Fate, Fault, SimulatedCluster

from fencepost import AppendCondition, ConditionFailed, Event, EventStore, Query, StoreUnavailable
from fencepost.core.observers import Observation, observe
from fencepost.engine import engine_of
from fencepost.engines.foundationdb.observations import AppendTried, TryFailed, WatchFellBack

from .clusters import engine_on

QUERY = Query.of(tags={"x"})


@pytest.fixture
def cluster() -> SimulatedCluster:
    return SimulatedCluster(1, late=0.0)


@pytest.fixture
def store(cluster: SimulatedCluster) -> EventStore:
    return EventStore(engine_on(cluster))


def wait_until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.001)


def test_an_append_tells_its_tries_and_codes_and_pages(cluster: SimulatedCluster, store: EventStore) -> None:
    told: list[Observation] = []
    cluster.faults.script("commit", Fault(1020), Fault(1021, Fate.STORED))
    with observe(told.append, of=engine_of(store)):
        store.append([Event("A", tags={"x"})], AppendCondition(QUERY))
        with pytest.raises(ConditionFailed):
            store.append([Event("A")], AppendCondition(QUERY))
    failed = [each for each in told if isinstance(each, TryFailed)]
    assert [(each.code, each.number) for each in failed] == [(1020, 0), (1021, 1)]
    stored, refused = (each for each in told if isinstance(each, AppendTried))
    assert (stored.outcome, stored.codes, stored.token_found) == ("stored", (1020, 1021), True)
    assert stored.pages_judged == 2, "one in each try that judged"
    assert stored.judged_s > 0
    assert stored.commit_s > 0
    assert (refused.outcome, refused.codes, refused.commit_s) == ("refused", (), 0)


def test_an_append_that_fails_tells_so(cluster: SimulatedCluster, store: EventStore) -> None:
    told: list[Observation] = []
    cluster.faults.script("commit", *[Fault(1031)] * 3)
    with observe(told.append, of=engine_of(store)), pytest.raises(StoreUnavailable):
        store.append([Event("A")])
    [append] = [each for each in told if isinstance(each, AppendTried)]
    assert (append.outcome, append.codes) == ("failed", (1031, 1031, 1031))


def test_a_failed_read_is_told(cluster: SimulatedCluster, store: EventStore) -> None:
    told: list[Observation] = []
    cluster.faults.script("read", Fault(1009))
    with observe(told.append, of=engine_of(store)):
        store.head()
    assert told == [TryFailed(1009, 0)]


def test_too_many_watches_are_told_and_the_subscription_goes_on(cluster: SimulatedCluster, store: EventStore) -> None:
    told: list[Observation] = []
    for _ in range(10_000):
        tr = cluster.open().create_transaction()
        tr.watch(b"other")
        tr.commit().wait()
    engine = engine_of(store)
    heads: list[int] = []
    with observe(told.append, of=engine):
        waiting = threading.Thread(target=lambda: heads.append(engine.wait(0, 60)))
        waiting.start()
        wait_until(lambda: bool(told))
        tries = cluster.reads
        wait_until(lambda: cluster.reads > tries + 40)  # two more rounds at least, of 16 heads each
        placed = store.append([Event("A")])
        waiting.join(60)
    assert told.count(WatchFellBack(1032)) == 1, "told once, not for each watch and round"
    assert heads == [placed.last]
    assert cluster.watches == 10_000, "none of the wait's own watches is left"


def test_a_watch_that_fails_is_told(cluster: SimulatedCluster, store: EventStore) -> None:
    told: list[Observation] = []
    engine = engine_of(store)
    with observe(told.append, of=engine):
        waiting = threading.Thread(target=lambda: engine.wait(0, 60))
        waiting.start()
        wait_until(lambda: cluster.watches == 16)
        cluster.disturb_watches(1029)
        store.append([Event("A")])
        waiting.join(60)
    assert told.count(WatchFellBack(1029)) == 1
