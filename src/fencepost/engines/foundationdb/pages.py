"""Reading the log, in pages that no transaction has to outlive.

Everything up to a head that was reported is there for good, so each page may be read by whatever
transaction comes next: a reading can take longer than any of them may last, and a page that fails
is gone on with by the next transaction. Nothing is delivered twice and nothing is left out, because
a page begins where the last one ended.

Queries are read through the index. A reading of all events reads the partitions of the log itself and merges them: the
next event of the whole is the first of those that the partitions have ready, once every partition has one or has ended.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from heapq import heapify, heappop, heapreplace
from itertools import groupby
from typing import Final, NamedTuple

from ...errors import StoreCorrupt
from ...model import MAX_POSITION, Query, SequencedEvent
from .binding import Connection, KeyValue, Transaction, Value
from .layout import Keys, at, event_of, position_in, position_of_value
from .postings import position_at, stream_of
from .transactions import RangeRead, RangeReader, Steps, Tries, run

PAGE_EVENTS: Final = 512


class Read(NamedTuple):
    """Which events to read, and in which order."""

    query: Query
    after: int
    up_to: int
    limit: int | None
    backwards: bool


def begin_heads(transaction: Transaction, keys: Keys) -> list[Value]:
    """Begin to read the heads of all partitions."""
    return [transaction.snapshot.get(key) for key in keys.heads]


def highest(heads: Sequence[Value]) -> Steps[int]:
    """The head of the store.

    A commit writes its partition's head in the order of commits, so a transaction that sees the highest head sees
    everything below it.
    """
    found = 0
    for head in heads:
        yield head
        found = max(found, position_of_value(head.value))
    return found


def head_of(transaction: Transaction, keys: Keys) -> Steps[int]:
    return (yield from highest(begin_heads(transaction, keys)))


def scan(connection: Connection, keys: Keys, read: Read) -> Iterator[Sequence[SequencedEvent]]:
    return remaining(connection, pages_of(connection, keys, read))


def remaining(connection: Connection, pages: Pages) -> Iterator[Sequence[SequencedEvent]]:
    # A new transaction for each page: one that has lasted for long has used up its time.
    while not pages.ended and (page := run(Tries(connection).run(pages.page))):
        yield page


class FirstPage:
    """The head, and the first page of what is below it.

    Both come from one transaction, so what that one sees ends at the head. If it fails once the head is known, the next
    one goes on with the page, up to that head. So a page may take longer than a transaction may last
    (tests/foundationdb/test_wide_queries.py checks this).
    """

    head: int | None = None

    def __init__(self, connection: Connection, keys: Keys, read: Read) -> None:
        self._connection = connection
        self._keys = keys
        self._read = read

    def page(self, transaction: Transaction) -> Steps[list[SequencedEvent]]:
        if self.head is None:
            # Anew: what an earlier try has read ends at a head that is not known.
            self._pages = pages_of(self._connection, self._keys, self._read)
            heads = begin_heads(transaction, self._keys)
            self._pages.begin(transaction)
            self.head = yield from highest(heads)
            self._pages.end_at(self.head)
            return (yield from self._pages.rest())
        return (yield from self._pages.page(transaction))

    def others(self) -> Iterator[Sequence[SequencedEvent]] | None:
        """The pages behind the first one, up to the head; None if there are none."""
        return None if self._pages.ended else remaining(self._connection, self._pages)


def pages_of(connection: Connection, keys: Keys, read: Read) -> Pages:
    return (LogPages if read.query.matches_all else MatchPages)(connection, keys, read)


class Pages:
    """The pages of a reading. After an error, a call with another transaction goes on."""

    def __init__(self, connection: Connection, keys: Keys, read: Read) -> None:
        self._keys = keys
        self._left = read.limit
        self.ended = False
        self._reader = RangeReader(connection)

    @property
    def _wanted(self) -> int:
        return PAGE_EVENTS if self._left is None else min(self._left, PAGE_EVENTS)

    def page(self, transaction: Transaction) -> Steps[list[SequencedEvent]]:
        """The next page, empty if there are no more."""
        self.begin(transaction)
        return (yield from self.rest())

    def begin(self, transaction: Transaction) -> None:
        """Begin to read the next page, without waiting for it."""
        self._reader.use(transaction)
        self._prime(self._wanted)

    def rest(self) -> Steps[list[SequencedEvent]]:
        """The page that was begun."""
        wanted = self._wanted
        events = yield from self._next(wanted)
        self._left = None if self._left is None else self._left - len(events)
        self.ended = len(events) < wanted or self._left == 0
        return events

    def end_at(self, head: int) -> None:
        """Read nothing beyond the head, though it may be there by now. Nothing beyond it was read so far."""
        raise NotImplementedError

    def _prime(self, wanted: int) -> None:
        raise NotImplementedError

    def _next(self, wanted: int) -> Steps[list[SequencedEvent]]:
        raise NotImplementedError


class MatchPages(Pages):
    """The events that match a query, found through the index."""

    def __init__(self, connection: Connection, keys: Keys, read: Read) -> None:
        super().__init__(connection, keys, read)
        query, after, up_to, _, self._backwards = read
        self._stream = stream_of(query, keys, self._reader, after=after, up_to=up_to, backwards=self._backwards)
        self._rank = 0
        self._last_rank = MAX_POSITION
        self._positions: list[int] = []

    def end_at(self, head: int) -> None:
        if self._backwards:
            self._rank = max(self._rank, position_at(head, backwards=True))
        else:
            self._last_rank = head

    def _prime(self, wanted: int) -> None:
        if len(self._positions) < wanted:
            self._stream.prime(self._rank)

    def _next(self, wanted: int) -> Steps[list[SequencedEvent]]:
        while len(self._positions) < wanted:
            found = yield from self._stream.seek(self._rank)
            if found is None or found > self._last_rank:
                break
            self._positions.append(position_at(found, self._backwards))
            self._rank = found + 1
        events = yield from fetch_events(self._positions, self._keys, self._reader)
        self._positions = []
        return events


class LogPages(Pages):
    """All events, merged from the partitions of the log."""

    def __init__(self, connection: Connection, keys: Keys, read: Read) -> None:
        super().__init__(connection, keys, read)
        self._parts = [LogPart(log, read, self._reader) for log in keys.logs]
        self._page: list[SequencedEvent] = []

    def end_at(self, head: int) -> None:
        for part in self._parts:
            part.end_at(head)

    def _prime(self, wanted: int) -> None:
        rows = min(wanted, max(2 * wanted // len(self._parts), 8))
        for part in self._parts:
            if not part.events and not part.ended:
                part.begin(rows)

    def _next(self, wanted: int) -> Steps[list[SequencedEvent]]:
        while len(self._page) < wanted:
            self._prime(wanted)
            for part in self._parts:
                if not part.events and not part.ended:
                    yield from part.take()
            if not any(part.events for part in self._parts) and all(part.ended for part in self._parts):
                break
            self._merge(wanted)
        page, self._page = self._page, []
        return page

    def _merge(self, wanted: int) -> None:
        """Add to the page what comes first, as long as every part that has not ended has an event ready."""
        if not all(part.events or part.ended for part in self._parts):
            return
        heads = [(part.rank, number) for number, part in enumerate(self._parts) if part.events]
        heapify(heads)
        while heads and len(self._page) < wanted:
            part = self._parts[heads[0][1]]
            self._page.append(part.events.popleft())
            if part.events:
                heapreplace(heads, (part.rank, heads[0][1]))
            elif part.ended:
                heappop(heads)
            else:
                return


class LogPart:
    """One partition of the log, some events ahead of where the merged reading is.

    An event has one row or several. If not all rows of an event came, the part reads it again.
    """

    def __init__(self, log: bytes, read: Read, reader: RangeReader) -> None:
        self._log = log
        self._reader = reader
        self._backwards = read.backwards
        self._begin, self._end = at(log, read.after + 1), at(log, read.up_to + 1)
        self._rows = 0
        self._pending: RangeRead | None = None
        self.events: deque[SequencedEvent] = deque()
        self.ended = read.after >= read.up_to

    @property
    def rank(self) -> int:
        """Where the first event that is ready stands in the order of reading."""
        return position_at(self.events[0].position, self._backwards)

    def end_at(self, head: int) -> None:
        self._end = max(self._begin, min(self._end, at(self._log, head + 1)))

    def begin(self, rows: int) -> None:
        """Begin to read the next rows, unless a read of this transaction is under way."""
        if self._pending is None or self._pending.transaction != self._reader.transaction:
            self._rows = rows
            self._pending = self._reader.begin(self._begin, self._end, rows, self._backwards)

    def take(self) -> Steps[None]:
        """Wait for the rows, and make events of them."""
        assert self._pending is not None
        rows = yield from self._pending.rows()
        complete = len(rows) < self._rows
        events = self._whole_events(rows, complete=complete)
        if rows and not events:  # one event has more rows than were asked for
            position = position_in(rows[0].key, self._log)
            rows = yield from self._reader.begin(at(self._log, position), at(self._log, position + 1)).rows()
            events = [event_of(position, [row.value for row in rows])]
        self._pending = None
        self.ended = complete
        if events:
            last = events[-1].position
            self.events.extend(events)
            if self._backwards:
                self._end = at(self._log, last)
            else:
                self._begin = at(self._log, last + 1)

    def _whole_events(self, rows: Sequence[KeyValue], *, complete: bool) -> list[SequencedEvent]:
        """The events in the rows, without the last one if its rows may not all be among them."""
        groups = list(_pieces_in(rows, self._log))
        if self._backwards:
            groups = [(position, pieces[::-1]) for position, pieces in groups]
            # The first piece is the last row of an event, and says how many there are.
            whole_last = bool(groups) and len(rows[-1].key) == len(at(self._log, 0))
        else:
            whole_last = bool(groups) and groups[-1][1][0][0] == len(groups[-1][1]) - 1
        if not complete and not whole_last:
            groups.pop()
        return [event_of(position, pieces) for position, pieces in groups]


def fetch_events(positions: Sequence[int], keys: Keys, reader: RangeReader) -> Steps[list[SequencedEvent]]:
    """The events at the positions: all asked for before the first is waited for, neighbours in one range."""
    # Within a run of neighbours, position minus index is always the same. All events of a run are of one append.
    grouped = groupby(enumerate(sorted(positions)), key=lambda numbered: numbered[1] - numbered[0])
    runs = [[position for _, position in run] for _, run in grouped]
    logs = [keys.log_of(run[0]) for run in runs]
    reads = [reader.begin(at(log, run[0]), at(log, run[-1] + 1)) for log, run in zip(logs, runs, strict=True)]
    found: dict[int, SequencedEvent] = {}
    for log, read in zip(logs, reads, strict=True):
        rows = yield from read.rows()
        found.update((position, event_of(position, pieces)) for position, pieces in _pieces_in(rows, log))
    for position in positions:
        if position not in found:
            raise StoreCorrupt(f"the event at position {position} is in the index but not in the log")
    return [found[position] for position in positions]


def _pieces_in(rows: Sequence[KeyValue], log: bytes) -> Iterator[tuple[int, list[bytes]]]:
    """The position of each event, and its pieces in the order of the rows."""
    for position, group in groupby(rows, key=lambda row: position_in(row.key, log)):
        yield position, [row.value for row in group]
