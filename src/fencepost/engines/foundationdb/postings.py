"""Sorted streams of positions: the postings of a type or tag, their unions and intersections.

Each answers one question, `seek`: which is the first match at or beyond a place. Places are ranks,
which grow in the direction of reading; a position is its own rank, or counts from the other end
when reading backwards. An intersection leaps from one stream to the next, so a rare tag makes a
frequent one cheap.

What a stream has passed stays passed, since the log only grows at its end. So after an error, or
in the next try of an append, it goes on where it was and only looks for what is new.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Final, Protocol, TypeAlias

from ...model import MAX_POSITION, Query, QueryItem
from .binding import KeyValue, Rows
from .keys import Keys, at, position_in

Fetch: TypeAlias = Callable[[bytes, bytes, int, bool], Rows]
"""Begins to read a range: from, up to and without, at most so many rows, and whether from the end."""

FIRST_PAGE: Final = 32
LAST_PAGE: Final = 1_024


class Stream(Protocol):
    def prime(self) -> None:
        """Begin to read what will be needed first, without waiting for it."""

    def again(self) -> None:
        """What was the end of the stream may no longer be it."""

    def seek(self, rank: int) -> int | None:
        """The first match at or beyond the rank. Ranks asked for do not go back."""


class Postings:
    """The positions below one prefix in (after, upto], of all types or of some."""

    def __init__(
        self,
        fetch: Fetch,
        prefix: bytes,
        *,
        after: int,
        upto: int = MAX_POSITION,
        types: frozenset[str] = frozenset(),
        backwards: bool = False,
        page: int = FIRST_PAGE,
    ) -> None:
        self._fetch = fetch
        self._prefix = prefix
        self._types = frozenset(type.encode() for type in types)
        self._backwards = backwards
        self._page = page
        self._begin, self._end = at(prefix, after + 1), at(prefix, upto + 1)
        self._ranks: list[int] = []
        self._next = MAX_POSITION - upto if backwards else after + 1
        self._ended = self._begin >= self._end
        self._pending: Rows | None = None

    def prime(self) -> None:
        if self._pending is None and not self._ended:
            self._pending = self._load(self._next)

    def again(self) -> None:
        self._pending = None  # it belongs to a transaction that is over
        self._ended = self._begin >= self._end

    def seek(self, rank: int) -> int | None:
        while True:
            del self._ranks[: bisect_left(self._ranks, rank)]
            if self._ranks:
                return self._ranks[0]
            if self._ended:
                return None
            if self._pending is None:
                self._next = max(self._next, rank)
                self._pending = self._load(self._next)
            rows = self._pending.to_list()
            self._pending = None
            self._take(rows)

    def _load(self, rank: int) -> Rows:
        if self._backwards:
            return self._fetch(self._begin, at(self._prefix, MAX_POSITION - rank + 1), self._page, True)
        return self._fetch(at(self._prefix, rank), self._end, self._page, False)

    def _take(self, rows: Sequence[KeyValue]) -> None:
        self._ended = len(rows) < self._page
        self._page = min(2 * self._page, LAST_PAGE)
        if rows:
            self._next = self._rank(rows[-1]) + 1
        self._ranks = [self._rank(row) for row in rows if not self._types or row.value in self._types]

    def _rank(self, row: KeyValue) -> int:
        return position_at(position_in(row.key, self._prefix), self._backwards)


class Union:
    """What is in any of the streams."""

    def __init__(self, streams: Sequence[Stream]) -> None:
        self._streams = streams

    def prime(self) -> None:
        for stream in self._streams:
            stream.prime()

    def again(self) -> None:
        for stream in self._streams:
            stream.again()

    def seek(self, rank: int) -> int | None:
        return min((found for stream in self._streams if (found := stream.seek(rank)) is not None), default=None)


class Intersection:
    """What is in all of the streams."""

    def __init__(self, streams: Sequence[Stream]) -> None:
        self._streams = streams
        self._passed = 0  # nothing below this rank is in all of them

    def prime(self) -> None:
        for stream in self._streams:
            stream.prime()

    def again(self) -> None:
        for stream in self._streams:
            stream.again()

    def seek(self, rank: int) -> int | None:
        self._passed = max(self._passed, rank)
        while True:
            for stream in self._streams:
                found = stream.seek(self._passed)
                if found is None:
                    return None
                if found > self._passed:
                    self._passed = found
                    break
            else:
                return self._passed


def position_at(rank: int, backwards: bool) -> int:
    """The position of a rank, and just as well the rank of a position."""
    return MAX_POSITION - rank if backwards else rank


def stream_of(
    query: Query, keys: Keys, fetch: Fetch, *, after: int, upto: int = MAX_POSITION, backwards: bool = False
) -> Stream:
    """The positions in (after, upto] that match the query, in the order of reading."""

    def postings(prefix: bytes, types: frozenset[str] = frozenset(), page: int = FIRST_PAGE) -> Postings:
        return Postings(fetch, prefix, after=after, upto=upto, types=types, backwards=backwards, page=page)

    def of_item(item: QueryItem) -> Stream:
        if item.tags:
            # One stream judges the type, which the postings of every tag carry.
            first, *others = sorted(item.tags)
            streams = [postings(keys.tag(first), item.types), *(postings(keys.tag(tag)) for tag in others)]
            return streams[0] if not others else Intersection(streams)
        return Union([postings(keys.type(type)) for type in sorted(item.types)])

    if query.matches_all:
        return postings(keys.log, page=1)  # events are large, and the first one is a match
    return Union([of_item(item) for item in query.items])
