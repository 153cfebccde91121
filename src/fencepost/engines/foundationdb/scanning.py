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
from itertools import groupby
from typing import Final, NamedTuple

from ...errors import StoreCorrupt
from ...model import Query, SequencedEvent
from .binding import Connection, KeyValue, Transaction, Value
from .keys import Keys, at, position_in, position_of_value
from .pieces import event_of
from .postings import position_at, stream_of
from .ranges import Fetch, RangeRead
from .tries import Tries
from .waiting import Steps, run

PAGE_EVENTS: Final = 512


class Read(NamedTuple):
    """Which events to read, and in which order."""

    query: Query
    after: int
    upto: int
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
    pages = pages_of(connection, keys, read)
    # A new transaction for each page: one that has lasted for long has used up its time.
    while page := run(Tries(connection).run(pages.page)):
        yield page


def pages_of(connection: Connection, keys: Keys, read: Read) -> Pages:
    return (LogPages if read.query.matches_all else MatchPages)(connection, keys, read)


class Pages:
    """The pages of a reading."""

    def __init__(self, connection: Connection, keys: Keys, read: Read) -> None:
        self._connection = connection
        self._keys = keys
        self._left = read.limit
        self._transaction: Transaction | None = None

    def page(self, transaction: Transaction) -> Steps[list[SequencedEvent]]:
        """The next page, empty if there are no more. After an error, call it again with another transaction."""
        self._transaction = transaction
        events = yield from self._next(PAGE_EVENTS if self._left is None else min(self._left, PAGE_EVENTS))
        self._left = None if self._left is None else self._left - len(events)
        return events

    def _next(self, wanted: int) -> Steps[list[SequencedEvent]]:
        raise NotImplementedError

    def _fetch(self, begin: bytes, end: bytes, limit: int, reverse: bool) -> RangeRead:
        assert self._transaction is not None
        return RangeRead(self._connection, self._transaction.snapshot, begin, end, limit, reverse)


class MatchPages(Pages):
    """The events that match a query, found through the index."""

    def __init__(self, connection: Connection, keys: Keys, read: Read) -> None:
        super().__init__(connection, keys, read)
        query, after, upto, _, self._backwards = read
        self._stream = stream_of(query, keys, self._fetch, after=after, upto=upto, backwards=self._backwards)
        self._rank = 0
        self._positions: list[int] = []

    def _next(self, wanted: int) -> Steps[list[SequencedEvent]]:
        self._stream.renew(grown=False)
        while len(self._positions) < wanted:
            found = yield from self._stream.seek(self._rank)
            if found is None:
                break
            self._positions.append(position_at(found, self._backwards))
            self._rank = found + 1
        events = yield from fetch_events(self._positions, self._keys, self._fetch)
        self._positions = []
        return events


class LogPages(Pages):
    """All events, merged from the partitions of the log."""

    def __init__(self, connection: Connection, keys: Keys, read: Read) -> None:
        super().__init__(connection, keys, read)
        self._parts = [LogPart(log, read, self._fetch) for log in keys.logs]
        self._page: list[SequencedEvent] = []

    def _next(self, wanted: int) -> Steps[list[SequencedEvent]]:
        rows = min(wanted, max(2 * wanted // len(self._parts), 8))
        for part in self._parts:
            part.renew()
        while len(self._page) < wanted:
            empty = [part for part in self._parts if not part.events and not part.ended]
            for part in empty:
                part.begin(rows)
            for part in empty:
                yield from part.take()
            filled = [part for part in self._parts if part.events]
            if not filled and all(part.ended for part in self._parts):
                break
            if filled and all(part.events or part.ended for part in self._parts):
                self._page.append(min(filled, key=lambda part: part.rank).events.popleft())
        page, self._page = self._page, []
        return page


class LogPart:
    """One partition of the log, some events ahead of where the merged reading is.

    An event has one row or several. If not all rows of an event came, the part reads it again.
    """

    def __init__(self, log: bytes, read: Read, fetch: Fetch) -> None:
        self._log = log
        self._fetch = fetch
        self._backwards = read.backwards
        self._begin, self._end = at(log, read.after + 1), at(log, read.upto + 1)
        self._rows = 0
        self._pending: RangeRead | None = None
        self.events: deque[SequencedEvent] = deque()
        self.ended = read.after >= read.upto

    @property
    def rank(self) -> int:
        """Where the first event that is ready stands in the order of reading."""
        return position_at(self.events[0].position, self._backwards)

    def renew(self) -> None:
        """Forget the read under way: its transaction is over."""
        self._pending = None

    def begin(self, rows: int) -> None:
        """Begin to read the next rows."""
        if self._pending is None:
            self._rows = rows
            self._pending = self._fetch(self._begin, self._end, rows, self._backwards)

    def take(self) -> Steps[None]:
        """Wait for the rows, and make events of them."""
        assert self._pending is not None
        rows = yield from self._pending.rows()
        complete = len(rows) < self._rows
        events = self._whole_events(rows, complete=complete)
        if rows and not events:  # one event has more rows than were asked for
            position = position_in(rows[0].key, self._log)
            rows = yield from self._fetch(at(self._log, position), at(self._log, position + 1), 0, False).rows()
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


def fetch_events(positions: Sequence[int], keys: Keys, fetch: Fetch) -> Steps[list[SequencedEvent]]:
    """The events at the positions: all asked for before the first is waited for, neighbours in one range."""
    # Within a run of neighbours, position minus index is always the same. All events of a run are of one append.
    grouped = groupby(enumerate(sorted(positions)), key=lambda numbered: numbered[1] - numbered[0])
    runs = [[position for _, position in run] for _, run in grouped]
    logs = [keys.log_of(run[0]) for run in runs]
    reads = [fetch(at(log, run[0]), at(log, run[-1] + 1), 0, False) for log, run in zip(logs, runs, strict=True)]
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
