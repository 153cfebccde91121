"""What is known and recorded about failures: attempts in memory, stops and dead letters in the store.

Attempts are counted in memory, so a process that is restarted begins to count again. Their outcome is recorded before
the checkpoint moves past the event: after a crash in between, the event is found among the dead letters and skipped.
Every record carries the condition of the lease, so a deposed leader records nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from time import monotonic
from typing import Any

from .. import EventStore, SequencedEvent
from ..decisions import encode, project
from ..decisions.inspection import query_of
from ..engine import Observation, has_observers, notify, shielded
from .control_events import ConsumerStalled, ConsumerStopped, DeadLetterHandled, EventSetAside
from .control_state import Control
from .declaration import Consumer, Failures
from .errors import ConsumerError, LeaseLost
from .leases import Lease
from .observations import HandlingFailed, HandlingGivenUp, Stalled, log

LONGEST_ERROR = 2_000


class TargetTrouble(ConsumerError):
    """The target or the store failed, not the handler: the batch is tried again, and no event is blamed.

    `retry_after_s` says when, if the target knows better than the usual backoff.
    """

    def __init__(self, error: BaseException, *, retry_after_s: float | None = None) -> None:
        super().__init__(text_of(error))
        self.retry_after_s = retry_after_s


def text_of(error: BaseException) -> str:
    """The error in a form that fits into an event."""
    return f"{type(error).__name__}: {error}"[:LONGEST_ERROR]


class Attempts(dict[int, tuple[int, float, str]]):
    """For each event that has failed: how often, when to try again, and the last error."""

    def failed(self, store: EventStore, consumer: Consumer, event: SequencedEvent, error: str) -> None:
        count = self[event.position][0] + 1 if event.position in self else 1
        self[event.position] = (count, monotonic() + consumer.failures.wait_s(count), error)
        log.warning(
            "consumer %r: attempt %d of %d to handle %s at position %d failed: %s",
            *(consumer.name, count, consumer.failures.attempts, event.type, event.position, error),
        )
        if has_observers():
            notify(store, HandlingFailed(consumer.name, event.position, count, error))


class State:
    """What is recorded about a consumer, kept up to date for all of its partitions in this process."""

    def __init__(self, store: EventStore, consumer: str) -> None:
        self.store = store
        self._lock = threading.Lock()
        self._template = Control(consumer)
        self._query = query_of([self._template])
        self.control: Control = project(store, self._template)
        self.held = _held(self.control)

    def refresh(self) -> Control:
        """Apply what was recorded since. The state is replaced as a whole, since other threads read it."""
        with shielded, self._lock:
            events = list(self.store.read(self._query, after=self.control.position))
            if events:
                fresh = Control(self.control.consumer)
                fresh.__dict__.update(self.control.__dict__)
                for event in events:
                    fresh.apply(event)
                self.held = _held(fresh)
                self.control = fresh
            return self.control


class Recorder:
    """Records what the leader of a partition decides about it."""

    def __init__(self, state: State, number: int = 0) -> None:
        self.state = state
        self.store = state.store
        self.number = number
        self.lease: Lease | None = None
        self.refresh = state.refresh

    @property
    def control(self) -> Control:
        return self.state.control

    def held_by(self, keys: Iterable[str], before: int | None = None) -> int | None:
        """The first dead letter that has one of the keys, if there is one, or one before the position."""
        held = self.state.held
        found = min((held[key] for key in keys if key in held), default=None)
        return found if found is None or before is None or found < before else None

    def is_set_aside(self, event: SequencedEvent, failures: Failures) -> bool:
        """Whether the event is a dead letter, or is made one because it follows one of the same key."""
        letters = self.control.dead_letters
        if not letters or event.position in letters:
            return bool(letters)
        keys = failures.keys_of(event)
        behind = self.held_by(keys)
        if behind is None:
            return False
        self.set_aside(event, keys, f"held back behind the event at position {behind}", 0, behind)
        return True

    def record(self, event: Any) -> None:
        """Store a record of the leader, unless its lease is lost."""
        lease = self.lease
        if lease is None:  # another thread of this process has just lost it
            raise LeaseLost(self.control.consumer, self.control.token_of(self.number))
        lease.append([encode(event)])
        self.refresh()

    def stopped(self, event: SequencedEvent, error: str, attempts: int) -> None:
        name = self.control.consumer
        log.error(
            "consumer %r stopped at position %d after %d attempts: %s; resume it after the cause is mended",
            *(name, event.position, attempts, error),
        )
        self.record(ConsumerStopped(name, event.position, error, attempts, self.number))
        self._tell(HandlingGivenUp(name, event.position, attempts, error, "stopped"))

    def stalled(self, position: int, seconds: float, reason: str) -> None:
        name = self.control.consumer
        log.error("consumer %r is stalled at position %d for %.1f s: %s", name, position, seconds, reason)
        self._tell(Stalled(name, position, seconds, reason))
        self.record(ConsumerStalled(name, position, seconds, reason, self.number))

    def set_aside(
        self, event: SequencedEvent, keys: tuple[str, ...], error: str, attempts: int, behind: int | None
    ) -> None:
        name = self.control.consumer
        log.error("consumer %r set aside %s at position %d: %s", name, event.type, event.position, error)
        self.record(EventSetAside(name, event.position, event.type, keys, error, attempts, behind))
        self._tell(HandlingGivenUp(name, event.position, attempts, error, "set aside"))

    def _tell(self, observation: Observation) -> None:
        if has_observers():
            notify(self.store, observation)

    def replayed(self, position: int) -> None:
        self.record(DeadLetterHandled(self.control.consumer, position))


def _held(control: Control) -> dict[str, int]:
    """The first dead letter of each key."""
    held: dict[str, int] = {}
    for position in sorted(control.dead_letters, reverse=True):
        for key in control.dead_letters[position].keys:
            held[key] = position
    return held
