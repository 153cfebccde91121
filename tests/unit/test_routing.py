"""Routing finds the same subscribers as checking the query of each."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fencepost import Event, Query
from fencepost.buckets import matches
from fencepost.core.router import Router
from fencepost.testing import strategies

subscriptions = st.lists(strategies.queries, max_size=8)


def routed(queries: list[Query]) -> Router[int]:
    router: Router[int] = Router()
    for number, query in enumerate(queries):
        router.add(query, number)
    return router


def interested(queries: list[Query], event: Event) -> set[int]:
    return {number for number, query in enumerate(queries) if matches(event, query)}


@given(queries=subscriptions, event=strategies.events)
def test_an_event_finds_exactly_the_subscribers_whose_queries_match(queries: list[Query], event: Event) -> None:
    assert routed(queries).route(event) == interested(queries, event)


@given(queries=subscriptions, event=strategies.events)
def test_with_many_others_around_an_event_finds_the_same(queries: list[Query], event: Event) -> None:
    """With this many targets, the router looks up the buckets of the event instead of checking each target."""
    router = routed(queries)
    for number in range(100):
        router.add(Query.of(tags={f"other:{number}"}), 1_000 + number)
    assert router.route(event) == interested(queries, event)


@given(queries=subscriptions, event=strategies.events, data=st.data())
def test_removed_subscribers_get_no_more_events(queries: list[Query], event: Event, data: st.DataObject) -> None:
    router = routed(queries)
    left = data.draw(st.sets(st.sampled_from(range(len(queries))))) if queries else set()
    for number in left:
        router.remove(queries[number], number)
    assert router.route(event) == interested(queries, event) - left


@given(queries=subscriptions)
def test_removed_subscribers_leave_nothing_in_the_router(queries: list[Query]) -> None:
    router = routed(queries)
    assert bool(router) == bool(queries)
    for number, query in enumerate(queries):
        router.remove(query, number)
    assert not router
    assert router.route(Event("A", tags={"x", "y"})) == set()


def test_an_event_with_the_most_tags_is_routed_without_trying_each_subset() -> None:
    router = routed([Query.of(tags={f"tag:{number}" for number in range(10)}), Query.of(types={"Other"})])
    event = Event("Wide", tags={f"tag:{number}" for number in range(20)})
    assert router.route(event) == {0}
