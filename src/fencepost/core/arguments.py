"""Checks the arguments of a store's methods, once for all engines, so that no engine receives malformed input.

Every function returns the checked value, or raises an `InvalidInput` that names the field, the value and the limit.
The contract suite holds the checks (fencepost/testing/contract/input.py).
"""

from __future__ import annotations

from collections.abc import Iterable
from threading import TIMEOUT_MAX
from typing import Final

from ..errors import InvalidInput
from ..model import AppendCondition, Delete, Event, Put, Query, checked_all, checked_name, checked_position, limits
from .verdicts import Append

MAX_LIMIT: Final = 2**63 - 1  # what databases can count to


def checked_append(
    events: Iterable[Event],
    condition: AppendCondition | Iterable[AppendCondition] | None,
    unless: Query | None,
    checkpoint: tuple[str, int] | None,
    records: Iterable[Put | Delete] = (),
) -> Append:
    """The arguments of `append` as one immutable value."""
    changes = _checked_records(records) if records != () else ()
    append = Append(
        _checked_events(events, checkpoint is not None or changes != ()),
        _checked_conditions(condition),
        _checked_unless(unless),
        None if checkpoint is None else _checked_checkpoint(checkpoint),
        changes,
    )
    _check_buckets(append)
    return append


def checked_range(
    query: Query | None, after: int, up_to: int | None, limit: int | None
) -> tuple[Query, int, int | None]:
    if query is None:
        query = Query.all()
    elif type(query) is not Query:
        raise InvalidInput("query", f"a Query is needed, not {type(query).__name__}")
    after = checked_position(after, "after")
    if up_to is not None:
        up_to = checked_position(up_to, "up_to")
    if limit is not None and (type(limit) is not int or not 1 <= limit <= MAX_LIMIT):
        raise InvalidInput("limit", f"an int from 1 to {MAX_LIMIT} is needed, not {limit!r:.80}")
    return query, after, up_to


def checked_timeout(timeout_s: float | None) -> float | None:
    """None, which means to wait for ever, also for a time that is longer than a thread can wait."""
    if timeout_s is None:
        return None
    if type(timeout_s) not in (int, float) or not timeout_s >= 0:
        raise InvalidInput("timeout_s", f"a number of seconds that is at least 0 is needed, or None, not {timeout_s!r}")
    return timeout_s if timeout_s < TIMEOUT_MAX else None


def _checked_events(given: Iterable[Event], may_be_empty: bool) -> tuple[Event, ...]:
    if isinstance(given, Event):
        raise InvalidInput("events", "a list of events is needed, not one: write [event]")
    if not isinstance(given, (list, Iterable)):  # a list is recognized faster by its own class
        raise InvalidInput("events", f"a list of events is needed, not {type(given).__name__}")
    events = checked_all(given, "events", Event)
    if not events and not may_be_empty:
        raise InvalidInput("events", "0 events; without a checkpoint or records to store, at least 1 is needed")
    if len(events) > limits.MAX_EVENTS:
        raise InvalidInput("events", f"{len(events)} events, the limit is {limits.MAX_EVENTS}")
    size = sum([len(event.data) for event in events])
    ids = {event.id for event in events if event.id is not None}
    if size > limits.MAX_APPEND_BYTES:
        raise InvalidInput("events", f"{size} bytes of data in one append, the limit is {limits.MAX_APPEND_BYTES}")
    if ids and len(ids) != len(events):
        problem = "give every event of an append an id of its own, or give no event an id"
        raise InvalidInput("events", f"{len(ids)} different ids for {len(events)} events; {problem}")
    return events


def _checked_conditions(given: AppendCondition | Iterable[AppendCondition] | None) -> tuple[AppendCondition, ...]:
    if given is None:
        return ()
    if type(given) is AppendCondition:
        return (given,)
    if not isinstance(given, Iterable):
        raise InvalidInput("condition", f"an AppendCondition is needed, or several, not {type(given).__name__}")
    conditions = checked_all(given, "condition", AppendCondition)
    if len(conditions) > limits.MAX_CONDITIONS:
        raise InvalidInput("condition", f"{len(conditions)} conditions, the limit is {limits.MAX_CONDITIONS}")
    return conditions


def _check_buckets(append: Append) -> None:
    """Limit the total size of the conditions, because other appends wait while they are checked."""
    most = limits.MAX_CONDITION_BUCKETS
    buckets = sum([condition.fail_if_events_match.buckets for condition in append.conditions])
    if buckets > most:
        problem = f"{buckets} buckets in all conditions, the limit of one append is {most}"
        raise InvalidInput("condition", f"{problem}; {limits.HOW_BUCKETS_COUNT}")
    if append.unless is not None and (buckets := buckets + append.unless.buckets) > most:
        problem = f"{buckets} buckets in unless and conditions, the limit of one append is {most}"
        raise InvalidInput("unless", f"{problem}; {limits.HOW_BUCKETS_COUNT}")


def _checked_unless(given: Query | None) -> Query | None:
    if given is not None and type(given) is not Query:
        raise InvalidInput("unless", f"a Query is needed, not {type(given).__name__}")
    return given


def _checked_records(given: Iterable[Put | Delete]) -> tuple[Put | Delete, ...]:
    if isinstance(given, (Put, Delete)) or not isinstance(given, Iterable):
        raise InvalidInput("records", f"a list of Put and Delete is needed, not {type(given).__name__}")
    changes = tuple(given)
    names: set[str] = set()
    for index, change in enumerate(changes):
        if type(change) not in (Put, Delete):
            raise InvalidInput(f"records[{index}]", f"Put or Delete is needed, not {type(change).__name__}")
        if change.name in names:
            raise InvalidInput(f"records[{index}]", f"an append changes a record once, unlike {change.name!r:.80}")
        names.add(change.name)
    if len(changes) > limits.MAX_RECORDS:
        raise InvalidInput("records", f"{len(changes)} records, the limit is {limits.MAX_RECORDS}")
    return changes


def _checked_checkpoint(given: tuple[str, int]) -> tuple[str, int]:
    if not isinstance(given, tuple) or len(given) != 2:
        raise InvalidInput("checkpoint", f"a tuple (name, position) is needed, not {given!r:.80}")
    return checked_name(given[0], "checkpoint.name"), checked_position(given[1], "checkpoint.position")
