"""Appends, queries and events as msgpack arrays: the form that Fencepost's own client and server use.

Stored events travel in their stored form (`SequencedEvent.stored`), so neither side decodes tags, times and metadata
that are not looked at. One request carries a batch of appends, which the client's group commit has gathered, and its
answer an outcome for each: an append that is refused does not disturb the others.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeAlias
from uuid import UUID

import msgspec

from ... import AppendCondition, Delete, Event, Placed, Put, Query, QueryItem, Record, SequencedEvent
from ...engine import Append, Behind, Changed, Conflict, Failed, Overlap, RecordedAppend, Verdict
from ...errors import CheckpointBehind, ConditionFailed, FencepostError, IdsOverlap, InvalidInput, RecordChanged
from ...tools import WirePosition, from_wire, to_wire
from .problems import Problem, error_from, problem_of

MEDIA_TYPE: Final = "application/vnd.fencepost+msgpack"

QueryRow: TypeAlias = list[tuple[list[str], list[str]]]
StoredRow: TypeAlias = tuple[WirePosition, str, str, bytes, int, bytes | None, str | None]
RecordedRow: TypeAlias = tuple[WirePosition, WirePosition, str, str | None]


RecordRow: TypeAlias = tuple[str, bytes, int]
ChangeRow: TypeAlias = tuple[str, int, bytes | None]  # without a value, the record is deleted


class EventRow(msgspec.Struct, array_like=True):
    type: str
    data: bytes
    tags: list[str]
    id: bytes | None = None
    metadata: dict[str, str] | None = None


class AppendRow(msgspec.Struct, array_like=True):
    events: list[EventRow]
    conditions: list[tuple[QueryRow, WirePosition]] = []
    unless: QueryRow | None = None
    checkpoint: tuple[str, WirePosition] | None = None
    records: list[ChangeRow] = []


class ReadRow(msgspec.Struct, array_like=True):
    query: QueryRow
    after: WirePosition = 0
    up_to: WirePosition | None = None
    limit: int | None = None
    backwards: bool = False


class PageRow(msgspec.Struct, array_like=True):
    """Events of a reading that reaches up to `reach`; `more` says whether events follow in the same reading."""

    reach: WirePosition
    events: list[StoredRow]
    more: bool


class PlacedRow(msgspec.Struct, array_like=True, tag="placed"):
    first: WirePosition
    last: WirePosition
    already: bool
    revisions: list[int] = []


class ConflictRow(msgspec.Struct, array_like=True, tag="conflict"):
    condition: int  # its index in the append
    event: StoredRow


class OverlapRow(msgspec.Struct, array_like=True, tag="overlap"):
    stored: UUID
    position: WirePosition
    missing: UUID


class BehindRow(msgspec.Struct, array_like=True, tag="behind"):
    name: str
    position: WirePosition
    current: WirePosition


class ChangedRow(msgspec.Struct, array_like=True, tag="changed"):
    name: str
    expected: int
    current: RecordRow | None


class FailedRow(msgspec.Struct, array_like=True, tag="failed"):
    problem: Problem


OutcomeRow: TypeAlias = PlacedRow | ConflictRow | OverlapRow | BehindRow | ChangedRow | FailedRow

encode = msgspec.msgpack.Encoder().encode
decode_appends = msgspec.msgpack.Decoder(list[AppendRow]).decode
decode_outcomes = msgspec.msgpack.Decoder(list[OutcomeRow]).decode
decode_read = msgspec.msgpack.Decoder(ReadRow).decode
decode_page = msgspec.msgpack.Decoder(PageRow).decode
decode_recorded = msgspec.msgpack.Decoder(list[RecordedRow]).decode
decode_records = msgspec.msgpack.Decoder(list[RecordRow]).decode
decode_restore = msgspec.msgpack.Decoder(tuple[list[StoredRow], list[RecordedRow]]).decode


def query_row(query: Query) -> QueryRow:
    return [(list(item.types), list(item.tags)) for item in query.items]


def query_from(row: QueryRow) -> Query:
    return Query([QueryItem(types=types, tags=tags) for types, tags in row])


def append_row(append: Append) -> AppendRow:
    return AppendRow(
        [
            EventRow(
                event.type,
                event.data,
                list(event.tags),
                None if event.id is None else event.id.bytes,
                dict(event.metadata) or None,
            )
            for event in append.events
        ],
        [(query_row(each.fail_if_events_match), to_wire(each.after)) for each in append.conditions],
        None if append.unless is None else query_row(append.unless),
        None if append.checkpoint is None else (append.checkpoint[0], to_wire(append.checkpoint[1])),
        [(change.name, change.expected, getattr(change, "value", None)) for change in append.records],
    )


def append_from(row: AppendRow) -> Append:
    conditions = [
        AppendCondition(query_from(query), after=from_wire(after, "after")) for query, after in row.conditions
    ]
    unless = None if row.unless is None else query_from(row.unless)
    events = [
        Event(each.type, data=each.data, tags=each.tags, id=_uuid(each.id), metadata=each.metadata)
        for each in row.events
    ]
    checkpoint = None if row.checkpoint is None else (row.checkpoint[0], from_wire(row.checkpoint[1], "checkpoint"))
    return Append(tuple(events), tuple(conditions), unless, checkpoint, tuple(map(_change_from, row.records)))


def _change_from(row: ChangeRow) -> Put | Delete:
    name, expected, value = row
    return Delete(name, expected) if value is None else Put(name, value, expected)


def record_row(record: Record) -> RecordRow:
    return record.name, record.value, record.revision


def stored_row(event: SequencedEvent) -> StoredRow:
    position, *rest = event.stored
    return (to_wire(position), *rest)  # type: ignore[return-value]


def stored_rows(events: Iterable[SequencedEvent]) -> list[StoredRow]:
    return [stored_row(event) for event in events]


def stored_from(row: StoredRow) -> SequencedEvent:
    position = row[0]
    return SequencedEvent(position if type(position) is int else int(position), *row[1:])


def recorded_row(append: RecordedAppend) -> RecordedRow:
    return to_wire(append.first), to_wire(append.last), append.conditions_json, append.unless_json


def recorded_from(row: RecordedRow) -> RecordedAppend:
    first, last, conditions, unless = row
    return RecordedAppend(from_wire(first, "first"), from_wire(last, "last"), conditions, unless)


def outcome_row(outcome: Placed | FencepostError, *, condition: int = 0) -> OutcomeRow:
    """What became of an append; `condition` is the index of the condition, for `ConditionFailed`."""
    if isinstance(outcome, Placed):
        return PlacedRow(to_wire(outcome.first), to_wire(outcome.last), outcome.already, list(outcome.revisions))
    if isinstance(outcome, ConditionFailed):
        return ConflictRow(condition, stored_row(outcome.conflict))
    if isinstance(outcome, IdsOverlap):
        return OverlapRow(outcome.stored, to_wire(outcome.position), outcome.missing)
    if isinstance(outcome, CheckpointBehind):
        return BehindRow(outcome.name, to_wire(outcome.position), to_wire(outcome.current))
    if isinstance(outcome, RecordChanged):
        current = None if outcome.current is None else record_row(outcome.current)
        return ChangedRow(outcome.name, outcome.expected, current)
    return FailedRow(problem_of(outcome))


def verdict_from(row: OutcomeRow, append: Append) -> Verdict:
    """The outcome as the verdict of an engine on the append."""
    if isinstance(row, PlacedRow):
        return Placed(from_wire(row.first, "first"), from_wire(row.last, "last"), row.already, tuple(row.revisions))
    if isinstance(row, ConflictRow):
        conflict = stored_from(row.event)
        return Conflict(append.conditions[row.condition], conflict.position, conflict)
    if isinstance(row, OverlapRow):
        return Overlap(row.stored, from_wire(row.position, "position"), row.missing)
    if isinstance(row, BehindRow):
        return Behind(row.name, from_wire(row.position, "position"), from_wire(row.current, "current"))
    if isinstance(row, ChangedRow):
        return Changed(row.name, row.expected, None if row.current is None else Record(*row.current))
    return Failed(error_from(row.problem))


def _uuid(stored: bytes | None) -> UUID | None:
    if stored is None:
        return None
    if len(stored) != 16:
        raise InvalidInput("id", f"16 bytes are needed, not {len(stored)}")
    return UUID(bytes=stored)
