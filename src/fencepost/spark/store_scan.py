"""Reading through the store itself: for engines without a way of their own, and for queries.

A query is answered by the engine's index, event by event; that is slower for each event than the
bulk paths and much faster when few events match.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from ..engine import Recording
from ..errors import InvalidInput
from ..model import Query, SequencedEvent
from ..opening import open as open_address
from ..store import EventStore
from .arrow import from_events
from .recorded import batch_of
from .scanning import even_borders
from .selection import Selection

BATCH_EVENTS: Final = 16_384
BATCH_BYTES: Final = 16_777_216


@dataclass(frozen=True)
class StoreScan:
    address: str

    def open(self) -> EventStore:
        if self.address == "memory:":
            raise InvalidInput("option 'store'", "memory: ends with its process, and Spark's workers are others")
        return open_address(self.address)

    def borders(self, store: EventStore, selection: Selection, parts: int) -> Sequence[int]:
        return even_borders(selection, parts)

    def recorded(self, after: int, upto: int) -> Iterator[pa.RecordBatch]:
        with self.open() as store:
            if isinstance(store._engine, Recording):
                for page in store.recorded_pages(after, upto):
                    yield batch_of(page)

    def batches(self, selection: Selection, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        with self.open() as store:
            yield from read_batches(store, selection, columns)


def read_batches(store: EventStore, selection: Selection, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    reading = store.read(query_of(selection), after=selection.after, upto=selection.upto)
    held: list[SequencedEvent] = []
    size = 0
    while page := reading.page():
        held += page
        size += sum(len(event.data) for event in page)
        if len(held) >= BATCH_EVENTS or size >= BATCH_BYTES:
            yield from_events(held, columns)
            held, size = [], 0
    if held:
        yield from_events(held, columns)


def query_of(selection: Selection) -> Query:
    """The query, or one for the types that Spark filters by, when that is all that is asked for."""
    if selection.types and selection.query.matches_all:
        try:
            return Query.of(types=selection.types)
        except InvalidInput:  # types that no event can have; Spark's own filter deals with them
            pass
    return selection.query
