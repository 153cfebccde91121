"""Meetings: partitions wait for each other at an event that belongs to several of them, so each key keeps its order.

The owner, the lowest of the partitions, handles the event when the others have handled everything before it. The others
go on when the owner's checkpoint has reached the event. Each waits only for work at lower positions, so partitions
cannot wait for each other in a circle. They see each other only through checkpoints, which are committed with their
effects, so it does not matter which process leads which partition, or that it is killed
(tests/consumers/test_partitions.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from ..interrupts import Wakeup
from .leases import Lease
from .targets import Target

LOOK_S: Final = (0.002, 0.05)  # the first and the longest wait between two looks at other partitions


class Meeting:
    """The event at `position`, as seen by the leader of one of its partitions."""

    def __init__(self, lease: Lease, target: Target, partitions: Sequence[int], position: int) -> None:
        self._lease = lease
        self._target = target
        self._position = position
        owner = partitions[0]
        self.owns = owner == lease.number
        self._awaited = partitions[1:] if self.owns else (owner,)
        self._upto = position - 1 if self.owns else position

    def __str__(self) -> str:
        others = " and ".join(map(str, self._awaited))
        return f"the event at position {self._position} waits until partition {others} has reached {self._upto}"

    def wait(self, wakeup: Wakeup, interrupted: Callable[[], bool]) -> bool:
        """Wait for the others. False: interrupted."""
        lease = self._lease
        names = [lease.division.lease_name(lease.consumer, each) for each in self._awaited]
        wait_s = LOOK_S[0]
        while min(self._target.positions(names).values()) < self._upto:
            lease.check()
            if interrupted():
                return False
            wakeup.wait(wait_s)
            wait_s = min(wait_s * 2, LOOK_S[1])
        return True
