"""The verdict on each append of a batch. The appends of a batch are judged in order and share one sync.

`judge` uses a ledger, which contains the committed log and the appends that this batch has staged so far. An accepted
append is staged. So each append is judged against the log *and* the earlier appends of its batch, exactly as if they
had been committed one by one (theorem `group_commit_exact`). A refused append stages nothing, so it does not affect
the other appends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias
from uuid import UUID

import msgspec

from ..errors import FencepostError
from ..model import (
    AppendCondition,
    Delete,
    Event,
    Placed,
    Put,
    Query,
    Record,
    RecordedAppend,
    SequencedEvent,
    encode_conditions,
)
from .record_keys import CHECKPOINTS, DELETED, RECORDS, named, position_of, revision_of


class Append(msgspec.Struct, frozen=True):
    """The arguments of one call of `append`, immutable. See `core.arguments.checked_append`."""

    events: tuple[Event, ...]
    conditions: tuple[AppendCondition, ...] = ()
    unless: Query | None = None
    checkpoint: tuple[str, int] | None = None
    records: tuple[Put | Delete, ...] = ()


@dataclass(frozen=True, slots=True)
class Conflict:
    """Refused: the event at `position` matches the condition. `conflict` is that event, if the engine has it."""

    condition: AppendCondition
    position: int
    conflict: SequencedEvent | None = None


@dataclass(frozen=True, slots=True)
class Overlap:
    """Refused: the id `stored` is stored already, at `position`, and the id `missing` is not."""

    stored: UUID
    position: int
    missing: UUID


@dataclass(frozen=True, slots=True)
class Behind:
    """Refused: the checkpoint is at `current`, and `position` is not above that."""

    name: str
    position: int
    current: int


@dataclass(frozen=True, slots=True)
class Changed:
    """Refused: the record is not at the expected revision. `current` is the record, None if there is none."""

    name: str
    expected: int
    current: Record | None


@dataclass(frozen=True, slots=True)
class Failed:
    """This append alone failed, with an error of its own. Engines whose batches are not one transaction need it."""

    error: FencepostError


Verdict: TypeAlias = Placed | Conflict | Overlap | Behind | Changed | Failed

Changes: TypeAlias = Mapping[str, Record | None]
"""The new record for each key, which is its name; None where it is deleted."""


class Ledger(Protocol):
    """What a batch is judged against: the committed log, followed by the appends that the batch has staged."""

    def head(self) -> int: ...

    def first_match(self, query: Query, after: int) -> int | None:
        """The lowest position above `after` whose event matches, or None."""

    def position_of(self, id: UUID) -> int | None: ...

    def record(self, key: str) -> Record | None: ...

    def stage(self, events: Sequence[Event]) -> None:
        """Add the events after the head."""

    def stage_records(self, changes: Changes) -> None: ...


def judge(appends: Iterable[Append], ledger: Ledger) -> list[Verdict]:
    """Judge the appends in order, and stage the accepted ones in the ledger.

    Ids are checked first, then `unless`, then conditions, then the checkpoint and the records. A retry whose first
    attempt was stored must get the result of that attempt. It must not be refused because of a conflict with itself.
    """
    return [_judge_one(append, ledger) for append in appends]


def _judge_one(append: Append, ledger: Ledger) -> Verdict:
    events = append.events
    places = [(event.id, ledger.position_of(event.id)) for event in events if event.id is not None]
    retried = judge_ids(places) if places else None
    if retried is not None:
        return retried
    if append.unless is not None:
        position = ledger.first_match(append.unless, 0)
        if position is not None:
            return Placed(position, position, already=True)
    for condition in append.conditions:
        position = ledger.first_match(condition.fail_if_events_match, condition.after)
        if position is not None:
            return Conflict(condition, position)
    revisions: tuple[int, ...] = ()
    if append.checkpoint is not None or append.records:
        changes = judge_records(append, ledger.record)
        if isinstance(changes, (Behind, Changed)):
            return changes
        ledger.stage_records(changes)
        revisions = revisions_of(append, changes)
    before = ledger.head()
    ledger.stage(events)
    last = ledger.head()
    assert last == before + len(events)
    return Placed(before + 1 if events else before, last, revisions=revisions)


def judge_ids(places: Sequence[tuple[UUID, int | None]]) -> Placed | Overlap | None:
    """The verdict that follows from an append's ids and their stored positions. None: no id is stored."""
    stored = [(id, position) for id, position in places if position is not None]
    if not stored:
        return None
    if len(stored) < len(places):
        missing = [id for id, position in places if position is None]
        return Overlap(*stored[0], missing[-1])
    positions = [position for _, position in stored]
    return Placed(min(positions), max(positions), already=True)


def keys_of(append: Append) -> list[str]:
    """The keys of the records that decide about the append, and that it may change."""
    keys = [RECORDS + change.name for change in append.records]
    if append.checkpoint is not None:
        keys.append(CHECKPOINTS + append.checkpoint[0])
    if any(isinstance(change, Delete) or not change.expected for change in append.records):
        keys.append(DELETED)
    return keys


def judge_records(append: Append, stored: Callable[[str], Record | None]) -> Changes | Behind | Changed:
    """What the append changes among the stored records, or why it is refused. A checkpoint is a record that grows.

    A record that is created begins above every revision that a deleted record had, also in this append. Otherwise a
    writer that has seen an earlier record of the same name could change the new one.
    """
    changes: dict[str, Record | None] = {}
    if append.checkpoint is not None:
        name, position = append.checkpoint
        found = stored(CHECKPOINTS + name)
        if position <= position_of(found):
            return Behind(name, position, position_of(found))
        changes[CHECKPOINTS + name] = Record(CHECKPOINTS + name, b"%d" % position, revision_of(found) + 1)
    for change in append.records:
        found = stored(RECORDS + change.name)
        if revision_of(found) != change.expected:
            return Changed(change.name, change.expected, None if found is None else named(found))
    floor = revision_of(stored(DELETED)) if DELETED in keys_of(append) else 0
    deleted = max((change.expected for change in append.records if isinstance(change, Delete)), default=0)
    if deleted > floor:
        floor = deleted
        changes[DELETED] = Record(DELETED, b"", floor)
    for change in append.records:
        key = RECORDS + change.name
        if isinstance(change, Delete):
            changes[key] = None
        else:
            changes[key] = Record(key, change.value, (change.expected or floor) + 1)
    return changes


def revisions_of(append: Append, changes: Changes) -> tuple[int, ...]:
    """The new revisions of the records that the append changes, in its order; 0 where one is deleted."""
    return tuple([revision_of(changes[RECORDS + change.name]) for change in append.records])


def recorded_appends_of(appends: Iterable[Append], verdicts: Iterable[Verdict]) -> list[RecordedAppend]:
    """The conditions of the appends that were stored just now, for an engine that records conditions.

    An append without events has no position in the log, so its conditions are not recorded.
    """
    return [
        recorded(append, verdict.first, verdict.last)
        for append, verdict in zip(appends, verdicts, strict=True)
        if isinstance(verdict, Placed) and not verdict.already and append.events
    ]


def recorded(append: Append, first: int, last: int) -> RecordedAppend:
    unless = None if append.unless is None else append.unless.to_json()
    return RecordedAppend(first, last, encode_conditions(append.conditions), unless)
