"""Commands to consumers: take and release a lease, pause, resume, reset, step, replay, discard.

Each command is a decision on `Control`, so two commands that contradict each other cannot both be recorded, and of
several processes that want the same lease exactly one gets it.
"""

from __future__ import annotations

import getpass
import os
import socket
from collections.abc import Iterable
from datetime import datetime

from .. import EventStore
from ..decisions import decision, project
from ..engine import checked_position
from ..errors import InvalidInput
from . import control_events
from .control_state import Control, DeadLetter
from .errors import CommandRefused, NoSuchConsumer
from .partitions import UNDIVIDED, Division, checked_division


@decision
def take_lease(
    control: Control,
    *,
    holder: str,
    lease_s: float,
    query: str,
    over: int,
    number: int = 0,
    division: Division = UNDIVIDED,
    slot: int = -1,
    session: int = 0,
) -> control_events.LeaseTaken | None:
    """Lead the partition, unless a lease other than `over` was taken or the division was changed meanwhile."""
    known = control.division if control.known else division
    if control.token_of(number) != over or not known.is_like(division):
        return None
    return control_events.LeaseTaken(
        *(control.consumer, holder, lease_s, query, known.lease_name(control.consumer, number)),
        *(slot, session, number, division.partitions, division.key),
    )


@decision
def release_lease(control: Control, *, holder: str, number: int = 0) -> control_events.LeaseReleased | None:
    """Lead the partition no longer, unless another process has taken the lease meanwhile."""
    lease = control.leases.get(number)
    if lease is None or lease.holder != holder:
        return None
    return control_events.LeaseReleased(control.consumer, holder, number)


@decision
def join(
    control: Control, *, holder: str, slot: int, session: int, lease_s: float
) -> control_events.WorkerJoined | None:
    """Take a share of the partitions."""
    known = control.workers.get(holder)
    if known is not None and known.session == session:
        return None
    return control_events.WorkerJoined(control.consumer, holder, slot, session, lease_s)


@decision
def leave(control: Control, *, holder: str, by: str) -> control_events.WorkerLeft | None:
    """Take no share any more, or say so of another process that has died."""
    return control_events.WorkerLeft(control.consumer, holder, by) if holder in control.workers else None


@decision
def _repartition(control: Control, *, division: Division, by: str) -> control_events.PartitionsChanged | None:
    name = _known(control)
    if control.division.is_like(division):
        return None
    return control_events.PartitionsChanged(name, division.partitions, division.key, by)


@decision
def _pause(control: Control, *, by: str, reason: str) -> control_events.ConsumerPaused | None:
    name = _known(control)
    return None if control.paused_by is not None else control_events.ConsumerPaused(name, by, reason)


@decision
def _resume(control: Control, *, by: str) -> control_events.ConsumerResumed | None:
    name = _known(control)
    if control.paused_by is None and control.stopped is None:
        return None
    return control_events.ConsumerResumed(name, by)


@decision
def _reset(control: Control, *, position: int, by: str) -> control_events.ConsumerReset:
    return control_events.ConsumerReset(_known(control), position, by)


@decision
def _step(control: Control, *, partition: int | None, by: str) -> control_events.StepRequested:
    name, partitions = _known(control), control.division.partitions
    if control.paused_by is None:
        raise CommandRefused(f"consumer {name!r} is not paused; pause it before stepping")
    if partition is None and partitions > 1:
        raise CommandRefused(f"consumer {name!r} has {partitions} partitions; say which of them, from 0 on")
    if partition is not None and not 0 <= partition < partitions:
        raise CommandRefused(f"consumer {name!r} has no partition {partition}, only 0 to {partitions - 1}")
    return control_events.StepRequested(name, by, partition or 0)


@decision
def _replay(control: Control, *, positions: tuple[int, ...], by: str) -> list[control_events.ReplayRequested]:
    letters = _letters(control, positions)
    return [
        control_events.ReplayRequested(control.consumer, letter.position, by) for letter in letters if not letter.replay
    ]


@decision
def _discard(control: Control, *, positions: tuple[int, ...], by: str) -> list[control_events.DeadLetterDiscarded]:
    return [
        control_events.DeadLetterDiscarded(control.consumer, letter.position, by)
        for letter in _letters(control, positions)
    ]


def pause(store: EventStore, name: str, *, by: str | None = None, reason: str = "") -> bool:
    """Pause the consumer after the batch that it is handling. False: it is paused already."""
    return bool(_pause(store, Control(name), by=by or this_user(), reason=reason).events)


def resume(store: EventStore, name: str, *, by: str | None = None) -> bool:
    """Go on after a pause or a failure. False: the consumer was neither paused nor stopped."""
    return bool(_resume(store, Control(name), by=by or this_user()).events)


def reset(store: EventStore, name: str, *, position: int = 0, to: datetime | None = None, by: str | None = None) -> int:
    """Have the consumer handle everything after the position again, or everything that was recorded since `to`.

    Dead letters above the position are dropped. Returns the position.
    """
    checked_position(position, "position")
    if to is not None:
        if position:
            raise InvalidInput("to", "a consumer is reset either to a position or to a time, not to both")
        position = position_before(store, to)
    head = store.head()
    if position > head:
        raise CommandRefused(f"consumer {name!r} cannot be reset to {position}: the log ends at {head}")
    _reset(store, Control(name), position=position, by=by or this_user())
    return position


def position_before(store: EventStore, moment: datetime) -> int:
    """The position before the first event that was recorded at the time or later.

    Reads all earlier events, because a clock that was set back can put times out of order.
    """
    if moment.tzinfo is None:
        raise InvalidInput("to", f"{moment} has no time zone; give one, such as timezone.utc")
    position = 0
    for event in store.read():
        if event.recorded_at >= moment:
            break
        position = event.position
    return position


def step(store: EventStore, name: str, *, partition: int | None = None, by: str | None = None) -> None:
    """Have a paused consumer handle one event. A consumer with partitions needs to be told which of them."""
    _step(store, Control(name), partition=partition, by=by or this_user())


def repartition(
    store: EventStore, name: str, *, partitions: int, key: str | None = None, by: str | None = None
) -> bool:
    """Split the events of the consumer in another way. False: they are split in this way already.

    Running processes that declare the consumer as before end with `PartitionsDiffer`; start those with the new
    declaration. What was handled before is not handled again, and the order of each key is kept.
    """
    division = checked_division(partitions, key)
    return bool(_repartition(store, Control(name), division=division, by=by or this_user()).events)


def dead_letters(store: EventStore, name: str) -> list[DeadLetter]:
    """The events that the consumer has set aside, in order of position."""
    return _letters(project(store, Control(name)), ())


def dead_letter(store: EventStore, name: str, position: int) -> DeadLetter:
    """The event at the position, which the consumer has set aside."""
    return _letters(project(store, Control(name)), (position,))[0]


def replay(store: EventStore, name: str, positions: Iterable[int] = (), *, by: str | None = None) -> int:
    """Have the leader handle these dead letters again, or all of them. Returns how many were newly requested."""
    return len(_replay(store, Control(name), positions=tuple(positions), by=by or this_user()).events)


def discard(store: EventStore, name: str, positions: Iterable[int] = (), *, by: str | None = None) -> int:
    """Drop these dead letters, or all of them. Returns how many."""
    return len(_discard(store, Control(name), positions=tuple(positions), by=by or this_user()).events)


def this_user() -> str:
    """Who gives a command, if the caller does not say: the user and the machine."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # no such user, as in some containers
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"


def _known(control: Control) -> str:
    if not control.known:
        raise NoSuchConsumer(control.consumer)
    return control.consumer


def _letters(control: Control, positions: tuple[int, ...]) -> list[DeadLetter]:
    _known(control)
    missing = [position for position in positions if position not in control.dead_letters]
    if missing:
        raise CommandRefused(f"consumer {control.consumer!r} has no dead letter at position {missing[0]}")
    chosen = positions or tuple(control.dead_letters)
    return [control.dead_letters[position] for position in sorted(chosen)]
