"""How to read each kind of store, and where to cut it into partitions.

Three things are asked of a store, in two places. On the driver: how far does it reach, and where
are the borders between partitions. In a worker: the batches of one partition. Whatever is between
two positions never changes once a head beyond them was seen, so partitions that are read at
different times, by different processes, make up one consistent prefix of the log.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final, Protocol

import pyarrow as pa

from ..store import EventStore
from .selection import Selection

SMALL_EVENTS: Final = 20_000  # are read by one task: starting another takes longer than reading them
LARGE_EVENTS: Final = 1_000_000  # are the most for one task, so that a lost one costs little to repeat


class Scan(Protocol):
    """A store, as a value that travels to the workers."""

    def open(self) -> EventStore:
        """The store itself; on the driver."""

    def borders(self, store: EventStore, selection: Selection, parts: int) -> Sequence[int]:
        """Positions that cut the selection into about `parts` parts of about as many events; on the driver."""

    def recorded(self, after: int, upto: int) -> Iterator[pa.RecordBatch]:
        """The recorded appends with after < last <= upto, in order, as `recorded.SCHEMA` has them; in a worker."""

    def batches(self, selection: Selection, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """The selected events in the stored form, in order, with more events at worst; in a worker."""


def scan_of(address: str) -> Scan:
    """How the store at the address is read."""
    from .lake_scan import LakeScan
    from .postgres_scan import PostgresScan
    from .sqlite_scan import SqliteScan
    from .store_scan import StoreScan

    scheme, colon, rest = address.partition(":")
    if colon and scheme == "lake":
        return LakeScan(rest)
    if colon and scheme in ("postgresql", "postgres"):
        return PostgresScan(address)
    if colon and scheme == "sqlite":
        return SqliteScan(rest)
    if address == "memory:" or "://" in address or (colon and scheme == "fdb"):
        return StoreScan(address)
    return SqliteScan(address)


def partition(
    scan: Scan, store: EventStore, selection: Selection, parts: int | None, *, events: int | None = None
) -> list[Selection]:
    """The selection cut into partitions, in order. `events` is how many there are at most, if that is known."""
    if selection.is_empty:
        return []
    if parts is None:
        parts = default_parts(selection.upto - selection.after if events is None else events)
    borders = [selection.after, *scan.borders(store, selection, parts), selection.upto]
    assert borders == sorted(borders)
    cut = [selection.between(after, upto) for after, upto in pairwise(borders)]
    return [part for part in cut if not part.is_empty]


def default_parts(events: int) -> int:
    if events <= SMALL_EVENTS:
        return 1
    return max(os.cpu_count() or 1, -(-events // LARGE_EVENTS))


def even_borders(selection: Selection, parts: int) -> list[int]:
    """For stores without gaps, where as many positions are as many events."""
    span = selection.upto - selection.after
    return sorted({selection.after + span * part // parts for part in range(1, parts)})
