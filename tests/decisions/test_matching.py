"""What decisions match in their own way, against `fencepost.buckets.matches`.

There are three ways: the events that `once` looks for, the events that a projection applies, and the boundary of
several projections, which merges their items into fewer.
"""

from __future__ import annotations

from datetime import datetime, timezone

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.thorough import times

from fencepost import Event, Query, QueryItem, SequencedEvent
from fencepost.buckets import matches
from fencepost.decisions import Once, Projection, Tag, event, on
from fencepost.decisions.projections import items_of, query_of
from fencepost.testing import strategies

NOW = datetime(2026, 1, 1, tzinfo=timezone.utc)


@event
class A:
    x: Tag


@event
class B:
    x: Tag


class ByType(Projection):
    x: Tag

    @on
    def _(self, event: A) -> None: ...


class ByOtherType(Projection):
    x: Tag

    @on
    def _(self, event: B) -> None: ...


class ByPartOfTheScope(Projection):
    x: Tag

    @on
    def _(self, event: A) -> None: ...

    @on(scope=())
    def _(self, event: B) -> None: ...


class OfEveryType(Projection):
    x: Tag

    @on
    def _(self, event: SequencedEvent) -> None: ...


class OfEveryTypeAndOneEverywhere(Projection):
    x: Tag

    @on
    def _(self, event: SequencedEvent) -> None: ...

    @on(scope=())
    def _(self, event: A) -> None: ...


PROJECTIONS = [ByType, ByOtherType, ByPartOfTheScope, OfEveryType, OfEveryTypeAndOneEverywhere]


def sequenced(event: Event) -> SequencedEvent:
    """The event as if it were stored, with data that the classes above can decode."""
    return SequencedEvent(1, event.type, event.tags, b'{"x": "y"}', NOW, None, {})


@given(log=strategies.logs, item=strategies.items)
def test_once_finds_the_events_that_match_its_query(log: list[Event], item: QueryItem) -> None:
    once = Once(item)
    assert once.among(log) == [event for event in log if matches(event, once.query)]
    stored = list(map(sequenced, log))
    assert once.among(stored) == [event for event in stored if matches(event, once.query)]


@pytest.mark.parametrize("projection", PROJECTIONS)
@given(event=strategies.events)
def test_a_projection_applies_the_events_that_match_its_boundary(projection: type[Projection], event: Event) -> None:
    made = projection("y")  # type: ignore[call-arg]
    assert made.apply(sequenced(event)) == matches(event, Query(items_of(made)))


@given(event=strategies.events, chosen=st.lists(st.sampled_from(PROJECTIONS), min_size=2, max_size=4))
@settings(max_examples=times(150, thorough=1_000))
def test_the_boundary_of_several_projections_matches_what_one_of_theirs_does(
    event: Event, chosen: list[type[Projection]]
) -> None:
    made = [projection("y") for projection in chosen]  # type: ignore[call-arg]
    assert matches(event, query_of(made)) == any(matches(event, Query(items_of(each))) for each in made)
