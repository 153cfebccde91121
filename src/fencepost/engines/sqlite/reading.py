"""Reading the file: in pages, by any number of threads; and what is short at once, by one thread for all who wait.

Neither takes a lock or holds a transaction between pages: what is below a head never changes.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice, starmap
from typing import Any, Final, NamedTuple, TypeAlias

import apsw

from ...buckets import matches
from ...model import Query, SequencedEvent
from .files import Readers, snapshot, value
from .generations import Types, ready_parts, shortlist
from .search import search
from .tail import Tail, TailPart, View

PAGE_EVENTS: Final = 1_024
UNINDEXED_EVENTS: Final = 256  # so many events that the tail does not know yet are filtered rather than added to it
SHORT_READ: Final = 256  # a reading of so many events is short: it takes about as long as a sync
SHORT_BYTES: Final = 1_048_576  # unless they have more data than this

COLUMNS: Final = "position, type, tags, data, recorded_at, id, metadata"
HEAD: Final = "SELECT max(position) FROM events"
FORWARDS: Final = f"SELECT {COLUMNS} FROM events WHERE position > ? AND position <= ? ORDER BY position LIMIT ?"
BACKWARDS: Final = f"SELECT {COLUMNS} FROM events WHERE position > ? AND position <= ? ORDER BY position DESC LIMIT ?"
AT: Final = f"SELECT {COLUMNS} FROM carray(?) AS wanted CROSS JOIN events ON events.position = wanted.value"

Page: TypeAlias = tuple[list[SequencedEvent], int]
Begun: TypeAlias = tuple[int, list[SequencedEvent] | None]


class Read(NamedTuple):
    """What a reading asks for."""

    query: Query
    after: int
    upto: int | None
    limit: int | None
    backwards: bool


class Pages:
    """Readings of any length.

    A page is some events and the position up to which (going backwards: down to which) everything has been seen.
    `view_near(upto)` gives a view of the tail that lacks at most UNINDEXED_EVENTS of the events up to there.
    """

    def __init__(self, readers: Readers, types: Types, view_near: Callable[[int], View]) -> None:
        self._readers = readers
        self._types = types
        self._view_near = view_near

    def scan(
        self, query: Query, after: int, upto: int, limit: int | None, backwards: bool
    ) -> Iterator[Sequence[SequencedEvent]]:
        while after < upto and limit != 0:
            most = PAGE_EVENTS if limit is None else min(limit, PAGE_EVENTS)
            if query.matches_all:
                page, seen = self._page_of_all(after, upto, most, backwards)
            else:
                page, seen = self._page(query, after, upto, most, backwards)
            if limit is not None:
                limit -= len(page)
            if page:
                yield page
            if backwards:
                upto = seen
            else:
                after = seen

    def _page_of_all(self, after: int, upto: int, limit: int, backwards: bool) -> Page:
        with self._readers.lend() as connection:
            page = _events(connection, BACKWARDS if backwards else FORWARDS, (after, upto, limit))
        return page, _seen(page, after, upto, limit, backwards)

    def _page(self, query: Query, after: int, upto: int, limit: int, backwards: bool) -> Page:
        """Three ranges follow each other: what is indexed on disk, what is in the tail, and what
        has been committed since the tail was brought up to date. A page comes from one of them.
        """
        tail, committed, _ = self._view_near(upto)
        if after < tail.floor and (not backwards or upto <= tail.floor):
            return self._indexed_page(query, after, min(upto, tail.floor), limit, backwards)
        if after < committed and (not backwards or upto <= committed):
            return self._tail_page(tail, query, max(after, tail.floor), min(upto, committed), limit, backwards)
        return self._filtered_page(query, max(after, committed), upto, limit, backwards)

    def _indexed_page(self, query: Query, after: int, upto: int, limit: int, backwards: bool) -> Page:
        keys: list[int] = []
        with self._readers.lend() as connection:
            with snapshot(connection):
                for part in ready_parts(connection, self._types, after, upto, backwards=backwards):
                    keys.extend(islice(search(part, query, backwards=backwards), limit - len(keys)))
                    if len(keys) == limit:
                        break
            page = _events_at(connection, keys)
        return page, _seen(page, after, upto, limit, backwards)

    def _tail_page(self, tail: Tail, query: Query, after: int, upto: int, limit: int, backwards: bool) -> Page:
        keys = list(islice(search(TailPart(tail, after, upto), query, backwards=backwards), limit))
        with self._readers.lend() as connection:
            page = _events_at(connection, keys)
        return page, _seen(page, after, upto, limit, backwards)

    def _filtered_page(self, query: Query, after: int, upto: int, limit: int, backwards: bool) -> Page:
        page, seen = self._page_of_all(after, upto, PAGE_EVENTS, backwards)
        found = [event for event in page if matches(event, query)]
        return (found, seen) if len(found) <= limit else (found[:limit], _seen(found[:limit], 0, 0, limit, backwards))


class ShortReads:
    """Readings of a few events, most of them recent: done in one go for all who ask, from memory where that has them.

    `view_upto(upto)` gives a view of the tail without waiting for anybody, so it may lack events up to there.
    """

    def __init__(self, readers: Readers, types: Types, view_upto: Callable[[int], View]) -> None:
        self._readers = readers
        self._types = types
        self._view_upto = view_upto

    def begin(self, reads: Sequence[Read]) -> list[Begun]:
        with self._readers.lend() as connection:
            head = value(connection, HEAD) or 0
            return [self._begin(connection, read, head) for read in reads]

    def _begin(self, connection: apsw.Connection, read: Read, head: int) -> Begun:
        """Up to where it reaches; and everything that is to be read, if that is little, as one page."""
        query, after, reach = read.query, read.after, head if read.upto is None else min(read.upto, head)
        if not all(item.tags for item in query.items):
            return reach, None
        try:
            view = self._view_upto(reach)
            committed = view.committed
            if reach - committed > UNINDEXED_EVENTS:
                return reach, None
            keys = self._keys(connection, view, query, after, min(reach, committed))
            if keys is None:
                return reach, None
            exact = reach <= committed and all(len(item.tags) == 1 for item in query.items)
            if exact and read.limit is not None:
                keys = keys[-read.limit :] if read.backwards else keys[: read.limit]
            page = _events_near(connection, view, keys)
            if page is None:
                return reach, None
            if reach > committed:
                unknown = _few(connection.execute(FORWARDS, (min(max(after, committed), reach), reach, -1)))
                if unknown is None:
                    return reach, None
                page += unknown
        except apsw.Error:
            return reach, None  # who asked for it will meet the error again, and nobody else
        if not exact:
            page = [event for event in page if matches(event, query)]
        return reach, (page[::-1] if read.backwards else page)[: read.limit]

    def _keys(self, connection: apsw.Connection, view: View, query: Query, after: int, upto: int) -> list[int] | None:
        """Positions among which are all that match, ascending; None if they are many."""
        keys: list[int] | None = []
        tail, older = view.tail, view.older
        recent = [tail]
        if after < tail.floor:
            if older is not None and older.floor <= after:
                recent = [older, tail]
            else:
                keys = shortlist(connection, self._types, query, after, min(upto, tail.floor), SHORT_READ)
        one_tag = all(len(item.tags) == 1 for item in query.items)
        for part, end in zip(recent, (*(each.floor for each in recent[1:]), upto), strict=True):
            begin, end = max(after, part.floor), min(upto, end)
            if keys is None or begin >= end:
                continue
            if one_tag:
                found = part.positions(query, begin, end, SHORT_READ)
            else:
                found = list(islice(search(TailPart(part, begin, end), query), SHORT_READ + 1))
            keys = None if found is None else keys + found
        return keys if keys is None or len(keys) <= SHORT_READ else None


def _events_near(connection: apsw.Connection, view: View, keys: list[int]) -> list[SequencedEvent] | None:
    """The events at these positions, those of the tail from memory; None if they are large."""
    tail, older = view.tail, view.older
    floor = tail.floor if older is None else older.floor
    found: list[Any] = []
    missing = []
    for key in keys:
        stored = None
        if key > tail.floor:
            stored = tail.stored(key)
        elif older is not None and key > floor:
            stored = older.stored(key)
        if stored is None:
            missing.append(key)
        found.append(key if stored is None else SequencedEvent(*stored))
    if missing:
        few = _few(_rows_at(connection, missing))
        if few is None:
            return None
        read = {event.position: event for event in few}
        found = [read[each] if type(each) is int else each for each in found]
    return found


def _events(connection: apsw.Connection, sql: str, bindings: Any) -> list[SequencedEvent]:
    return list(starmap(SequencedEvent, connection.execute(sql, bindings).fetchall()))


def _events_at(connection: apsw.Connection, keys: list[int]) -> list[SequencedEvent]:
    return list(starmap(SequencedEvent, _rows_at(connection, keys).fetchall())) if keys else []


def _few(rows: Iterable[Any]) -> list[SequencedEvent] | None:
    """The events; None if they are large."""
    found = []
    size = 0
    for row in rows:
        found.append(SequencedEvent(*row))
        size += len(row[3])
        if size > SHORT_BYTES:
            return None
    return found


def _rows_at(connection: apsw.Connection, keys: list[int]) -> apsw.Cursor:
    return connection.execute(AT, (apsw.carray(array("q", map(abs, keys))),))


def _seen(page: Sequence[SequencedEvent], after: int, upto: int, limit: int, backwards: bool) -> int:
    """A page cut by its limit has seen its last event; otherwise there is nothing more."""
    if len(page) == limit:
        return page[-1].position - 1 if backwards else page[-1].position
    return after if backwards else upto
