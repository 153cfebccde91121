"""Reading the log, in pages that no transaction has to outlive.

Everything up to a head that was reported is there for good, so each page may be read by whatever
transaction comes next: a reading can take longer than any of them may last, and a page that fails
is gone on with by the next transaction. Nothing is delivered twice and nothing is left out, because
a page begins where the last one ended.

Queries are read through the index. A reading of all events reads the partitions of the log itself and merges them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Final, Protocol

from ...errors import StoreCorrupt
from ...model import Query, SequencedEvent
from .binding import Connection, KeyValue, Transaction
from .keys import Keys, at, position_in
from .merging import LogPart
from .pieces import event_of
from .postings import position_at, stream_of
from .ranges import Fetch, RangeRead
from .tries import Tries
from .waiting import Steps, run

PAGE_EVENTS: Final = 512


class Pages(Protocol):
    def page(self, transaction: Transaction) -> Steps[list[SequencedEvent]]:
        """The next page, empty if there are no more. After an error, call it again with another transaction."""


def scan(
    connection: Connection, keys: Keys, query: Query, after: int, upto: int, limit: int | None, backwards: bool
) -> Iterator[Sequence[SequencedEvent]]:
    pages = pages_of(connection, keys, query, after, upto, limit, backwards)
    # A new transaction for each page: one that has lasted for long has used up its time.
    while page := run(Tries(connection).run(pages.page)):
        yield page


def pages_of(
    connection: Connection, keys: Keys, query: Query, after: int, upto: int, limit: int | None, backwards: bool
) -> Pages:
    if query.matches_all:
        return LogPages(connection, keys, after, upto, limit, backwards)
    return MatchPages(connection, keys, query, after, upto, limit, backwards)


class MatchPages:
    """The events that match a query, found through the index."""

    def __init__(
        self,
        connection: Connection,
        keys: Keys,
        query: Query,
        after: int,
        upto: int,
        limit: int | None,
        backwards: bool,
    ) -> None:
        self._connection = connection
        self._keys = keys
        self._left = limit
        self._backwards = backwards
        self._stream = stream_of(query, keys, self._fetch, after=after, upto=upto, backwards=backwards)
        self._rank = 0
        self._positions: list[int] = []
        self._transaction: Transaction | None = None

    def page(self, transaction: Transaction) -> Steps[list[SequencedEvent]]:
        self._transaction = transaction
        self._stream.renew(grown=False)
        wanted = PAGE_EVENTS if self._left is None else min(self._left, PAGE_EVENTS)
        while len(self._positions) < wanted:
            found = yield from self._stream.seek(self._rank)
            if found is None:
                break
            self._positions.append(position_at(found, self._backwards))
            self._rank = found + 1
        events = yield from fetch_events(self._positions, self._keys, self._fetch)
        self._left = None if self._left is None else self._left - len(events)
        self._positions = []
        return events

    def _fetch(self, begin: bytes, end: bytes, limit: int, reverse: bool) -> RangeRead:
        assert self._transaction is not None
        return RangeRead(self._connection, self._transaction.snapshot, begin, end, limit, reverse)


class LogPages:
    """All events, merged from the partitions of the log."""

    def __init__(
        self, connection: Connection, keys: Keys, after: int, upto: int, limit: int | None, backwards: bool
    ) -> None:
        self._connection = connection
        self._left = limit
        self._parts = [LogPart(log, after, upto, backwards) for log in keys.logs]
        self._page: list[SequencedEvent] = []

    def page(self, transaction: Transaction) -> Steps[list[SequencedEvent]]:
        def fetch(begin: bytes, end: bytes, limit: int, reverse: bool) -> RangeRead:
            return RangeRead(self._connection, transaction.snapshot, begin, end, limit, reverse)

        wanted = PAGE_EVENTS if self._left is None else min(self._left, PAGE_EVENTS)
        rows = min(wanted, max(2 * wanted // len(self._parts), 8))
        for part in self._parts:
            part.renew()
        while len(self._page) < wanted:
            empty = [part for part in self._parts if not part.events and not part.ended]
            for part in empty:
                part.begin(fetch, rows)
            for part in empty:
                yield from part.take(fetch)
            filled = [part for part in self._parts if part.events]
            if not filled and all(part.ended for part in self._parts):
                break
            if filled and all(part.events or part.ended for part in self._parts):
                self._page.append(min(filled, key=lambda part: part.rank).events.popleft())
        page, self._page = self._page, []
        self._left = None if self._left is None else self._left - len(page)
        return page


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
        found.update((event.position, event) for event in _events_in(rows, log))
    for position in positions:
        if position not in found:
            raise StoreCorrupt(f"the event at position {position} is in the index but not in the log")
    return [found[position] for position in positions]


def _events_in(rows: Sequence[KeyValue], log: bytes) -> Iterator[SequencedEvent]:
    for position, pieces in groupby(rows, key=lambda row: position_in(row.key, log)):
        yield event_of(position, [row.value for row in pieces])
