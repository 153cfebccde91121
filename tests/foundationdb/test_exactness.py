"""Transactions conflict exactly when the kernel says so, and verdicts are exact in every case."""

from __future__ import annotations

import random

import pytest
from tests.support.simulated_fdb import SimulatedCluster
from tests.support.thorough import times

from fencepost import AppendCondition, ConditionFailed, Event, EventStore, Query
from fencepost.buckets import matches
from fencepost.engines.foundationdb.layout import SUBSET_TAGS
from fencepost.testing.faults import once

from .clusters import engine_on
from .workload import random_event, random_query

PAIRS = times(500, thorough=3_000)


def race(decided: Event, query: Query, rival: Event) -> tuple[int, bool]:
    """Append under a condition while a rival commits between check and commit.

    How many conflicts the database saw, and whether the append was stored.
    """
    cluster = SimulatedCluster(1)
    store = EventStore(engine_on(cluster))

    def overtake() -> None:
        store.append([rival])

    at_commit = once(overtake)
    cluster.on_step = lambda step: at_commit() if step == "commit" else None
    conflict: Event | None = None
    try:
        store.append([decided], AppendCondition(query))
    except ConditionFailed as failed:
        conflict = failed.conflict.event
    assert conflict in (None, rival)
    return cluster.conflicts, conflict is None


def test_two_transactions_conflict_iff_the_kernel_says_so() -> None:
    chance = random.Random(1)
    met = 0
    for _ in range(PAIRS):
        decided, rival = random_event(chance), random_event(chance)
        query = random_query(chance, most_tags=SUBSET_TAGS)
        conflicts, stored = race(decided, query, rival)
        expected = matches(rival, query)
        assert conflicts == expected, (query, rival)
        assert stored is not expected
        met += expected
    assert PAIRS // 5 < met < PAIRS * 4 // 5, "both cases occurred often"


def test_an_item_of_many_tags_costs_at_worst_one_more_try_and_the_verdict_stays_exact() -> None:
    chance = random.Random(2)
    spurious = 0
    for _ in range(PAIRS):
        decided, rival = random_event(chance), random_event(chance)
        query = random_query(chance, most_tags=3)
        conflicts, stored = race(decided, query, rival)
        expected = matches(rival, query)
        assert stored is not expected, (query, rival)
        assert conflicts >= expected
        assert conflicts <= 1
        spurious += conflicts > expected
    assert spurious > 0, "the cap was met"


@pytest.mark.parametrize("tags", [0, 1, 2, 3, 5, 10, 20])
def test_events_of_many_tags_conflict_with_every_item_that_they_match(tags: int) -> None:
    all_tags = [f"tag:{number:02}" for number in range(tags)]
    rival = Event("A", tags=all_tags)
    for size in {0, 1, tags // 2, tags} & set(range(tags + 1)):
        for types in (set(), {"A"}):
            query = Query.of(types=types, tags=random.Random(size).sample(all_tags, size))
            assert race(Event("B"), query, rival) == (1, False)


def test_a_blind_append_never_conflicts() -> None:
    cluster = SimulatedCluster(1)
    store = EventStore(engine_on(cluster))
    rival = once(lambda: store.append([Event("A", tags={"x"})]) and None)
    cluster.on_step = lambda step: rival() if step == "commit" else None
    store.append([Event("A", tags={"x"})])
    assert cluster.conflicts == 0
    assert len(list(store.read())) == 2
