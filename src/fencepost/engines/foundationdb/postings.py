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
from functools import partial
from typing import Final, Protocol

from ...model import MAX_POSITION, Query, QueryItem
from .binding import KeyValue
from .keys import Keys, at, position_in
from .ranges import Fetch, RangeRead
from .waiting import Steps

FIRST_PAGE: Final = 32
LAST_PAGE: Final = 1_024


class Stream(Protocol):
    def prime(self, rank: int) -> None:
        """Begin to read what a `seek` of the rank will need, without waiting for it."""

    def renew(self, *, grown: bool) -> None:
        """Forget the reads under way: their transaction is over. If the log has `grown`, look beyond its old end."""

    def seek(self, rank: int) -> Steps[int | None]:
        """The first match at or beyond the rank. Ranks asked for do not go back."""


class Postings:
    """The positions below one prefix in (after, upto], of all types or of some.

    With `one_page`, the stream stops after a full page and sets `stopped`; `next` is the rank that it has reached.
    """

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
        one_page: bool = False,
    ) -> None:
        self._fetch = fetch
        self._prefix = prefix
        self._types = frozenset(type.encode() for type in types)
        self._backwards = backwards
        self._page = page
        self._one_page = one_page
        self._begin, self._end = at(prefix, after + 1), at(prefix, upto + 1)
        self._ranks: list[int] = []
        self._ended = self._begin >= self._end
        self._pending: RangeRead | None = None
        self.next = MAX_POSITION - upto if backwards else after + 1
        self.stopped = False

    def prime(self, rank: int) -> None:
        del self._ranks[: bisect_left(self._ranks, rank)]
        if not (self._ranks or self._ended or self.stopped or self._pending):
            self.next = max(self.next, rank)
            self._pending = self._load(self.next)

    def renew(self, *, grown: bool) -> None:
        self._pending = None
        if grown:
            self._ended = self._begin >= self._end

    def seek(self, rank: int) -> Steps[int | None]:
        while True:
            self.prime(rank)
            if self._ranks:
                return self._ranks[0]
            if self._pending is None:
                return None
            rows = yield from self._pending.rows()
            self._pending = None
            self._take(rows)

    def _load(self, rank: int) -> RangeRead:
        if self._backwards:
            return self._fetch(self._begin, at(self._prefix, MAX_POSITION - rank + 1), self._page, True)
        return self._fetch(at(self._prefix, rank), self._end, self._page, False)

    def _take(self, rows: Sequence[KeyValue]) -> None:
        self._ended = len(rows) < self._page
        self.stopped = self._one_page and not self._ended
        self._page = min(2 * self._page, LAST_PAGE)
        if rows:
            self.next = self._rank(rows[-1]) + 1
        self._ranks = [self._rank(row) for row in rows if not self._types or row.value in self._types]

    def _rank(self, row: KeyValue) -> int:
        return position_at(position_in(row.key, self._prefix), self._backwards)


class TypedPostings:
    """The postings of a tag with some types.

    Most tags have few postings, so one page of them all is read first and filtered. If there are more, the stream goes
    on with the postings of each type: a rare type of a frequent tag is found without reading every posting of the tag.
    """

    def __init__(self, first: Postings, of_types: Callable[[int], Stream]) -> None:
        self._first = first
        self._of_types = of_types
        self._typed: Stream | None = None

    def prime(self, rank: int) -> None:
        if self._typed is None:
            self._first.prime(rank)
        else:
            self._typed.prime(max(rank, self._first.next))

    def renew(self, *, grown: bool) -> None:
        self._first.renew(grown=grown)
        if self._typed is not None:
            self._typed.renew(grown=grown)

    def seek(self, rank: int) -> Steps[int | None]:
        found = yield from self._first.seek(rank)
        if found is not None or not self._first.stopped:
            return found
        if self._typed is None:
            self._typed = self._of_types(self._first.next)
        return (yield from self._typed.seek(max(rank, self._first.next)))


class Several:
    """Streams that are primed and renewed together."""

    def __init__(self, streams: Sequence[Stream]) -> None:
        self._streams = streams

    def prime(self, rank: int) -> None:
        for stream in self._streams:
            stream.prime(rank)

    def renew(self, *, grown: bool) -> None:
        for stream in self._streams:
            stream.renew(grown=grown)


class Union(Several):
    """What is in any of the streams."""

    def seek(self, rank: int) -> Steps[int | None]:
        self.prime(rank)
        first: int | None = None
        for stream in self._streams:
            found = yield from stream.seek(rank)
            if found is not None and (first is None or found < first):
                first = found
        return first


class Intersection(Several):
    """What is in all of the streams."""

    _passed = 0  # nothing below this rank is in all of them

    def prime(self, rank: int) -> None:
        super().prime(max(rank, self._passed))

    def seek(self, rank: int) -> Steps[int | None]:
        self._passed = max(self._passed, rank)
        while True:
            for stream in self._streams:
                found = yield from stream.seek(self._passed)
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
    postings = partial(Postings, fetch, after=after, upto=upto, backwards=backwards)

    def tagged(tag: str, types: frozenset[str]) -> Stream:
        if not types:
            return postings(keys.tag(tag))

        def of_types(rank: int) -> Stream:
            low, high = (after, MAX_POSITION - rank) if backwards else (rank - 1, upto)
            return Union([postings(keys.tag(tag, type), after=low, upto=high) for type in sorted(types)])

        return TypedPostings(postings(keys.tag(tag), types=types, one_page=True), of_types)

    def of_item(item: QueryItem) -> Stream:
        if item.tags:
            streams = [tagged(tag, item.types) for tag in sorted(item.tags)]
            return streams[0] if len(streams) == 1 else Intersection(streams)
        return Union([postings(keys.type(type, p)) for type in sorted(item.types) for p in keys.partitions])

    if query.matches_all:
        return Union([postings(log, page=1) for log in keys.logs])  # events are large, and the first one is a match
    return Union([of_item(item) for item in query.items])
