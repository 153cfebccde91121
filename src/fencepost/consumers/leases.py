"""Leases: at most one process makes progress with a partition of a consumer, and a replaced process cannot write.

A process takes the lease by recording `LeaseTaken`; the position of that event is the *fencing token*. The heartbeat of
the process keeps all of its leases alive (`presence`). Another process takes a lease over if it has seen no new
heartbeat for the length of the lease, measured by its own monotonic clock: clocks of machines are never compared.

A process can be suspended at any instant and go on later, believing that it still leads. So belief is not enough:
every write of a leader carries its token and is refused if the token is not the newest. In a store that is a
condition of the append, in a target database a comparison in the transaction. tests/consumers/test_taking_over.py
stops and continues real processes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from time import monotonic
from typing import Final

from .. import AppendCondition, Event, EventStore
from ..errors import CheckpointBehind, ConditionFailed
from .control_state import Control, fence, progress_name, rate_name
from .errors import LeaseLost
from .partitions import UNDIVIDED, Division
from .presence import Presence

RATE_BITS: Final = 20


class Lease:
    """The right to write for a partition of a consumer, as long as no newer token exists."""

    def __init__(
        self,
        store: EventStore,
        consumer: str,
        token: int,
        generation: int,
        lease_s: float,
        *,
        number: int = 0,
        division: Division = UNDIVIDED,
        presence: Presence,
    ) -> None:
        self.store = store
        self.consumer = consumer
        self.token = token
        self.generation = generation
        self.lease_s = lease_s
        self.number = number
        self.division = division
        self.name = self.division.lease_name(consumer, number)
        self.condition: AppendCondition = fence(consumer, token, self.name)
        self.lost = False
        self.valid_until = presence.beat_at + lease_s
        self._presence = presence
        self._session = presence.session
        self._reported = 0
        self._rate = 0

    @property
    def is_valid(self) -> bool:
        """Whether no other process can have taken over yet."""
        return not self.lost and monotonic() < self.valid_until and self._presence.session == self._session

    def belongs_to(self, control: Control) -> bool:
        """Whether the consumer was neither reset nor split in another way since the lease was taken."""
        return control.generation == self.generation and control.division == self.division

    def check(self) -> None:
        if not self.is_valid:
            raise LeaseLost(self.consumer, self.token)

    def extend(self, newest: Callable[[], int] | None = None) -> None:
        """Count from the last heartbeat of the process.

        If that came too late, another process may have taken over before it: then the lease goes on only if `newest`,
        the token of the newest lease, says that it is still this one.
        """
        beat_at = self._presence.beat_at
        if beat_at < self.valid_until or (newest is not None and not self.lost and newest() == self.token):
            self.valid_until = max(self.valid_until, beat_at + self.lease_s)

    def beat(self, position: int, rate: float = 0.0) -> None:
        """Report the position that the leader has reached and its events per second, if they have changed."""
        if position > self._reported:
            name = progress_name(self.name, self.generation)
            if position > self.store.checkpoint(name):
                self.append([], (name, position))
            self._reported = position
        rounded = round(rate) if rate >= 1 else 1 if rate > 0 else 0
        if rounded or self._rate:
            name = rate_name(self.name)
            self.append([], (name, max(packed_rate(rounded), self.store.checkpoint(name) + 1)))
            self._rate = rounded

    def append(self, events: Iterable[Event], checkpoint: tuple[str, int] | None = None) -> None:
        """Append as the leader. If a newer token exists, nothing is written, and the lease is lost."""
        try:
            self.store.append(events, self.condition, checkpoint=checkpoint)
        except (ConditionFailed, CheckpointBehind):
            self.lost = True
            raise LeaseLost(self.consumer, self.token) from None


def packed_rate(rate: int) -> int:
    """Events per second in the lowest 20 bits, below the time in milliseconds: a checkpoint has to grow."""
    return (int(time.time() * 1000) << RATE_BITS) | min(rate, (1 << RATE_BITS) - 1)


def unpacked_rate(value: int) -> tuple[float, int]:
    """When the rate was reported, in seconds since 1970, and the rate."""
    return (value >> RATE_BITS) / 1000, value & ((1 << RATE_BITS) - 1)
