"""FoundationDB's conflict keys and streams of postings, against `fencepost.buckets.matches`."""

from __future__ import annotations

from hypothesis import given, settings
from tests.support.simulated_fdb import SimulatedCluster
from tests.support.thorough import times

from fencepost import AppendCondition, ConditionFailed, Event, EventStore, Query
from fencepost.buckets import matches
from fencepost.core.verdicts import Append
from fencepost.engines.foundationdb.judgement import ReadBuckets
from fencepost.engines.foundationdb.layout import SUBSET_TAGS, Keys
from fencepost.testing import strategies

from .clusters import engine_on
from .test_exactness import race

KEYS = Keys("test")


@given(event=strategies.events, query=strategies.queries)
@settings(max_examples=times(150, thorough=1_000))
def test_conflict_keys_meet_whenever_the_event_matches(event: Event, query: Query) -> None:
    read = ReadBuckets(Append((), (AppendCondition(query),)), KEYS).sized()
    meet = bool(set(KEYS.index(event, 0)[1]) & set(read))
    if all(len(item.tags) <= SUBSET_TAGS for item in query.items):
        assert meet == matches(event, query)
    else:
        assert meet >= matches(event, query)


@given(decided=strategies.events, query=strategies.queries, rival=strategies.events)
@settings(max_examples=times(60, thorough=400))
def test_a_rival_between_check_and_commit_is_refused_exactly_when_it_matches(
    decided: Event, query: Query, rival: Event
) -> None:
    _, stored = race(decided, query, rival)
    assert stored is not matches(rival, query)


@given(log=strategies.logs, query=strategies.queries)
def test_the_postings_are_the_events_that_match(log: list[Event], query: Query) -> None:
    store = EventStore(engine_on(SimulatedCluster(1)))
    store.append(log)
    stored = list(store.read())
    expected = [event for event in stored if matches(event, query)]
    assert list(store.read(query)) == expected
    assert list(store.read(query, backwards=True)) == expected[::-1]
    try:
        store.append([Event("new")], AppendCondition(query))
        found = []
    except ConditionFailed as failed:
        found = [failed.conflict]
    assert found == expected[:1]
