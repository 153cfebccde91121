"""Sorted streams of positions: the postings of a type or tag, their unions and intersections.

Each answers one question, `seek`: which is the first match at or beyond a place. Places are ranks, which grow in the
direction of reading; a position is its own rank, or counts from the other end when reading backwards. An intersection
leaps from one stream to the next, so a rare tag makes a frequent one cheap. A union asks each stream once, and then
only the stream whose match was passed, so its cost is that of the streams plus that of the matches
(tests/foundationdb/test_wide_queries.py counts this).

What a stream has passed stays passed, since the log only grows at its end. So after an error, or in the next try of an
append, it goes on where it was and only looks for what is new.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from heapq import heappop, heappush, heapreplace
from itertools import count, islice
from typing import Final, Protocol

from ...model import MAX_POSITION, Query, QueryItem
from .binding import KeyValue
from .layout import Keys, at, position_in
from .transactions import RangeRead, RangeReader, Steps

FIRST_PAGE: Final = 32
LAST_PAGE: Final = 1_024
READS_AHEAD: Final = 256  # that a union begins before it waits for the first of them


class Stream(Protocol):
    def prime(self, rank: int) -> None:
        """Begin to read what a `seek` of the rank will need, without waiting for it."""

    def extend(self) -> None:
        """The log may have grown: look beyond its old end again."""

    def seek(self, rank: int) -> Steps[int | None]:
        """The first match at or beyond the rank. Ranks asked for do not go back."""


class Postings:
    """The positions below one prefix in (after, up_to], of all types or of some.

    With `one_page`, the stream stops after a full page and sets `stopped`; `next` is the rank that it has reached.
    """

    def __init__(
        self,
        reader: RangeReader,
        prefix: bytes,
        *,
        after: int,
        up_to: int = MAX_POSITION,
        types: frozenset[str] = frozenset(),
        backwards: bool = False,
        page: int = FIRST_PAGE,
        one_page: bool = False,
    ) -> None:
        self._reader = reader
        self._prefix = prefix
        self._types = frozenset(type.encode() for type in types)
        self._backwards = backwards
        self._page = page
        self._one_page = one_page
        self._begin, self._end = at(prefix, after + 1), at(prefix, up_to + 1)
        self._ranks: list[int] = []
        self._ended = self._begin >= self._end
        self._pending: RangeRead | None = None
        self.next = MAX_POSITION - up_to if backwards else after + 1
        self.stopped = False

    def prime(self, rank: int) -> None:
        passed = bisect_left(self._ranks, rank)
        del self._ranks[:passed]
        # With its last rank a stream begins to read on, so that streams which end together do not wait in turn.
        if self._ranks and not (passed and len(self._ranks) == 1):
            return
        if not (self._ended or self.stopped or self._under_way()):
            if not self._ranks:
                self.next = max(self.next, rank)
            self._pending = self._load(self.next)

    def extend(self) -> None:
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

    def _under_way(self) -> bool:
        """Whether a read of this transaction is under way; that of an earlier one is forgotten."""
        if self._pending is not None and self._pending.transaction != self._reader.transaction:
            self._pending = None
        return self._pending is not None

    def _load(self, rank: int) -> RangeRead:
        if self._backwards:
            return self._reader.begin(self._begin, at(self._prefix, MAX_POSITION - rank + 1), self._page, True)
        return self._reader.begin(at(self._prefix, rank), self._end, self._page, False)

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

    def extend(self) -> None:
        self._first.extend()
        if self._typed is not None:
            self._typed.extend()

    def seek(self, rank: int) -> Steps[int | None]:
        found = yield from self._first.seek(rank)
        if found is not None or not self._first.stopped:
            return found
        if self._typed is None:
            self._typed = self._of_types(self._first.next)
        return (yield from self._typed.seek(max(rank, self._first.next)))


class Union:
    """What is in any of the streams."""

    def __init__(self, streams: Iterable[Stream], reader: RangeReader) -> None:
        self._reader = reader
        self._unasked = deque(streams)
        self._begun = 0  # of these, from the first, whose reads were begun in the transaction
        self._transaction = 0
        self._matches: list[tuple[int, int, Stream]] = []  # a heap: the next match of each stream, a number, the stream
        self._numbers = count()
        self._ended: list[Stream] = []

    def prime(self, rank: int) -> None:
        if self._transaction != self._reader.transaction:
            self._transaction, self._begun = self._reader.transaction, 0
        if self._begun <= READS_AHEAD // 2:
            for stream in islice(self._unasked, self._begun, READS_AHEAD):
                stream.prime(rank)
            self._begun = min(len(self._unasked), READS_AHEAD)

    def extend(self) -> None:
        for stream in (*self._unasked, *(stream for _, _, stream in self._matches), *self._ended):
            stream.extend()
        self._unasked.extend(self._ended)
        self._ended = []

    def seek(self, rank: int) -> Steps[int | None]:
        while self._unasked:
            self.prime(rank)
            found = yield from self._unasked[0].seek(rank)
            stream = self._unasked.popleft()
            self._begun -= 1
            if found is None:
                self._ended.append(stream)
            else:
                heappush(self._matches, (found, next(self._numbers), stream))
        while self._matches and self._matches[0][0] < rank:
            _, number, stream = self._matches[0]
            found = yield from stream.seek(rank)
            if found is None:
                self._ended.append(heappop(self._matches)[2])
            else:
                heapreplace(self._matches, (found, number, stream))
        return self._matches[0][0] if self._matches else None


class Intersection:
    """What is in all of the streams."""

    def __init__(self, streams: Sequence[Stream]) -> None:
        self._streams = streams
        self._passed = 0  # nothing below this rank is in all of them

    def prime(self, rank: int) -> None:
        for stream in self._streams:
            stream.prime(max(rank, self._passed))

    def extend(self) -> None:
        for stream in self._streams:
            stream.extend()

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
    query: Query, keys: Keys, reader: RangeReader, *, after: int, up_to: int = MAX_POSITION, backwards: bool = False
) -> Stream:
    """The positions in (after, up_to] that match the query, in the order of reading."""
    postings = partial(Postings, reader, after=after, up_to=up_to, backwards=backwards)

    def tagged(tag: str, types: frozenset[str]) -> Stream:
        if not types:
            return postings(keys.tag(tag))

        def of_types(rank: int) -> Stream:
            low, high = (after, MAX_POSITION - rank) if backwards else (rank - 1, up_to)
            return Union((postings(keys.tag(tag, type), after=low, up_to=high) for type in sorted(types)), reader)

        return TypedPostings(postings(keys.tag(tag), types=types, one_page=True), of_types)

    def of_item(item: QueryItem) -> Iterator[Stream]:
        if item.tags:
            streams = [tagged(tag, item.types) for tag in sorted(item.tags)]
            yield streams[0] if len(streams) == 1 else Intersection(streams)
        else:
            for type in sorted(item.types):
                yield from map(postings, keys.type_in_partitions(type))

    if query.matches_all:  # events are large, and the first one is a match
        return Union((postings(log, page=1) for log in keys.logs), reader)
    streams = [stream for item in query.items for stream in of_item(item)]
    return streams[0] if len(streams) == 1 else Union(streams, reader)
