"""The reference engine: a list of events in memory, and the definition of matching.

It is the shortest correct code, and other engines are compared with it in tests. Its events end with the process. To
judge a condition, it looks at every event after the condition's `after`.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from heapq import nsmallest
from itertools import islice
from operator import attrgetter
from typing import Final, Unpack
from uuid import UUID

from ..buckets import matches
from ..core.address import Address
from ..core.engine import Capability
from ..core.interrupts import Waiters
from ..core.options import MemoryOptions
from ..core.record_keys import key_range
from ..core.verdicts import Append, Changes, Verdict, judge, recorded_appends_of
from ..errors import InvalidInput, StoreUnavailable
from ..model import Event, Query, Record, RecordedAppend, SequencedEvent

PAGE_EVENTS: Final = 1_024


def open_engine(address: Address, **options: Unpack[MemoryOptions]) -> MemoryEngine:
    return MemoryEngine(**options)


class MemoryEngine:
    """An engine that is also the `Ledger` against which its batches are judged."""

    capabilities: Final = Capability.GROUP_COMMIT | Capability.RECORDED_APPENDS | Capability.RESTORE

    def __init__(self, *, create: bool = True, record_conditions: bool = False) -> None:
        """A store in memory is always new. `create` exists because every engine has this option."""
        if not create:
            raise StoreUnavailable("memory: create=False was given, but a store in memory is always a new one")
        self._changing = threading.RLock()  # taken again where `judge` reads a record
        self._changed = Waiters()
        self._events: list[SequencedEvent] = []
        self._records: dict[str, Record] = {}
        self._positions: dict[UUID, int] = {}
        self._records_conditions = record_conditions
        self._recorded: list[RecordedAppend] = []
        self._interrupts = 0

    def commit(self, appends: Sequence[Append]) -> Sequence[Verdict]:
        with self._changing:
            verdicts = judge(appends, self)
            if self._records_conditions:
                self._recorded.extend(recorded_appends_of(appends, verdicts))
        self._changed.notify_all()
        return verdicts

    def scan(
        self, query: Query, *, after: int, up_to: int, limit: int | None = None, backwards: bool = False
    ) -> Iterator[Sequence[SequencedEvent]]:
        # The list only grows and positions count from 1, so a slice of it is a consistent prefix.
        span = range(after, min(up_to, len(self._events)))
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

    def record(self, key: str) -> Record | None:
        with self._changing:  # an append stores records and events under this lock, so a reader sees both or neither
            return self._records.get(key)

    def records(self, prefix: str, *, after: str, limit: int) -> Sequence[Record]:
        begin, end = key_range(prefix, after)
        with self._changing:
            keys = nsmallest(limit, (key for key in self._records if begin <= key < end))
            return [self._records[key] for key in keys]

    def close(self) -> None:
        self.interrupt()

    def recorded(self, *, after: int, up_to: int) -> Iterator[Sequence[RecordedAppend]]:
        with self._changing:  # `commit` stores events before their conditions, under this lock
            low, high = (bisect_right(self._recorded, end, key=attrgetter("last")) for end in (after, up_to))
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
        page = next(self.scan(query, after=after, up_to=len(self._events), limit=1), None)
        return page[0].position if page else None

    def position_of(self, id: UUID) -> int | None:
        return self._positions.get(id)

    def stage(self, events: Sequence[Event]) -> None:
        """Store the events at once, since nothing can fail after this."""
        now = datetime.now(timezone.utc)
        stored = [
            SequencedEvent(position, event.type, event.tags, event.data, now, event.id, event.raw_metadata)
            for position, event in enumerate(events, start=len(self._events) + 1)
        ]
        self._events.extend(stored)  # in one step, so that a reader sees the whole append or nothing of it
        self._positions.update((event.id, event.position) for event in stored if event.id is not None)

    def stage_records(self, changes: Changes) -> None:
        for key, record in changes.items():
            if record is None:
                del self._records[key]
            else:
                self._records[key] = record
