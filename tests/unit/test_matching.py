"""Code of the core and of `fencepost.testing` that finds matches in its own way, against `fencepost.buckets.matches`.

tests/unit/test_routing.py does the same for the routing of events to subscribers.
"""

from __future__ import annotations

from datetime import datetime, timezone

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.thorough import times

from fencepost import AppendCondition, Event, Placed, Query, SequencedEvent
from fencepost.buckets import matches
from fencepost.core.verdicts import Append, Conflict
from fencepost.engines.memory import MemoryEngine
from fencepost.testing import strategies
from fencepost.testing.history import Index

NOW = datetime(2026, 1, 1, tzinfo=timezone.utc)


def sequenced(log: list[Event]) -> list[SequencedEvent]:
    return [
        SequencedEvent(position, event.type, event.tags, event.data, NOW, event.id, event.metadata)
        for position, event in enumerate(log, start=1)
    ]


@given(log=strategies.logs, query=strategies.queries, after=st.integers(0, 25))
def test_a_batch_is_judged_as_the_definition_says_against_the_log(log: list[Event], query: Query, after: int) -> None:
    conflicts = [event.position for event in sequenced(log) if event.position > after and matches(event, query)]
    engine = MemoryEngine()
    engine.commit([Append(tuple(log))])
    (verdict,) = engine.commit([Append((Event("new"),), (AppendCondition(query, after=after),))])
    assert conflicts[:1] == ([verdict.position] if isinstance(verdict, Conflict) else [])


@given(log=strategies.logs, query=strategies.queries, after=st.integers(0, 25))
def test_and_against_the_earlier_appends_of_the_batch(log: list[Event], query: Query, after: int) -> None:
    conflicts = [event.position for event in sequenced(log) if event.position > after and matches(event, query)]
    appends = [Append((event,)) for event in log]
    *_, verdict = MemoryEngine().commit([*appends, Append((Event("new"),), (AppendCondition(query, after=after),))])
    assert conflicts[:1] == ([verdict.position] if isinstance(verdict, Conflict) else [])
    *_, verdict = MemoryEngine().commit([*appends, Append((Event("new"),), unless=query)])
    found = [event.position for event in sequenced(log) if matches(event, query)]
    assert isinstance(verdict, Placed)
    assert verdict.already == bool(found)
    assert not found or verdict.first == found[0]


@given(log=strategies.logs, query=strategies.queries, after=st.integers(0, 25), up_to=st.integers(0, 25))
def test_the_memory_engine_scans_what_matches(log: list[Event], query: Query, after: int, up_to: int) -> None:
    engine = MemoryEngine()
    engine.commit([Append(tuple(log))])
    expected = [event.position for event in sequenced(log) if after < event.position <= up_to and matches(event, query)]
    for backwards in (False, True):
        pages = engine.scan(query, after=after, up_to=up_to, backwards=backwards)
        found = [event.position for page in pages for event in page]
        assert found == (expected[::-1] if backwards else expected)


@given(log=strategies.logs, query=strategies.queries, after=st.integers(0, 25), up_to=st.integers(0, 26))
@settings(max_examples=times(100, thorough=1_000))
def test_the_history_checker_finds_what_matches(log: list[Event], query: Query, after: int, up_to: int) -> None:
    index = Index(sequenced(log))
    for low, high in ((after, up_to), (0, len(log))):
        expected = [event for event in sequenced(log) if low < event.position <= high and matches(event, query)]
        assert sorted(index.matching(query, low, high), key=lambda event: event.position) == expected
        before = [event for event in expected if event.position < high]
        assert index.first(query, low, high) == (before[0] if before else None)
