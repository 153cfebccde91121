"""The reference engine: a list of events, and the definition of matching.

It is the shortest code that is right, and what the others are tested against. Nothing outlives
the process. Conditions are judged by looking at every event after their `after`.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from itertools import islice
from operator import attrgetter
from typing import Final
from uuid import UUID

from ..buckets import matches
from ..commit import Append, Verdict, judge, records_of
from ..errors import InvalidInput, StoreUnavailable
from ..model import Query, RecordedAppend, SequencedEvent

PAGE_EVENTS: Final = 1_024


class MemoryEngine:
    """An engine, and at the same time the ledger that its batches are judged against."""

    group_commit: Final = True

    def __init__(self, *, create: bool = True, record_conditions: bool = False) -> None:
        """A store in memory is always a new one; `create` is there because every engine has it."""
        if not create:
            raise StoreUnavailable("memory: there is no such store")
        self._changing = threading.Lock()  # taken by itself: an interrupt in a condition's own `with` would keep it
        self._changed = threading.Condition(self._changing)
        self._events: list[SequencedEvent] = []
        self._checkpoints: dict[str, int] = {}
        self._positions: dict[UUID, int] = {}
        self._records_conditions = record_conditions
        self._recorded: list[RecordedAppend] = []

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
        with self._changing:
            if len(self._events) <= after:
                self._changed.wait(timeout_s)
            return len(self._events)

    def interrupt(self) -> None:
        with self._changing:
            self._changed.notify_all()

    def checkpoint(self, name: str) -> int:
        return self._checkpoints.get(name, 0)

    def close(self) -> None:
        self.interrupt()

    def recorded(self, *, after: int, upto: int) -> Iterator[Sequence[RecordedAppend]]:
        with self._changing:  # events are there a moment before their record, but never without the lock
            low, high = (bisect_right(self._recorded, end, key=attrgetter("last")) for end in (after, upto))
        for start in range(low, high, PAGE_EVENTS):
            yield self._recorded[start : min(start + PAGE_EVENTS, high)]

    def restore(self, events: Sequence[SequencedEvent], appends: Sequence[RecordedAppend] = ()) -> None:
        with self._changing:
            for position, event in enumerate(events, start=len(self._events) + 1):
                if event.position != position:
                    raise InvalidInput("events", f"position {position} is next, not {event.position}")
                if event.id in self._positions:
                    raise InvalidInput("events", f"the id {event.id} of position {position} is stored already")
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
        """Nothing can fail after this, so what is staged is stored."""
        now = datetime.now(timezone.utc)
        stored = [
            SequencedEvent(position, event.type, event.tags, event.data, now, event.id, event.metadata)
            for position, event in enumerate(append.events, start=len(self._events) + 1)
        ]
        self._events.extend(stored)  # in one step: a reader sees the whole append or nothing of it
        self._positions.update((event.id, event.position) for event in stored if event.id is not None)
        if append.checkpoint is not None:
            self._checkpoints.update([append.checkpoint])
