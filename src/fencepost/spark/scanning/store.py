"""Scanning through the store's own readings: for engines without a bulk form, and for every query.

The engine's index answers a query, event by event. That is slower for each event than the bulk scans and much faster
when few events match.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

import pyarrow as pa

from ... import EventStore, Query, SequencedEvent
from ... import open as open_address
from ...engine import MEMORY, Address, Capability, engine_of, recorded
from ...errors import InvalidInput
from ..basics import even_borders
from .appends import batch_of
from .arrow import from_events
from .selection import Selection

PAGE_EVENTS: Final = 1_024
BATCH_EVENTS: Final = 16_384
BATCH_BYTES: Final = 16_777_216


@dataclass(frozen=True)
class StoreScan:
    address: Address

    def open(self) -> EventStore:
        if self.address.kind is MEMORY:
            raise InvalidInput(
                "option 'store'", "Spark's workers are other processes and cannot read a store in memory"
            )
        return open_address(self.address)

    def borders(self, store: EventStore, selection: Selection, parts: int) -> Sequence[int]:
        return even_borders(selection.after, selection.up_to, parts)

    def recorded(self, after: int, up_to: int) -> Iterator[pa.RecordBatch]:
        with self.open() as store:
            if Capability.RECORDED_APPENDS in engine_of(store).capabilities:
                appends = recorded(store, after=after, up_to=up_to)
                while page := list(islice(appends, PAGE_EVENTS)):
                    yield batch_of(page)

    def batches(self, selection: Selection, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        with self.open() as store:
            yield from read_batches(store, selection, columns)


def read_batches(store: EventStore, selection: Selection, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    held: list[SequencedEvent] = []
    size = 0
    for event in store.read(query_of(selection), after=selection.after, up_to=selection.up_to):
        if held and (len(held) == BATCH_EVENTS or size + len(event.data) > BATCH_BYTES):
            yield from_events(held, columns)
            held, size = [], 0
        held.append(event)
        size += len(event.data)
    if held:
        yield from_events(held, columns)


def query_of(selection: Selection) -> Query:
    """The query; one for the filtered types if there is no other."""
    if selection.types and selection.query.matches_all:
        try:
            return Query.of(types=selection.types)
        except InvalidInput:  # no event can have such a type; Spark's own filter drops all rows
            pass
    return selection.query
