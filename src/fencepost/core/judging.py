"""The verdict on each append of a batch. The appends of a batch are judged in order and share one sync.

`judge` uses a ledger, which contains the committed log and the appends that this batch has staged so far. An accepted
append is staged. So each append is judged against the log *and* the earlier appends of its batch, exactly as if they
had been committed one by one (theorem `group_commit_exact`). A refused append stages nothing, so it does not affect
the other appends.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias
from uuid import UUID

import msgspec

from ..errors import FencepostError
from ..model import AppendCondition, Event, Placed, Query, RecordedAppend, SequencedEvent, encode_conditions


class Append(msgspec.Struct, frozen=True):
    """The arguments of one call of `append`, immutable. See `core.arguments.checked_append`."""

    events: tuple[Event, ...]
    conditions: tuple[AppendCondition, ...] = ()
    unless: Query | None = None
    checkpoint: tuple[str, int] | None = None


@dataclass(frozen=True, slots=True)
class Conflicting:
    """Refused: the event at `position` matches the condition. `conflict` is that event, if the engine has it."""

    condition: AppendCondition
    position: int
    conflict: SequencedEvent | None = None


@dataclass(frozen=True, slots=True)
class Overlapping:
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
class Failed:
    """This append alone failed, with an error of its own. Engines whose batches are not one transaction need it."""

    error: FencepostError


Verdict: TypeAlias = Placed | Conflicting | Overlapping | Behind | Failed


class Ledger(Protocol):
    """What a batch is judged against: the committed log, followed by the appends that the batch has staged."""

    def head(self) -> int: ...

    def first_match(self, query: Query, after: int) -> int | None:
        """The lowest position above `after` whose event matches, or None."""

    def position_of(self, id: UUID) -> int | None: ...

    def checkpoint(self, name: str) -> int:
        """The position of the checkpoint, 0 if it was never set."""

    def stage(self, append: Append) -> None:
        """Add the append's events after the head, and set its checkpoint."""


def judge(appends: Iterable[Append], ledger: Ledger) -> list[Verdict]:
    """Judge the appends in order, and stage the accepted ones in the ledger.

    Ids are checked first, then `unless`, then conditions. A retry whose first attempt was stored must get the result
    of that attempt. It must not be refused because of a conflict with itself.
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
            return Conflicting(condition, position)
    if append.checkpoint is not None:
        name, position = append.checkpoint
        current = ledger.checkpoint(name)
        if position <= current:
            return Behind(name, position, current)
    before = ledger.head()
    ledger.stage(append)
    last = ledger.head()
    assert last == before + len(events)
    return Placed(before + 1, last) if events else Placed(before, before)


def judge_ids(places: Sequence[tuple[UUID, int | None]]) -> Placed | Overlapping | None:
    """The verdict that follows from an append's ids and their stored positions. None: no id is stored."""
    stored = [(id, position) for id, position in places if position is not None]
    if not stored:
        return None
    if len(stored) < len(places):
        missing = [id for id, position in places if position is None]
        return Overlapping(*stored[0], missing[-1])
    positions = [position for _, position in stored]
    return Placed(min(positions), max(positions), already=True)


def records_of(appends: Iterable[Append], verdicts: Iterable[Verdict]) -> list[RecordedAppend]:
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
