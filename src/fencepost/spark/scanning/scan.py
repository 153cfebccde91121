"""How to read each kind of store, and where to cut it into partitions.

The driver asks a store for its head and for the borders between partitions; a worker asks for the batches of one
partition. Positions up to a head that was seen never change. So partitions that different processes read at
different times make up one consistent prefix of the log.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Protocol

import pyarrow as pa

from ... import EventStore
from ...engine import POSTGRES, SQLITE, Address
from ..basics import default_parts
from ..lake_kind import LAKE
from .selection import Selection


class Scan(Protocol):
    """A store, as a value that is pickled into tasks."""

    def open(self) -> EventStore:
        """The store itself; on the driver."""

    def borders(self, store: EventStore, selection: Selection, parts: int) -> Sequence[int]:
        """Positions that cut the selection into about `parts` parts of about as many events; on the driver."""

    def recorded(self, after: int, up_to: int) -> Iterator[pa.RecordBatch]:
        """The recorded appends with after < last <= up_to, in order, with the columns of `RECORDED`; in a worker."""

    def batches(self, selection: Selection, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """The selected events in the stored form, in order; in a worker. Types and times may be ignored."""


def scan_of(address: Address) -> Scan:
    """How the store at the address is read. The path in the address is absolute."""
    from .lake import LakeScan
    from .postgres import PostgresScan
    from .sqlite import SqliteScan
    from .store import StoreScan

    if address.kind is LAKE:
        return LakeScan(address.path)
    if address.kind is POSTGRES:
        return PostgresScan(address)
    if address.kind is SQLITE:
        return SqliteScan(address.path, address.read_only)
    return StoreScan(address)


def partition(scan: Scan, store: EventStore, selection: Selection, parts: int | None = None) -> list[Selection]:
    """The selection cut into partitions, in order; into as many as suit its size if `parts` is None."""
    if selection.is_empty:
        return []
    if parts is None:
        parts = default_parts(selection.up_to - selection.after)
    inner = scan.borders(store, selection, parts) if parts > 1 else ()
    borders = [selection.after, *inner, selection.up_to]
    assert borders == sorted(borders)
    cut = [selection.between(after, up_to) for after, up_to in pairwise(borders)]
    return [part for part in cut if not part.is_empty]
