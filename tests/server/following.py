"""A consumer that follows a store behind a server: `occupancy`, which refuses chosen events."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic

import fencepost
from fencepost import Event, EventStore, SequencedEvent
from fencepost.consumers import Consumer, Failures, consumer, start, status
from fencepost.core.interrupts import pause
from fencepost.decisions import event

PATIENCE_S = 30.0


@event
class Added:
    number: int


def eventually(condition: Callable[[], bool]) -> None:
    """Wait until the condition holds."""
    deadline = monotonic() + PATIENCE_S
    while not condition():
        assert monotonic() < deadline, "the condition does not come to hold"
        pause(0.02)


def added(number: int) -> Event:
    return Event("Added", data=b'{"number": %d}' % number)


def occupancy(refused: set[int], *, then: str = "set aside") -> Consumer:
    @consumer("occupancy", lease_s=1, failures=Failures(attempts=1, base_s=0.01, then=then))  # type: ignore[arg-type]
    def follow(event: Added, stored: SequencedEvent) -> None:
        if event.number in refused:
            raise ValueError(f"number {event.number} is refused")

    return follow


@contextmanager
def following(address: str, refused: set[int], *, then: str = "set aside") -> Iterator[EventStore]:
    """The consumer runs on the store while the block does."""
    with fencepost.open(address) as store, start(store, occupancy(refused, then=then)):
        eventually(lambda: [each.state for each in status(store)] == ["running"])
        yield store


def occupancy_has_run(address: str) -> None:
    """The consumer has run once, and has stopped."""
    with following(address, set()):
        pass
