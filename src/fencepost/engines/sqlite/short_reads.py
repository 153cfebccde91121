"""Reads of a few events, most of them recent: one thread completes those of all waiting callers together.

Events that the tail keeps come from memory. Nothing is locked. tests/sqlite/test_matching.py compares every short read
with the definition of matching.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any, Final, TypeAlias

import apsw
import msgspec

from ...buckets import matches
from ...errors import StoreCorrupt
from ...model import Query, SequencedEvent
from . import sizes
from .event_rows import EventRows, Head
from .forks import Connection
from .generations import Types, shortlist
from .readers import Readers
from .search import search
from .shared_tail import View
from .tail import TailPart

ShortRead: TypeAlias = tuple[int, list[SequencedEvent] | None]

ONE: Final = {1}


class Read(msgspec.Struct, frozen=True):
    """The arguments of a read."""

    query: Query
    after: int
    up_to: int | None
    limit: int | None
    backwards: bool


class ShortReads:
    """Completes the reads that are short, and leaves the others to `Scans`.

    `view_up_to(up_to)` returns a tail without waiting for a writer, so the tail may lack events up to there.
    """

    def __init__(
        self, readers: Readers, rows: EventRows, head: Head, types: Types, view_up_to: Callable[[int], View]
    ) -> None:
        self._readers = readers
        self._rows = rows
        self._head = head
        self._types = types
        self._view_up_to = view_up_to

    def begin(self, reads: Sequence[Read]) -> list[ShortRead]:
        return self._readers.run(lambda connection: self._begin_all(connection, reads))

    def _begin_all(self, connection: Connection, reads: Sequence[Read]) -> list[ShortRead]:
        head = self._head.read(connection)
        return [self._begin(connection, read, head) for read in reads]

    def _begin(self, connection: apsw.Connection, read: Read, head: int) -> ShortRead:
        """Up to where the read reaches; and all of its events as one page, or None if the read is not short."""
        query, after, reach = read.query, read.after, head if read.up_to is None else min(read.up_to, head)
        sizes_of_items = {len(item.tags) for item in query.items}
        if 0 in sizes_of_items:
            return reach, None
        one_tag = sizes_of_items == ONE
        try:
            view = self._view_up_to(reach)
            committed = view.committed
            if reach - committed > sizes.UNINDEXED_EVENTS:
                return reach, None
            keys = self._keys(connection, view, query, after, min(reach, committed), one_tag)
            if keys is None:
                return reach, None
            exact = reach <= committed and one_tag
            if exact and read.limit is not None:
                keys = keys[-read.limit :] if read.backwards else keys[: read.limit]
            page = self._events_near(connection, view, keys) if keys else []
            if page is None:
                return reach, None
            if reach > committed:
                begin = min(max(after, committed), reach)
                unknown = self._rows.few_between(connection, begin, reach, sizes.SHORT_BYTES)
                if unknown is None:
                    return reach, None
                page += unknown
            if not page:
                return reach, page
            if not exact:
                page = [event for event in page if matches(event, query)]
        except (apsw.Error, StoreCorrupt):
            return reach, None  # the caller of this read scans instead, and gets the error; the other callers do not
        return reach, (page[::-1] if read.backwards else page)[: read.limit]

    def _keys(
        self, connection: apsw.Connection, view: View, query: Query, after: int, up_to: int, one_tag: bool
    ) -> list[int] | None:
        """Candidate positions, ascending, which include all that match; None if there are many.

        `one_tag`: each item has one tag.
        """
        keys: list[int] | None = []
        tail, older = view.tail, view.older
        parts = [(tail, max(after, tail.floor), up_to)]
        if after < tail.floor:
            if older is not None and older.floor <= after:
                parts = [(older, after, min(up_to, tail.floor)), *parts]
            else:
                keys = shortlist(connection, self._types, query, after, min(up_to, tail.floor), sizes.SHORT_EVENTS)
        for part, begin, end in parts:
            if keys is None or begin >= end:
                continue
            if one_tag:
                found = part.positions(query, begin, end, sizes.SHORT_EVENTS)
            else:
                found = list(islice(search(TailPart(part, begin, end), query), sizes.SHORT_EVENTS + 1))
            keys = None if found is None else keys + found
        return keys if keys is None or len(keys) <= sizes.SHORT_EVENTS else None

    def _events_near(self, connection: apsw.Connection, view: View, keys: list[int]) -> list[SequencedEvent] | None:
        """The events at these positions, from memory if the tail keeps them; None if they are large."""
        tail, older = view.tail, view.older
        floor = tail.floor if older is None else older.floor
        in_file = bisect_right(keys, floor)
        missing = keys[:in_file]
        near: list[Any] = []  # an event, or its position if it has to be fetched
        for key in islice(keys, in_file, None):
            stored = tail.stored(key) if older is None or key > tail.floor else older.stored(key)
            if stored is None:
                missing.append(key)
            near.append(key if stored is None else SequencedEvent(*stored))
        if not missing:
            return near
        found = self._rows.few_at(connection, missing, sizes.SHORT_BYTES)
        if found is None:
            return None
        if len(missing) > in_file:
            large = {event.position: event for event in found[in_file:]}
            near = [large[each] if type(each) is int else each for each in near]
        return found[:in_file] + near
