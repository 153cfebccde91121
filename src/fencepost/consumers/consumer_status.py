"""The status of every consumer of a store, for operators: position, lag, lease, errors, and whether it is stalled.

Everything is read from the store, so it works from any process and needs no module of the program. A consumer whose
checkpoint is in another database reports its position with each heartbeat, so that position may be a third of a lease
old. A consumer that has events to handle is `stalled` if no process leads it for two leases, or if its leader has
recorded that it makes no progress: silence is never mistaken for health.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from datetime import datetime, timezone
from typing import Final, Literal

import msgspec

from .. import EventStore, Query
from ..decisions import project
from .control_events import NAME
from .control_state import Control, checkpoint_name, is_control, progress_name, rate_name
from .errors import NoSuchConsumer
from .leases import unpacked_rate
from .presence import Sessions

State = Literal["running", "paused", "stopped", "stalled", "not running"]

HEALTHY: Final = frozenset({"running", "paused", "not running"})
# The state of a consumer with partitions is the first of these that one of its partitions has.
ORDER: Final[tuple[State, ...]] = ("stopped", "paused", "stalled", "running", "not running")
MOST_LAG: Final = 10_000  # more events than this are not counted


class PartitionStatus(msgspec.Struct, frozen=True):
    """What is known about a partition of a consumer."""

    number: int
    state: State
    position: int
    lag_events: int
    lag_s: float
    throughput_per_s: int
    holder: str | None
    heartbeat_age_s: float | None


class ConsumerStatus(msgspec.Struct, frozen=True):
    """What is known about a consumer. `lag_events` is counted up to 10,000."""

    name: str
    state: State
    position: int
    head: int
    lag_events: int
    lag_s: float
    throughput_per_s: int
    holder: str | None
    heartbeat_age_s: float | None
    dead_letters: int
    paused_by: str | None
    error: str | None
    error_position: int | None
    error_age_s: float | None
    partitions: tuple[PartitionStatus, ...] = ()

    @property
    def healthy(self) -> bool:
        return self.state in HEALTHY


def names(store: EventStore) -> list[str]:
    """Every consumer that has ever run with its records in this store."""
    found = set()
    for event in store.read(Query.of(types={"fencepost.LeaseTaken"})):
        found |= {tag.removeprefix(f"{NAME}:") for tag in event.tags if tag.startswith(f"{NAME}:")}
    return sorted(found)


def status(store: EventStore, chosen: Iterable[str] = ()) -> list[ConsumerStatus]:
    """The status of these consumers, or of all whose records are in this store."""
    sessions = Sessions(store)
    sessions.refresh()
    return [status_of(project(store, Control(name)), store, sessions) for name in chosen or names(store)]


def position_of(control: Control, store: EventStore, number: int = 0) -> int:
    """The position that a partition of the consumer has reached, as far as the store knows."""
    lease, generation = control.division.lease_name(control.consumer, number), control.generation
    kept = store.checkpoint(checkpoint_name(lease, generation))
    reported = store.checkpoint(progress_name(lease, generation))
    return max(kept, reported, control.start if generation else 0)


def status_of(control: Control, store: EventStore, sessions: Sessions) -> ConsumerStatus:
    if not control.known:
        raise NoSuchConsumer(control.consumer)
    now, head = datetime.now(timezone.utc), store.head()
    numbers = range(control.division.partitions)
    positions = [position_of(control, store, number) for number in numbers]
    lags = _lags(control, store, positions, now)
    partitions = tuple(
        _partition(control, store, sessions, number, positions[number], *lags[number]) for number in numbers
    )
    states = [partition.state for partition in partitions]
    state = next(each for each in ORDER if each in states)
    stuck = [control.stalls[each.number] for each in partitions if each.number in control.stalls]
    error = stuck[0] if state == "stalled" and stuck else control.stopped or control.last_error
    holders = [partition.holder for partition in partitions if partition.holder is not None]
    ages = [partition.heartbeat_age_s for partition in partitions if partition.heartbeat_age_s is not None]
    return ConsumerStatus(
        name=control.consumer,
        state=state,
        position=min(positions),
        head=head,
        lag_events=sum(count for count, _ in lags),
        lag_s=round(max(seconds for _, seconds in lags), 3),
        throughput_per_s=sum(partition.throughput_per_s for partition in partitions),
        holder=", ".join(dict.fromkeys(holders)) or None,
        heartbeat_age_s=max(ages, default=None),
        dead_letters=len(control.dead_letters),
        paused_by=control.paused_by,
        error=None if error is None else error.error,
        error_position=None if error is None else error.position,
        error_age_s=None if error is None else round(max(0.0, (now - error.at).total_seconds()), 3),
        partitions=partitions if control.division.partitions > 1 else (),
    )


def _partition(
    control: Control,
    store: EventStore,
    sessions: Sessions,
    number: int,
    position: int,
    lag_events: int,
    lag_s: float,
) -> PartitionStatus:
    lease, stalled = control.leases.get(number), control.stalls.get(number)
    lease_s = control.lease_s if lease is None else lease.lease_s
    age_s = None
    if lease is not None and sessions.slots.get(lease.slot) == lease.session:
        age_s = round(max(0.0, time.time() - sessions.heartbeat(lease.slot) / 1000), 3)
    holder = None if lease is None else lease.holder
    alive = holder is not None and age_s is not None and age_s < 2 * lease_s
    stuck = stalled is not None and stalled.position >= position
    state: State
    if number in control.stops:
        state = "stopped"
    elif control.paused_by is not None:
        state = "paused"
    elif lag_events and (stuck or (not alive and lag_s >= 2 * lease_s)):
        state = "stalled"
    else:
        state = "running" if alive else "not running"
    at, rate = unpacked_rate(store.checkpoint(rate_name(control.division.lease_name(control.consumer, number))))
    fresh = alive and time.time() - at < lease_s
    return PartitionStatus(number, state, position, lag_events, round(lag_s, 3), rate if fresh else 0, holder, age_s)


def _lags(control: Control, store: EventStore, positions: list[int], now: datetime) -> list[tuple[int, float]]:
    """For each partition, how many events it has not handled yet, and the age of the oldest of them."""
    counts, oldest = [0] * len(positions), [now] * len(positions)
    for event in store.read(Query.from_json(control.query), after=min(positions), limit=MOST_LAG):
        if is_control(event.type):
            continue
        number = control.division.of(event)[0]
        if event.position > positions[number]:
            if counts[number] == 0:
                oldest[number] = event.recorded_at
            counts[number] += 1
    ages = [max(0.0, (now - each).total_seconds()) for each in oldest]
    return list(zip(counts, ages, strict=True))
