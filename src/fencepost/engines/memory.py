"""The reference engine: a list of events in memory, and the definition of matching.

It is the shortest correct code, and other engines are compared with it in tests. Its events end with the process. To
judge a condition, it looks at every event after the condition's `after`.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from itertools import islice
from operator import attrgetter
from typing import Any, Final
from uuid import UUID

from ..address import Address
from ..buckets import matches
from ..core.engine import Capability
from ..core.judging import Append, Verdict, judge, records_of
from ..errors import InvalidInput, StoreUnavailable
from ..interrupts import Waiters
from ..model import Query, RecordedAppend, SequencedEvent

PAGE_EVENTS: Final = 1_024


def open_engine(address: Address, **options: Any) -> MemoryEngine:
    return MemoryEngine(**options)


class MemoryEngine:
    """An engine that is also the `Ledger` against which its batches are judged."""

    capabilities: Final = Capability.GROUP_COMMIT | Capability.RECORD | Capability.RESTORE

    def __init__(self, *, create: bool = True, record_conditions: bool = False) -> None:
        """A store in memory is always new. `create` exists because every engine has this option."""
        if not create:
            raise StoreUnavailable("memory: create=False was given, but a store in memory is always a new one")
        self._changing = threading.Lock()
        self._changed = Waiters()
        self._events: list[SequencedEvent] = []
        self._checkpoints: dict[str, int] = {}
        self._positions: dict[UUID, int] = {}
        self._records_conditions = record_conditions
        self._recorded: list[RecordedAppend] = []
        self._interrupts = 0

    def commit(self, appends: Sequence[Append]) -> Sequence[Verdict]:
        with self._changing:
            verdicts = judge(appends, self)
            if self._records_conditions:
                self._recorded.extend(records_of(appends, verdicts))
        self._changed.notify_all()
        return verdicts

    def scan(
        self, query: Query, *, after: int, upto: int, limit: int | None = None, backwards: bool = False
    ) -> Iterator[Sequence[SequencedEvent]]:
        # The list only grows and positions count from 1, so a slice of it is a consistent prefix.
        span = range(after, min(upto, len(self._events)))
        candidates = (self._events[index] for index in (reversed(span) if backwards else span))
        found = islice((event for event in candidates if matches(event, query)), limit)
        while page := list(islice(found, PAGE_EVENTS)):
            yield page

    def head(self) -> int:
        return len(self._events)

    def wait(self, after: int, timeout_s: float) -> int:
        interrupts = self._interrupts
        self._changed.wait_for(lambda: len(self._events) > after or self._interrupts > interrupts, timeout_s)
        return len(self._events)

    def interrupt(self) -> None:
        self._interrupts += 1
        self._changed.notify_all()

    def checkpoint(self, name: str) -> int:
        return self._checkpoints.get(name, 0)

    def close(self) -> None:
        self.interrupt()

    def recorded(self, *, after: int, upto: int) -> Iterator[Sequence[RecordedAppend]]:
        with self._changing:  # `commit` stores events before their conditions, under this lock
            low, high = (bisect_right(self._recorded, end, key=attrgetter("last")) for end in (after, upto))
        for start in range(low, high, PAGE_EVENTS):
            yield self._recorded[start : min(start + PAGE_EVENTS, high)]

    def restore(self, events: Sequence[SequencedEvent], appends: Sequence[RecordedAppend] = ()) -> None:
        with self._changing:
            for position, event in enumerate(events, start=len(self._events) + 1):
                if event.position != position:
                    raise InvalidInput("events", f"the next position is {position}, not {event.position}")
                if event.id in self._positions:
                    raise InvalidInput(
                        "events", f"the id {event.id} of the event at position {position} is stored already"
                    )
            self._events.extend(events)
            self._positions.update((event.id, event.position) for event in events if event.id is not None)
            self._recorded.extend(appends)
        self._changed.notify_all()

    def first_match(self, query: Query, after: int) -> int | None:
        page = next(self.scan(query, after=after, upto=len(self._events), limit=1), None)
        return page[0].position if page else None

    def position_of(self, id: UUID) -> int | None:
        return self._positions.get(id)

    def stage(self, append: Append) -> None:
        """Store the append at once, since nothing can fail after this."""
        now = datetime.now(timezone.utc)
        stored = [
            SequencedEvent(position, event.type, event.tags, event.data, now, event.id, event.metadata)
            for position, event in enumerate(append.events, start=len(self._events) + 1)
        ]
        self._events.extend(stored)  # in one step, so that a reader sees the whole append or nothing of it
        self._positions.update((event.id, event.position) for event in stored if event.id is not None)
        if append.checkpoint is not None:
            self._checkpoints.update([append.checkpoint])
