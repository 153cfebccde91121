"""Group commit: many appends, judged in order, one sync for all of them.

`judge` gives each append of a batch its verdict. It asks a ledger, which knows the committed
log and what this batch has staged so far, and stages what it accepts: so each append is judged
against the log *and* the earlier appends of its batch, exactly as if they had been committed
one by one (theorem `group_commit_exact`). A refused append stages nothing and disturbs nobody.

`GroupCommit` gathers the appends of concurrent callers into batches, as `gathering` explains.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias
from uuid import UUID

from .gathering import Gathering
from .model import AppendCondition, Event, Placed, Query, RecordedAppend, SequencedEvent, encode_conditions

# A batch takes what waits, up to so many events: enough to spread one sync over many callers, few
# enough that nobody waits long for the others. An append of more events is a batch of its own.
BATCH_EVENTS: Final = 4_096


@dataclass(frozen=True, slots=True)
class Append:
    """One caller's request, checked and immutable."""

    events: tuple[Event, ...]
    conditions: tuple[AppendCondition, ...] = ()
    unless: Query | None = None
    checkpoint: tuple[str, int] | None = None


@dataclass(frozen=True, slots=True)
class Conflicting:
    """Refused: the event at `position` matches the condition. An engine that has the event gives it along."""

    condition: AppendCondition
    position: int
    conflict: SequencedEvent | None = None


@dataclass(frozen=True, slots=True)
class Overlapping:
    """Refused: one id is stored already, at `position`, and another is not."""

    stored: UUID
    position: int
    missing: UUID


@dataclass(frozen=True, slots=True)
class Behind:
    """Refused: the checkpoint is at `current` already."""

    name: str
    position: int
    current: int


Verdict: TypeAlias = Placed | Conflicting | Overlapping | Behind


class Ledger(Protocol):
    """The log as a batch sees it: what is committed, and what the batch has staged on top."""

    def head(self) -> int: ...

    def first_match(self, query: Query, after: int) -> int | None:
        """The lowest position above `after` whose event matches."""

    def position_of(self, id: UUID) -> int | None: ...

    def checkpoint(self, name: str) -> int:
        """Where the checkpoint is, 0 if it never was set."""

    def stage(self, append: Append) -> None:
        """Put the append's events after the head, and its checkpoint in force."""


def judge(appends: Iterable[Append], ledger: Ledger) -> list[Verdict]:
    """Decide the appends in order; what is accepted is staged in the ledger.

    Ids come first, then `unless`: a retry whose first try was stored must be told so, not be
    refused because of a conflict with itself.
    """
    return [_judge_one(append, ledger) for append in appends]


def _judge_one(append: Append, ledger: Ledger) -> Verdict:
    events = append.events
    retried = judge_ids([(event.id, ledger.position_of(event.id)) for event in events if event.id is not None])
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
    assert ledger.head() == before + len(events)
    return Placed(before + 1, ledger.head()) if events else Placed(before, before)


def judge_ids(places: Sequence[tuple[UUID, int | None]]) -> Placed | Overlapping | None:
    """What an append's ids decide, given where each is stored: None when all of them are new."""
    stored = [(id, position) for id, position in places if position is not None]
    if not stored:
        return None
    if len(stored) < len(places):
        missing = [id for id, position in places if position is None]
        return Overlapping(*stored[0], missing[-1])
    positions = [position for _, position in stored]
    return Placed(min(positions), max(positions), already=True)


def records_of(appends: Iterable[Append], verdicts: Iterable[Verdict]) -> list[RecordedAppend]:
    """What to keep of the appends that were stored just now, for an engine that records conditions.

    An append without events has no place in the log, so nothing is kept of it.
    """
    return [
        recorded(append, verdict.first, verdict.last)
        for append, verdict in zip(appends, verdicts, strict=True)
        if isinstance(verdict, Placed) and not verdict.already and append.events
    ]


def recorded(append: Append, first: int, last: int) -> RecordedAppend:
    unless = None if append.unless is None else append.unless.to_json()
    return RecordedAppend(first, last, encode_conditions(append.conditions), unless)


class GroupCommit(Gathering[Append, Verdict]):
    """Batches what concurrent callers append; `commit` stores one batch and gives its verdicts."""

    def __init__(self, commit: Callable[[Sequence[Append]], Sequence[Verdict]]) -> None:
        super().__init__(commit, most=BATCH_EVENTS, size=lambda append: len(append.events))

    def append(self, append: Append) -> Verdict:
        """Have the append committed, by whoever leads, and return its verdict."""
        return self.ask(append)
