"""Appends under contention: the rarest pair of tags is read, and the error says that it is contention."""

from __future__ import annotations

import pytest
from tests.support.simulated_fdb import Fault, SimulatedCluster

from fencepost import AppendCondition, Event, EventStore, Query, StoreUnavailable
from fencepost.testing.faults import once

from .clusters import engine_on

ORDER = Query.of(tags={"day:1", "shop:1", "zip:order"})


def overtaken(cluster: SimulatedCluster, rivals: list[Event], most: int, past: list[Event]) -> EventStore:
    """A store whose commits, up to `most` of them, are each overtaken by an append of each rival.

    Each event of the `past` was appended twenty times before.
    """
    store = EventStore(engine_on(cluster))
    rival = EventStore(engine_on(cluster))
    left = [most]
    inside = [False]

    def overtake(step: str) -> None:
        if step == "commit" and left[0] > 0 and not inside[0]:
            left[0] -= 1
            inside[0] = True
            for event in rivals:
                rival.append([event])
            inside[0] = False

    for event in past * 20:
        rival.append([event])
    cluster.on_step = overtake
    return store


def test_rivals_that_share_two_frequent_tags_cost_no_try() -> None:
    """By the alphabet, the frequent pair would be read: each of the rivals would be a conflict."""
    cluster = SimulatedCluster(1)
    rivals = [Event("A", tags={"day:1", "shop:1"})]
    store = overtaken(cluster, rivals, most=50, past=rivals)
    store.append([Event("Mine")], AppendCondition(ORDER))
    assert cluster.conflicts == 0


@pytest.mark.parametrize("frequent", sorted(ORDER.items[0].tags))
def test_rivals_that_share_the_rarest_pair_cost_one_more_try(frequent: str) -> None:
    """What was rare in the past has become frequent. The next try reads another pair."""
    cluster = SimulatedCluster(1)
    rivals = [Event("A", tags=ORDER.items[0].tags - {frequent})]
    store = overtaken(cluster, rivals, most=50, past=[Event("A", tags={frequent})])
    store.append([Event("Mine")], AppendCondition(ORDER))
    assert cluster.conflicts == 1


def test_rivals_of_every_pair_are_got_past_once_they_pause() -> None:
    cluster = SimulatedCluster(1)
    rivals = [Event("A", tags=ORDER.items[0].tags - {tag}) for tag in ORDER.items[0].tags]
    store = overtaken(cluster, rivals, most=7, past=rivals)
    store.append([Event("Mine")], AppendCondition(ORDER))
    assert cluster.conflicts == 7


def test_an_event_that_matches_is_found_whichever_pair_is_read() -> None:
    for _ in range(3):
        cluster = SimulatedCluster(1)
        store = EventStore(engine_on(cluster))
        rival = once(lambda: EventStore(engine_on(cluster)).append([Event("A", tags=ORDER.items[0].tags)]) and None)  # noqa: B023
        cluster.on_step = lambda step: rival() if step == "commit" else None  # noqa: B023
        with pytest.raises(Exception, match="condition failed"):
            store.append([Event("Mine")], AppendCondition(ORDER))


def test_contention_is_reported_as_contention() -> None:
    cluster = SimulatedCluster(1)
    store = EventStore(engine_on(cluster))
    cluster.faults.script("commit", *[Fault(1020)] * 10_000)
    with pytest.raises(StoreUnavailable, match=r"contention: \d+ of \d+ tries conflicted"):
        store.append([Event("Mine")], AppendCondition(ORDER))
    assert cluster.now_s >= 20, "three transactions of ten seconds each, with the client's pauses between tries"


def test_throttling_is_reported_as_throttling() -> None:
    cluster = SimulatedCluster(1)
    store = EventStore(engine_on(cluster))
    cluster.faults.script("commit", *[Fault(1042)] * 10_000)
    with pytest.raises(StoreUnavailable, match=r"FoundationDB throttled \d+ of \d+ tries"):
        store.append([Event("Mine")])


def test_tries_that_take_too_long_are_reported_as_too_many_calls_or_a_long_condition() -> None:
    cluster = SimulatedCluster(1)
    store = EventStore(engine_on(cluster))
    cluster.faults.script("commit", *[Fault(1007)] * 10_000)
    expected = r"\d+ of \d+ tries took longer than the 5 s .* too many calls .* max_transactions"
    with pytest.raises(StoreUnavailable, match=expected) as failed:
        store.append([Event("Mine")])
    assert "b'" not in str(failed.value)


def test_an_error_that_is_not_worth_another_try_is_reported_in_plain_text() -> None:
    """In 7.3 this code is that of moving keys. From 7.4 on it is a hot shard, and the client tries again by itself."""
    cluster = SimulatedCluster(1)
    store = EventStore(engine_on(cluster))
    cluster.faults.script("commit", Fault(1235))
    with pytest.raises(StoreUnavailable, match=r"failed: Too many retries to finish moving keys \(1235\)"):
        store.append([Event("Mine")])


def test_a_cluster_that_does_not_answer_is_reported_as_that() -> None:
    cluster = SimulatedCluster(1)
    store = EventStore(engine_on(cluster))
    cluster.faults.script("commit", *[Fault(1031)] * 3)
    with pytest.raises(StoreUnavailable, match="the cluster is not reachable"):
        store.append([Event("Mine")])
