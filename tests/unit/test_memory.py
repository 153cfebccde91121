"""The memory engine changes records and events in one step, as its readers see it."""

from __future__ import annotations

from collections.abc import Sequence

from fencepost import Event, EventStore, Put, Record
from fencepost.engines.memory import MemoryEngine
from fencepost.testing.contract.base import BLOCKED_S, Running


def test_a_record_is_not_seen_before_the_events_of_its_append() -> None:
    readers: list[Running[tuple[Record | None, int]]] = []

    class ObservedEngine(MemoryEngine):
        def stage(self, events: Sequence[Event]) -> None:
            """By now the record has been changed, and the events have not been stored."""
            readers.append(Running(lambda: (store.records.get("name"), store.head())))
            readers[0].ended(BLOCKED_S)
            super().stage(events)

    with EventStore(ObservedEngine()) as store:
        store.append([Event("A")], records=[Put("name", b"", 0)])
        assert readers[0].result() == (Record("name", b"", 1), 1)
