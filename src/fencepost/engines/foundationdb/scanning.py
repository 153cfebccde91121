"""Reading the log, in pages that no transaction has to outlive.

Everything up to a head that was reported is there for good, so each range may be read by whatever
transaction comes next: a reading can take longer than any of them may last, and one that fails
goes on with the range that failed. Nothing is delivered twice and nothing is left out, because
a page begins where the last one ended.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Final

from ...errors import StoreCorrupt
from ...model import Query, SequencedEvent
from .binding import WANT_ALL, Connection, KeyValue, Rows, Transaction, Tries
from .keys import Keys, at, position_in
from .postings import Fetch, position_at, stream_of
from .records import event_of

PAGE_EVENTS: Final = 512


def scan(
    connection: Connection, keys: Keys, query: Query, after: int, upto: int, limit: int | None, backwards: bool
) -> Iterator[Sequence[SequencedEvent]]:
    if after >= upto:
        return
    if query.matches_all:
        yield from _scan_log(connection, keys, after, upto, limit, backwards)
    else:
        yield from _scan_matches(connection, keys, query, after, upto, limit, backwards)


class LastingRows:
    """A range read that is begun again when its transaction has failed, of itself or of another read."""

    def __init__(self, tries: Tries, begin: bytes, end: bytes, limit: int, reverse: bool) -> None:
        self._tries = tries
        self._range = begin, end, limit, reverse
        self._rows = self._read(tries.transaction)
        self._number = tries.number

    def _read(self, transaction: Transaction) -> Rows:
        return transaction.snapshot.get_range(*self._range, WANT_ALL)

    def to_list(self) -> list[KeyValue]:
        def take(transaction: Transaction) -> list[KeyValue]:
            if self._number != self._tries.number:
                self._rows, self._number = self._read(transaction), self._tries.number
            return self._rows.to_list()

        return self._tries.run(take)


def fetch_events(positions: Sequence[int], keys: Keys, fetch: Fetch) -> list[SequencedEvent]:
    """The events at the positions: all asked for before the first is waited for, neighbours in one range."""
    # Within a run of neighbours, position minus index is always the same.
    grouped = groupby(enumerate(sorted(positions)), key=lambda numbered: numbered[1] - numbered[0])
    runs = [[position for _, position in run] for _, run in grouped]
    reads = [fetch(at(keys.log, run[0]), at(keys.log, run[-1] + 1), 0, False) for run in runs]
    found = {event.position: event for read in reads for event in _events_in(read.to_list(), keys)}
    for position in positions:
        if position not in found:
            raise StoreCorrupt(f"the event at position {position} is in the index but not in the log")
    return [found[position] for position in positions]


def _events_in(rows: Sequence[KeyValue], keys: Keys) -> Iterator[SequencedEvent]:
    for position, pieces in groupby(rows, key=lambda row: position_in(row.key, keys.log)):
        yield event_of(position, [row.value for row in pieces])


def _scan_matches(
    connection: Connection, keys: Keys, query: Query, after: int, upto: int, limit: int | None, backwards: bool
) -> Iterator[Sequence[SequencedEvent]]:
    tries = Tries(connection)

    def fetch(begin: bytes, end: bytes, most: int, reverse: bool) -> Rows:
        return LastingRows(tries, begin, end, most, reverse)

    stream = stream_of(query, keys, fetch, after=after, upto=upto, backwards=backwards)
    stream.prime()
    rank = 0
    while limit is None or limit > 0:
        positions: list[int] = []
        while len(positions) < (PAGE_EVENTS if limit is None else min(limit, PAGE_EVENTS)):
            found = stream.seek(rank)
            if found is None:
                break
            positions.append(position_at(found, backwards))
            rank = found + 1
        if not positions:
            return
        yield fetch_events(positions, keys, fetch)
        limit = None if limit is None else limit - len(positions)
        tries = Tries(connection)  # one that has lasted for long has used up its time


def _scan_log(
    connection: Connection, keys: Keys, after: int, upto: int, limit: int | None, backwards: bool
) -> Iterator[Sequence[SequencedEvent]]:
    """All events: the log itself is read, not an index of it."""
    begin, end = at(keys.log, after + 1), at(keys.log, upto + 1)
    while limit is None or limit > 0:
        wanted = PAGE_EVENTS if limit is None else min(limit, PAGE_EVENTS)
        # An event has one row or several; rows of the last one that are missing are read again.
        rows = LastingRows(Tries(connection), begin, end, wanted, backwards).to_list()
        if not rows:
            return
        whole = _whole_events(rows, keys, complete=len(rows) < wanted, backwards=backwards)
        if not whole:
            position = position_in(rows[0].key, keys.log)
            whole = fetch_events([position], keys, lambda *range: LastingRows(Tries(connection), *range))
        yield whole
        last = whole[-1].position
        begin, end = (begin, at(keys.log, last)) if backwards else (at(keys.log, last + 1), end)
        limit = None if limit is None else limit - len(whole)


def _whole_events(rows: Sequence[KeyValue], keys: Keys, *, complete: bool, backwards: bool) -> list[SequencedEvent]:
    """The events in the rows, without the last one if its rows may not all be among them."""
    groups = [
        (position, [row.value for row in group])
        for position, group in groupby(rows, key=lambda row: position_in(row.key, keys.log))
    ]
    if backwards:
        groups = [(position, pieces[::-1]) for position, pieces in groups]
        # The first piece is the last row of an event, and says how many there are.
        whole_last = bool(groups) and len(rows[-1].key) == len(at(keys.log, 0))
    else:
        whole_last = bool(groups) and groups[-1][1][0][0] == len(groups[-1][1]) - 1
    if not complete and not whole_last:
        groups.pop()
    return [event_of(position, pieces) for position, pieces in groups]
