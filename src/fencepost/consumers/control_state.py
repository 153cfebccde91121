"""What the events about a consumer add up to, and the conditions and names that follow from it.

Leases, pauses, resets, steps, failures and dead letters are events with the tag `fencepost.consumer:NAME`
(`recorded`). So every change has a time and an author, survives restarts, reaches running processes through a
subscription, and can be the condition of an append: a leader's writes carry the condition that no newer lease, reset
or division was recorded. That makes the position of a lease its fencing token
(docs/decisions/060-consumers-are-controlled-by-events.md).

Heartbeats are not events. They are checkpoints of the store, which are overwritten (`presence`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from datetime import datetime
from typing import Final, TypeVar

import msgspec

from .. import AppendCondition, Query, QueryItem, SequencedEvent
from ..decisions import Projection, on
from . import control_events
from .control_events import LEASE, NAME, Name
from .partitions import Division

Key = TypeVar("Key")
Value = TypeVar("Value")


class DeadLetter(msgspec.Struct, frozen=True):
    """An event that was set aside: which, why and when. `replay` says that a replay was requested."""

    position: int
    type: str
    keys: tuple[str, ...]
    error: str
    attempts: int
    at: datetime
    behind: int | None = None
    replay: bool = False


class Failure(msgspec.Struct, frozen=True):
    """An error of a consumer: at which position and when."""

    position: int
    error: str
    at: datetime


class LeaseState(msgspec.Struct, frozen=True):
    """The newest lease of a partition. `holder` is None after it was released."""

    holder: str | None
    token: int
    lease_s: float
    slot: int
    session: int


class Member(msgspec.Struct, frozen=True):
    """A process that takes a share of the partitions, since the position `joined`."""

    slot: int
    session: int
    lease_s: float
    joined: int


class Control(Projection):
    """What the events about a consumer add up to. Partitions are numbered from 0; most consumers have only that one."""

    consumer: Name
    known: bool = False  # whether a process has ever led it
    query: str = ""
    division: Division = Division()
    earlier: tuple[Division, ...] = ()  # since the last reset
    leases: dict[int, LeaseState] = field(default_factory=dict)
    workers: dict[str, Member] = field(default_factory=dict)
    paused_by: str | None = None
    paused_at: datetime | None = None
    steps: dict[int, int] = field(default_factory=dict)
    generation: int = 0  # the position of the last reset
    start: int = 0  # where that reset begins
    stops: dict[int, Failure] = field(default_factory=dict)
    stalls: dict[int, Failure] = field(default_factory=dict)
    last_error: Failure | None = None
    dead_letters: dict[int, DeadLetter] = field(default_factory=dict)

    def token_of(self, number: int) -> int:
        """The position of the newest lease of a partition; 0 if there was none."""
        lease = self.leases.get(number)
        return 0 if lease is None else lease.token

    def fence_of(self, number: int) -> int:
        """The token that the writes of the partition's leader must have."""
        return max(self.token_of(number), self.generation, self.division.since)

    def holds_back(self, number: int) -> bool:
        """Whether the partition handles no events: the consumer is paused, or the partition stopped at an event."""
        return self.paused_by is not None or number in self.stops

    @property
    def lease_s(self) -> float:
        """The longest lease of a partition."""
        return max((lease.lease_s for lease in self.leases.values()), default=0.0)

    @property
    def stopped(self) -> Failure | None:
        return next(iter(self.stops.values()), None)

    @on
    def _(self, event: control_events.LeaseTaken, stored: SequencedEvent) -> None:
        if not self.known:
            self.known, self.division = True, Division(event.partitions, event.key)
        self.query = event.query
        taken = LeaseState(event.holder, stored.position, event.lease_s, event.slot, event.session)
        self.leases = changed(self.leases, event.partition, taken)

    @on
    def _(self, event: control_events.LeaseReleased) -> None:
        lease = self.leases.get(event.partition)
        if lease is not None and lease.holder == event.holder:
            self.leases = changed(self.leases, event.partition, msgspec.structs.replace(lease, holder=None))

    @on
    def _(self, event: control_events.WorkerJoined, stored: SequencedEvent) -> None:
        member = Member(event.slot, event.session, event.lease_s, stored.position)
        self.workers = changed(self.workers, event.holder, member)

    @on
    def _(self, event: control_events.WorkerLeft) -> None:
        self.workers = without(self.workers, event.holder)

    @on
    def _(self, event: control_events.PartitionsChanged, stored: SequencedEvent) -> None:
        self.earlier = (*self.earlier, self.division)
        self.division = Division(event.partitions, event.key, stored.position)
        self.leases, self.workers, self.steps, self.stops, self.stalls = {}, {}, {}, {}, {}

    @on
    def _(self, event: control_events.ConsumerPaused, stored: SequencedEvent) -> None:
        self.paused_by, self.paused_at, self.steps = event.by, stored.recorded_at, {}

    @on
    def _(self, event: control_events.ConsumerResumed) -> None:
        self.paused_by, self.paused_at, self.steps, self.stops, self.stalls = None, None, {}, {}, {}

    @on
    def _(self, event: control_events.ConsumerReset, stored: SequencedEvent) -> None:
        self.generation, self.start, self.earlier = stored.position, event.position, ()
        self.stops, self.stalls = {}, {}
        self.dead_letters = {each: letter for each, letter in self.dead_letters.items() if each <= event.position}

    @on
    def _(self, event: control_events.StepRequested) -> None:
        self.steps = changed(self.steps, event.partition, self.steps.get(event.partition, 0) + 1)

    @on
    def _(self, event: control_events.StepTaken) -> None:
        self.steps = changed(self.steps, event.partition, max(0, self.steps.get(event.partition, 0) - 1))

    @on
    def _(self, event: control_events.ConsumerStopped, stored: SequencedEvent) -> None:
        self.last_error = Failure(event.position, event.error, stored.recorded_at)
        self.stops = changed(self.stops, event.partition, self.last_error)

    @on
    def _(self, event: control_events.ConsumerStalled, stored: SequencedEvent) -> None:
        stalled = Failure(event.position, event.reason, stored.recorded_at)
        self.stalls = changed(self.stalls, event.partition, stalled)

    @on
    def _(self, event: control_events.EventSetAside, stored: SequencedEvent) -> None:
        letter = DeadLetter(
            event.position, event.type, event.keys, event.error, event.attempts, stored.recorded_at, event.behind
        )
        self.dead_letters = changed(self.dead_letters, letter.position, letter)
        self.last_error = Failure(event.position, event.error, stored.recorded_at)

    @on
    def _(self, event: control_events.ReplayRequested) -> None:
        letter = self.dead_letters.get(event.position)
        if letter is not None:
            requested = msgspec.structs.replace(letter, replay=True)
            self.dead_letters = changed(self.dead_letters, event.position, requested)

    @on
    def _(self, event: control_events.DeadLetterHandled) -> None:
        self.dead_letters = without(self.dead_letters, event.position)

    @on
    def _(self, event: control_events.DeadLetterDiscarded) -> None:
        self.dead_letters = without(self.dead_letters, event.position)


TYPES: Final = Control.definition.types
PRESENCE: Final = frozenset({"fencepost.RunnerStarted", "fencepost.RunnerEnded"})
ALL: Final = Query.of(types=TYPES)
HANDLED: Final = "fencepost.ItemHandled"


def changed(values: Mapping[Key, Value], key: Key, value: Value) -> dict[Key, Value]:
    """A new dictionary, because other threads may iterate over the old one."""
    return {**values, key: value}


def without(values: Mapping[Key, Value], key: Key) -> dict[Key, Value]:
    return {each: value for each, value in values.items() if each != key}


def is_control(event_type: str) -> bool:
    return event_type in TYPES or event_type in PRESENCE or event_type == HANDLED


def fence(consumer: str, token: int, lease: str | None = None) -> AppendCondition:
    """The condition that since the token no newer lease was taken, and no reset or other division was recorded."""
    taken = QueryItem(types={"fencepost.LeaseTaken"}, tags={f"{LEASE}:{lease or consumer}"})
    anew = QueryItem(types={"fencepost.ConsumerReset", "fencepost.PartitionsChanged"}, tags={f"{NAME}:{consumer}"})
    return AppendCondition(Query([taken, anew]), after=token)


def heartbeat_name(slot: int) -> str:
    """The checkpoint that a process moves to show that it is alive: milliseconds since 1970."""
    return f"fencepost.heartbeat/{slot}"


def progress_name(lease: str, generation: int) -> str:
    """The checkpoint in which a leader reports the position that it keeps in another database."""
    return f"fencepost.progress/{lease}/{generation}"


def rate_name(lease: str) -> str:
    """The checkpoint in which a leader reports its throughput (`leases.packed_rate`)."""
    return f"fencepost.rate/{lease}"


def checkpoint_name(lease: str, generation: int) -> str:
    """The checkpoint of a consumer that keeps it in the store: the name of its lease. A reset begins another one."""
    return lease if generation == 0 else f"{lease}#{generation}"
