"""Batches: what a worker reads, cut into pieces that it handles in one transaction each.

A batch is some events, the position up to which nothing is left to handle once they are handled, and the partitions
that *meet* there: an event of several partitions is a batch by itself, and everything before it is a batch that ends
just below it. A partition reads the events of the whole consumer and leaves out those of other partitions, which costs
much less than handling them. It also leaves out what was handled before the division was changed, and nothing else.

Partitions wait for each other at an event that belongs to several of them, so each key keeps its order. The owner, the
lowest of the partitions, handles the event when the others have handled everything before it. The others go on when the
owner's checkpoint has reached the event. Each waits only for work at lower positions, so partitions cannot wait for
each other in a circle. They see each other only through checkpoints, which are committed with their effects, so it does
not matter which process leads which partition, or that it is killed (tests/consumers/test_partitions.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Final, NamedTuple

from .. import Reading, SequencedEvent
from ..engine import Wakeup
from .leases import Lease
from .partitions import Division, HandledBefore
from .targets import Target

SEEN: Final = 10_000  # the cursor moves after this number of events, though all of them belong to other partitions
LOOK_S: Final = (0.002, 0.05)  # the first and the longest wait between two looks at other partitions


class Batch(NamedTuple):
    events: Sequence[SequencedEvent]
    up_to: int
    meeting: Sequence[int] = ()

    def events_of(self, number: int) -> Sequence[SequencedEvent]:
        """The events that the partition has to handle: none if another one is the owner."""
        return self.events if not self.meeting or self.meeting[0] == number else ()


def whole_batches(reading: Reading, size: int) -> Iterator[Batch]:
    """All events of the reading."""
    events = iter(reading)
    while batch := list(islice(events, size)):
        yield Batch(batch, batch[-1].position if len(batch) == size else reading.head)
    yield Batch((), reading.head)


def own_batches(reading: Reading, size: int, division: Division, number: int, before: HandledBefore) -> Iterator[Batch]:
    """The events of one partition that were not handled before."""
    batch: list[SequencedEvent] = []
    seen = 0
    for event in reading:
        seen += 1
        places = division.of(event)
        if number in places and event not in before:
            if len(places) > 1:
                yield Batch(batch, event.position - 1)
                yield Batch((event,), event.position, places)
                batch, seen = [], 0
                continue
            batch.append(event)
        if len(batch) == size or seen >= SEEN:
            yield Batch(batch, event.position)
            batch, seen = [], 0
    yield Batch(batch, reading.head)


class Meeting:
    """The event at `position`, as seen by the leader of one of its partitions."""

    def __init__(self, lease: Lease, target: Target, partitions: Sequence[int], position: int) -> None:
        self._lease = lease
        self._target = target
        self._position = position
        owner = partitions[0]
        self.owns = owner == lease.number
        self._awaited = partitions[1:] if self.owns else (owner,)
        self._up_to = position - 1 if self.owns else position

    def __str__(self) -> str:
        others = " and ".join(map(str, self._awaited))
        return f"the event at position {self._position} waits until partition {others} has reached {self._up_to}"

    def wait(self, wakeup: Wakeup, interrupted: Callable[[], bool]) -> bool:
        """Wait for the others. False: interrupted."""
        lease = self._lease
        names = [lease.division.lease_name(lease.consumer, each) for each in self._awaited]
        wait_s = LOOK_S[0]
        while min(self._target.positions(names).values()) < self._up_to:
            lease.check()
            if interrupted():
                return False
            wakeup.wait(wait_s)
            wait_s = min(wait_s * 2, LOOK_S[1])
        return True
