"""What the Python code says, in the same plain values as the oracle.

A verdict is asked of an engine, so that its ledger is put to the test together with `judge`.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from fencepost import AppendCondition, Event, Query, QueryItem
from fencepost.buckets import matches, read_keys, read_targets, write_buckets, write_keys
from fencepost.core.engine import Engine
from fencepost.core.verdicts import Append, Behind, Conflict, Overlap, Verdict
from fencepost.model import Placed


def kernel(event: Any, query: Any) -> dict[str, Any]:
    made, asked = _event(event), _query(query)
    return {
        "matches": matches(made, asked),
        "write_buckets": [_bucket(bucket) for bucket in write_buckets(made)],
        "read_targets": [_bucket(bucket) for bucket in read_targets(asked)],
        "write_keys": [list(key) for key in write_keys(made)],
        "read_keys": [[list(key) for key in read_keys(item)] for item in asked.items],
    }


def up_to(up_to: int, event: Any) -> dict[str, Any]:
    return {"write_buckets": [_bucket(bucket) for bucket in write_buckets(_event(event), up_to=up_to)]}


def batch(engine: Engine, log: Any, appends: Any) -> dict[str, Any]:
    """Let an empty engine commit the log, event by event, and then the appends as one batch."""
    engine.commit([Append((_event(event),)) for event in log])
    verdicts = engine.commit([_append(append) for append in appends])
    return {"verdicts": [_verdict(verdict) for verdict in verdicts], "head": engine.head()}


def _event(event: Any) -> Event:
    id = event.get("id")
    return Event(event["type"], tags=event["tags"], id=None if id is None else UUID(id))


def _query(query: Any) -> Query:
    return Query(QueryItem(types=item["types"], tags=item["tags"]) for item in query)


def _append(append: Any) -> Append:
    return Append(
        events=tuple(map(_event, append["events"])),
        conditions=tuple(
            AppendCondition(_query(condition["query"]), after=condition["after"]) for condition in append["conditions"]
        ),
        unless=None if append["unless"] is None else _query(append["unless"]),
        checkpoint=None if append["checkpoint"] is None else tuple(append["checkpoint"]),
    )


def _bucket(bucket: tuple[tuple[str, ...], str | None]) -> list[Any]:
    tags, type_ = bucket
    return [list(tags), type_]


def _verdict(verdict: Verdict) -> list[Any]:
    match verdict:
        case Placed(first, last, already):
            return ["placed", first, last, already]
        case Conflict(condition, position):
            items = condition.fail_if_events_match.items
            query = [{"types": sorted(item.types), "tags": sorted(item.tags)} for item in items]
            return ["conflicting", {"after": condition.after, "query": query}, position]
        case Overlap(stored, position, missing):
            return ["overlapping", str(stored), position, str(missing)]
        case Behind(name, position, current):
            return ["behind", name, position, current]
