"""Events from the file, and the head of the log.

The caller always knows which positions to expect: a range, because positions have no gaps, or the positions that
the index named. So a missing row is noticed. SQLite checks the pages that the rows come from (`page_checksums`).
tests/sqlite/test_damage.py checks this.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from itertools import islice, starmap
from operator import itemgetter
from typing import Any, Final

import apsw

from ...errors import StoreCorrupt
from ...model import SequencedEvent
from . import sizes
from .connections import value
from .files import size_of
from .forks import Connection
from .layout import COLUMNS, DATA, POSITION, Row
from .page_checksums import WHAT_TO_DO
from .readonly import ImmutableConnection

HEAD: Final = "SELECT max(position) FROM events"
ENDS: Final = """
SELECT (SELECT coalesce(max(position), 0) FROM events), (SELECT coalesce(max(head), 0) FROM closed),
       (SELECT coalesce(max(last), 0) FROM generations WHERE state = 'ready')
"""
DATA_VERSION: Final = "PRAGMA data_version"  # changes when another connection, of any process, has committed
FORWARDS: Final = f"SELECT {COLUMNS} FROM events WHERE position > ? AND position <= ? ORDER BY position LIMIT ?"
BACKWARDS: Final = f"SELECT {COLUMNS} FROM events WHERE position > ? AND position <= ? ORDER BY position DESC LIMIT ?"
AT: Final = f"SELECT {COLUMNS} FROM carray(?) AS wanted CROSS JOIN events ON events.position = wanted.value"
NEWER: Final = f"SELECT {COLUMNS} FROM events WHERE position > ? ORDER BY position"

_data = itemgetter(DATA)


class EventRows:
    """Fetches events over a connection that the caller lends."""

    def __init__(self, path: str) -> None:
        self.path = path

    def between(
        self, connection: apsw.Connection, after: int, up_to: int, most: int, backwards: bool = False
    ) -> list[SequencedEvent]:
        """The first events with after < position <= up_to, at most `most`, of a log that has all of them."""
        if backwards:
            sql, expected = BACKWARDS, range(up_to, max(after, up_to - most), -1)
        else:
            sql, expected = FORWARDS, range(after + 1, min(up_to, after + most) + 1)
        rows = connection.execute(sql, (after, up_to, most)).fetchall()
        self._check_complete(rows, expected)
        return list(starmap(SequencedEvent, rows))

    def at(self, connection: apsw.Connection, keys: Sequence[int]) -> list[SequencedEvent]:
        """The events at these keys of a search: ascending positions, or negated ones."""
        if not keys:
            return []
        expected = array("q", map(abs, keys))
        rows = connection.execute(AT, (apsw.carray(expected),)).fetchall()
        self._check_complete(rows, expected)
        return list(starmap(SequencedEvent, rows))

    def few_between(
        self, connection: apsw.Connection, after: int, up_to: int, most_bytes: int
    ) -> list[SequencedEvent] | None:
        """As `between`; None if the events are large."""
        return self._few(connection, FORWARDS, (after, up_to, -1), range(after + 1, up_to + 1), most_bytes)

    def few_at(self, connection: apsw.Connection, keys: Sequence[int], most_bytes: int) -> list[SequencedEvent] | None:
        """As `at`; None if the events are large."""
        expected = array("q", keys)
        return self._few(connection, AT, (apsw.carray(expected),), expected, most_bytes)

    def _few(
        self, connection: apsw.Connection, sql: str, bindings: Any, expected: Sequence[int], most_bytes: int
    ) -> list[SequencedEvent] | None:
        rows: list[Any] = []
        size = 0
        cursor = connection.execute(sql, bindings)
        while True:
            some = list(islice(cursor, sizes.SIZED_ROWS))
            rows += some
            size += sum(map(len, map(_data, some)))
            if size > most_bytes:
                return None
            if len(some) < sizes.SIZED_ROWS:
                break
        self._check_complete(rows, expected)
        return list(starmap(SequencedEvent, rows))

    def _check_complete(self, rows: Sequence[Row], expected: Sequence[int]) -> None:
        """Positions are unique and in order: as many rows as positions, up to the right one, are the right rows."""
        if len(rows) != len(expected) or (rows and rows[-1][POSITION] != expected[-1]):
            found = {row[POSITION] for row in rows}
            missing = next(position for position in expected if position not in found)
            raise StoreCorrupt(f"{self.path}: event {missing} is missing; {WHAT_TO_DO}")


def check_end(connection: apsw.Connection, path: str) -> None:
    """Raise StoreCorrupt if the log ends before the end that it had at a clean close, or that the index covers."""
    if _is_cut(path):
        raise StoreCorrupt(f"{path}: the file is truncated: its last page is not complete; {WHAT_TO_DO}")
    head, closed, indexed = connection.execute(ENDS).get
    if head < max(closed, indexed):
        raise StoreCorrupt(f"{path}: the log ends at {head}, but ended at {max(closed, indexed)} before; {WHAT_TO_DO}")


def _is_cut(path: str) -> bool:
    """Whether the file ends in the middle of a page, which SQLite takes for one that ends in zeros.

    After a disk was full it may, as long as the write-ahead log has the page.
    """
    has_log = size_of(f"{path}-wal")
    cut = size_of(path) % sizes.PAGE_BYTES
    return bool(cut and not has_log and not size_of(f"{path}-wal"))


class Head:
    """The last position. It never decreases: a log that has become shorter is damaged, or another log."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._highest = 0

    def read(self, connection: apsw.Connection) -> int:
        known = self._highest  # taken before the query, because other threads may raise it meanwhile
        head: int = value(connection, HEAD) or 0
        if head < known:
            if isinstance(connection, ImmutableConnection) and not connection.is_current():
                raise connection.changed()  # another thread has read a later state
            raise StoreCorrupt(
                f"{self._path}: the log ends at {head}, but ended at {known} before: an older copy has taken its "
                f"place, or it is damaged. After a restore, open the store again; otherwise {WHAT_TO_DO}"
            )
        if head > self._highest:
            self._highest = head
        return head

    def poll(self, connection: Connection) -> int:
        """As `read`, in half the time if no other connection has committed since this connection last polled."""
        version: int = value(connection, DATA_VERSION)
        if connection.polled is None or connection.polled[0] != version:
            connection.polled = version, self.read(connection)
        return connection.polled[1]


def newer_rows(connection: apsw.Connection, after: int, path: str) -> Iterator[Row]:
    """The rows of all events above `after`."""
    for position, row in enumerate(connection.execute(NEWER, (after,)), start=after + 1):
        if row[POSITION] != position:
            raise StoreCorrupt(f"{path}: event {position} is missing; {WHAT_TO_DO}")
        yield row
