"""Matching is written again in SQL; here it is compared with its definition, `fencepost.buckets.matches`.

Hypothesis generates logs and queries. For each, a read by query returns exactly the events that match, in both
directions and with any limit; a condition fails exactly if an event above `after` matches, and names the first one; and
`unless` finds exactly the first match of the whole log. The tags are those of `fencepost.testing.strategies`, also
renamed to texts that are special in JSON, SQL, arrays or Unicode, and pushed beyond the fourth tag of an event, where
another table indexes them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.thorough import times

import fencepost
from fencepost import AppendCondition, ConditionFailed, Event, EventStore, Placed, Query, QueryItem
from fencepost.buckets import matches
from fencepost.engines.postgres import paged_read
from fencepost.testing import strategies
from fencepost.testing.contract.base import positions

EXAMPLES = times(25, thorough=150)
NASTY = ['"{},\\', "NULL", "' || $$;--", "a\n\t\x01", "😀é\u0301"]
FILLING = frozenset(f"!{number}" for number in range(4))  # sorts before all other tags of the same event

Rename = Callable[[frozenset[str]], frozenset[str]]


def plain(tags: frozenset[str]) -> frozenset[str]:
    return tags


def nasty(tags: frozenset[str]) -> frozenset[str]:
    names = dict(zip(strategies.TAGS, NASTY, strict=True))
    return frozenset(names[tag] for tag in tags)


def renamed_query(query: Query, rename: Rename) -> Query:
    return Query([QueryItem(types=item.types, tags=rename(item.tags)) for item in query.items])


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[Event], list[Query], Rename]:
    rename = draw(st.sampled_from([plain, nasty]))
    log = []
    for event in draw(st.lists(strategies.events, max_size=12)):
        filling = FILLING if draw(st.booleans()) else frozenset()
        log.append(Event(event.type, data=event.data, tags=rename(event.tags) | filling))
    queries = draw(st.lists(strategies.queries, min_size=1, max_size=4))
    return log, [renamed_query(query, rename) for query in queries], rename


def compared(test: Callable[..., None]) -> Callable[..., None]:
    """Run the test with generated cases, in one schema that each example empties."""
    # The fixtures may be shared, since every example starts with an empty log.
    checks = [HealthCheck.function_scoped_fixture]
    return settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=checks)(given(case=cases())(test))


@contextmanager
def filled(connection: psycopg.Connection[Any], schema: str, url: str, log: Sequence[Event]) -> Iterator[EventStore]:
    """The store with this log. It is opened for each log, since an open store refuses a log that went back."""
    for table in ("event", "more_tags"):
        connection.execute(f'DELETE FROM "{schema}".{table}'.encode())
    with fencepost.open(url) as store:
        if log:
            assert store.append(log) == Placed(1, len(log))
        yield store


def matching(log: Sequence[Event], query: Query, after: int = 0) -> list[int]:
    """The positions above `after` whose events match, by the definition."""
    return [position for position, event in enumerate(log, start=1) if position > after and matches(event, query)]


@pytest.mark.parametrize("first_page", [1, 256], ids=["by leapfrog search", "by the events of a tag"])
@compared
def test_a_read_returns_the_events_that_match(
    url: str,
    schema: str,
    connection: psycopg.Connection[Any],
    monkeypatch: pytest.MonkeyPatch,
    first_page: int,
    case: tuple[list[Event], list[Query], Rename],
) -> None:
    log, queries, _ = case
    monkeypatch.setattr(paged_read, "FIRST_PAGE_EVENTS", first_page)  # small pages soon end the reading by tags
    with filled(connection, schema, url, log) as store:
        for query in queries:
            for after in (0, len(log) // 2):
                expected = matching(log, query, after)
                assert positions(store.read(query, after=after)) == expected
                assert positions(store.read(query, after=after, backwards=True)) == expected[::-1]
                assert positions(store.read(query, after=after, limit=2)) == expected[:2]


@pytest.mark.parametrize("events", [1, 2], ids=["append_one", "append_batch"])
@compared
def test_a_condition_fails_if_and_only_if_an_event_matches(
    url: str,
    schema: str,
    connection: psycopg.Connection[Any],
    events: int,
    case: tuple[list[Event], list[Query], Rename],
) -> None:
    log, queries, rename = case
    new = Event("A", tags=rename(frozenset(strategies.TAGS[:2])))
    with filled(connection, schema, url, log) as store:
        for query in queries:
            for after in (0, len(log) // 2, len(log)):
                expected = matching(log, query, after)
                if expected:
                    with pytest.raises(ConditionFailed) as failed:
                        store.append([new] * events, AppendCondition(query, after=after))
                    assert failed.value.conflict.position == expected[0]
                else:
                    placed = store.append([new] * events, AppendCondition(query, after=after))
                    assert placed == Placed(len(log) + 1, len(log) + events)
                    log = [*log, *[new] * events]


@pytest.mark.parametrize("events", [1, 2], ids=["append_one", "append_batch"])
@compared
def test_unless_finds_the_first_event_that_matches(
    url: str,
    schema: str,
    connection: psycopg.Connection[Any],
    events: int,
    case: tuple[list[Event], list[Query], Rename],
) -> None:
    log, queries, rename = case
    new = Event("B", tags=rename(frozenset(strategies.TAGS[2:3])) | FILLING)
    with filled(connection, schema, url, log) as store:
        for query in queries:
            expected = matching(log, query)
            placed = store.append([new] * events, unless=query)
            if expected:
                assert placed == Placed(expected[0], expected[0], already=True)
            else:
                assert placed == Placed(len(log) + 1, len(log) + events)
                log = [*log, *[new] * events]
