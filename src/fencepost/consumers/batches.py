"""Batches: what a worker reads, cut into pieces that it handles in one transaction each.

A batch is some events, the position up to which nothing is left to handle once they are handled, and the partitions
that *meet* there: an event of several partitions is a batch by itself, and everything before it is a batch that ends
just below it. A partition reads the events of the whole consumer and leaves out those of other partitions, which costs
much less than handling them. It also leaves out what was handled before the division was changed, and nothing else
(tests/consumers/test_partitions.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final, NamedTuple

from ..core.readings import Reading
from ..model import SequencedEvent
from .divisions import Division, HandledBefore

SEEN: Final = 10_000  # the cursor moves after this number of events, though all of them belong to other partitions


class Batch(NamedTuple):
    events: Sequence[SequencedEvent]
    upto: int
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
