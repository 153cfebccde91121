"""A prefix of a log as a value: the position at which it ends, and the files of a lake that hold its beginning.

The lake's table is read once, before the head of the store. The files of that version never change and stay for a
while after a compaction has replaced them. So every use of the value reads the same events, whatever is appended,
exported or compacted meanwhile. tests/spark/test_frames.py checks that.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

from ... import EventStore, SequencedEvent
from ...decisions.inspection import digest_of
from ...errors import InvalidInput
from ..basics import LakePart, Snapshot, Store, bounds_of
from ..lake_kind import LAKE
from ..location import absolute_location
from .scan import scan_of

if TYPE_CHECKING:
    from ..lake_engine.files import Lake


def snapshot(store: Store, *, up_to: int | None = None, lake: str | os.PathLike[str] | None = None) -> Snapshot:
    """The store up to its present head, or up to `up_to` if that is below: a prefix for several reads to share.

    `lake` is the folder, or the URL, of a lake of the same log. Functions that take the snapshot then read the events
    that the lake holds from its files.
    """
    # Here, because workers import this module, and need neither deltalake nor the reader of Parquet.
    from ..lake_engine.files import lake_at

    address, limit = bounds_of(store, up_to)
    if isinstance(store, Snapshot) and lake is None:
        assert limit is not None
        return replace(store, up_to=limit)
    if address.kind is LAKE:
        if lake is not None:
            raise InvalidInput("lake", f"{address} is a lake itself; name the store that it was exported from")
        own = lake_at(address.path)
        end = own.up_to if limit is None else min(limit, own.up_to)
        return Snapshot(address, end, _part(own, end))
    # Before the head, so that the lake is not ahead of the prefix.
    found = None if lake is None else lake_at(absolute_location(lake, "lake"))
    with scan_of(address).open() as opened:
        head = opened.head()
        end = head if limit is None else min(limit, head)
        if found is None:
            return Snapshot(address, end)
        check_same_log(opened, found, "lake")
    return Snapshot(address, end, _part(found, min(end, found.up_to)))


def check_same_log(store: EventStore, lake: Lake, name: str) -> None:
    """Refuse another log: the last position that store and lake both have must hold the same event.

    `name` is the argument that named the lake.
    """
    common = min(lake.up_to, store.head())
    if common == lake.up_to and lake.digest:
        same = digest_at(store, common) == lake.digest
    else:
        from ..lake_engine.reader import read_events

        same = list(read_events(lake, after=common - 1, up_to=common)) == _event_at(store, common)
    if common and not same:
        raise InvalidInput(
            name, f"{lake.table.location} holds another log: its event at position {common} differs from the store's"
        )


def digest_at(store: EventStore, position: int) -> str:
    """The digest of the event at the position; empty if there is none."""
    found = _event_at(store, position)
    return digest_of(found[0]).hex() if found else ""


def _event_at(store: EventStore, position: int) -> list[SequencedEvent]:
    return list(store.read(after=position - 1, up_to=position)) if position else []


def _part(lake: Lake, up_to: int) -> LakePart:
    return LakePart(lake.table.location, tuple(file for file in lake.files if file.overlaps(0, up_to)), up_to)
