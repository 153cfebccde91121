"""Fetches events from the file and checks each of them before it is returned.

The caller always knows which positions to expect: a range, because positions have no gaps, or the positions that
the index named. So a missing or repeated row is noticed, as well as a row whose checksum does not hold. An event
that the index named must match the query. A missing posting cannot be noticed here; `verify` finds it.
tests/sqlite/test_damage.py holds this.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import islice, starmap
from operator import itemgetter, lt
from typing import Any, Final, NoReturn

import apsw

from ...buckets import matches
from ...errors import StoreCorrupt
from ...model import Query, SequencedEvent, encode_tags
from . import sizes
from .checksums import WHAT_TO_DO, are_sound, is_sound
from .connections import run, value
from .forks import Connection
from .layout import CHECKED_COLUMNS, CONTENT_COLUMNS, DATA, POSITION

HEAD: Final = "SELECT max(position) FROM events"
DATA_VERSION: Final = "PRAGMA data_version"  # changes when another connection, of any process, has committed
FORWARDS: Final = "SELECT {} FROM events WHERE position > ? AND position <= ? ORDER BY position LIMIT ?"
BACKWARDS: Final = "SELECT {} FROM events WHERE position > ? AND position <= ? ORDER BY position DESC LIMIT ?"
AT: Final = "SELECT {} FROM carray(?) AS wanted CROSS JOIN events ON events.position = wanted.value"
NEWER: Final = f"SELECT {CHECKED_COLUMNS} FROM events WHERE position > ? ORDER BY position"

_position, _data = itemgetter(POSITION), itemgetter(DATA)


class CheckedEvent(SequencedEvent, eq=False, gc=False):
    """An event that keeps its checksum, because removing the column from every row would cost more."""

    _checksum: int = 0

    def __reduce__(self) -> tuple[type, tuple[Any, ...]]:
        return SequencedEvent, self.stored


class EventRows:
    """Fetches events; without `check` it is faster and trusts the file."""

    def __init__(self, path: str, *, check: bool = True) -> None:
        self.path = path
        self._check = check
        columns = CHECKED_COLUMNS if check else CONTENT_COLUMNS
        self._forwards, self._backwards, self._at = (sql.format(columns) for sql in (FORWARDS, BACKWARDS, AT))
        self._made: Callable[..., SequencedEvent] = CheckedEvent if check else SequencedEvent

    def between(
        self, connection: apsw.Connection, after: int, upto: int, most: int, backwards: bool = False
    ) -> list[SequencedEvent]:
        """The first events with after < position <= upto, at most `most`, of a log that has all of them."""
        if backwards:
            sql, expected = self._backwards, range(upto, max(after, upto - most), -1)
        else:
            sql, expected = self._forwards, range(after + 1, min(upto, after + most) + 1)
        return list(starmap(self._made, self._fetched(connection, sql, (after, upto, most), expected)))

    def at(self, connection: apsw.Connection, keys: Sequence[int]) -> list[SequencedEvent]:
        """The events at these keys of a search: ascending positions, or negated ones."""
        if not keys:
            return []
        try:
            ascending = all(map(lt, keys, islice(keys, 1, None)))
            expected = array("q", map(abs, keys))
        except (TypeError, OverflowError):  # a damaged index can hold something else than numbers
            ascending = False
        if not ascending:
            raise StoreCorrupt(f"{self.path}: the index is out of order near {keys[0]}; {WHAT_TO_DO}")
        return list(starmap(self._made, self._fetched(connection, self._at, (apsw.carray(expected),), expected)))

    def few_between(
        self, connection: apsw.Connection, after: int, upto: int, most_bytes: int
    ) -> list[SequencedEvent] | None:
        """As `between`; None if the events are large."""
        expected = range(after + 1, upto + 1)
        return self._few(connection, self._forwards, (after, upto, -1), expected, most_bytes)

    def few_at(self, connection: apsw.Connection, keys: Sequence[int], most_bytes: int) -> list[SequencedEvent] | None:
        """As `at`; None if the events are large."""
        expected = array("q", keys)
        return self._few(connection, self._at, (apsw.carray(expected),), expected, most_bytes)

    def check_matches(self, events: Sequence[SequencedEvent], query: Query) -> None:
        """Raise StoreCorrupt if the index named an event that does not match the query."""
        rest = events
        for item in query.items:
            # A substring test on the JSON text is fast. `matches`, which is exact, tests the events that fail it.
            tokens, types = [_token(tag) for tag in item.tags], item.types
            if len(tokens) == 1 and not types:
                (token,) = tokens
                rest = [event for event in rest if token not in event.raw_tags]
            else:
                rest = [
                    event
                    for event in rest
                    if (types and event.type not in types) or not all(token in event.raw_tags for token in tokens)
                ]
            if not rest:
                return
        for event in rest:
            if not matches(event, query):
                raise StoreCorrupt(
                    f"{self.path}: the index lists event {event.position} under a tag or type that it does not have; "
                    f"{WHAT_TO_DO}"
                )

    def _fetched(self, connection: apsw.Connection, sql: str, bindings: Any, expected: Sequence[int]) -> list[Any]:
        try:
            rows = connection.execute(sql, bindings).fetchall()
        except UnicodeDecodeError as error:
            self._raise_not_text(connection.execute(sql, bindings), expected, error)
        if self._check:
            check_rows(rows, expected, self.path, looked_up=sql is self._at)
        return rows

    def _few(
        self, connection: apsw.Connection, sql: str, bindings: Any, expected: Sequence[int], most_bytes: int
    ) -> list[SequencedEvent] | None:
        rows: list[Any] = []
        size = 0
        try:
            cursor = connection.execute(sql, bindings)
            while True:
                some = list(islice(cursor, sizes.SIZED_ROWS))
                rows += some
                size += sum(map(len, map(_data, some)))
                if size > most_bytes:
                    return None
                if len(some) < sizes.SIZED_ROWS:
                    break
        except (UnicodeDecodeError, TypeError):
            return None  # the caller scans instead, and the error of the scan names the event
        if self._check:
            check_rows(rows, expected, self.path, looked_up=sql is self._at)
        return list(starmap(self._made, rows))

    def _raise_not_text(self, cursor: Iterator[Any], expected: Sequence[int], error: UnicodeDecodeError) -> NoReturn:
        rows = iter(cursor)
        for position in expected:
            try:
                next(rows, None)
            except UnicodeDecodeError:
                raise _damaged(self.path, position) from error
        raise error


@lru_cache(maxsize=4_096)
def _token(tag: str) -> str:
    """The tag as it is written in the JSON text of an event's tags."""
    return encode_tags([tag])[1:-1]


class Head:
    """The last position. It never decreases: a log that has become shorter is damaged."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._highest = 0

    def read(self, connection: apsw.Connection) -> int:
        known = self._highest  # taken before the query, because other threads may raise it meanwhile
        head: int = value(connection, HEAD) or 0
        if head < known:
            raise StoreCorrupt(f"{self._path}: the log ends at {head}, but ended at {known} before; {WHAT_TO_DO}")
        if head > self._highest:
            self._highest = head
        return head

    def poll(self, connection: Connection) -> int:
        """As `read`, in half the time if no other connection has committed since this connection last polled."""
        version: int = value(connection, DATA_VERSION)
        if connection.polled is None or connection.polled[0] != version:
            connection.polled = version, self.read(connection)
        return connection.polled[1]


def newer_rows(connection: apsw.Connection, after: int, path: str) -> Iterator[tuple[Any, ...]]:
    """The rows of all events above `after`; their checksums have been checked."""
    rows: list[Any] = []
    size = 0
    for row in connection.execute(NEWER, (after,)):
        rows.append(row)
        data = row[DATA]
        size += len(data) if isinstance(data, bytes) else 0
        if len(rows) == sizes.CHECKED_ROWS or size > sizes.CHECKED_BYTES:
            check_rows(rows, range(after + 1, after + len(rows) + 1), path)
            yield from rows
            after, rows, size = after + len(rows), [], 0
    check_rows(rows, range(after + 1, after + len(rows) + 1), path)
    yield from rows


def check_rows(rows: list[Any], expected: Sequence[int], path: str, *, looked_up: bool = False) -> None:
    """Raise StoreCorrupt unless these are the sound rows of the events at the expected positions.

    If SQLite has looked up one position after the other, there is at most one row for each, with that position.
    """
    if not are_sound(rows):
        raise _damaged(path, next(row[POSITION] for row in rows if not is_sound(row)))
    if looked_up and len(rows) == len(expected):
        return
    found = list(map(_position, rows))
    if found != list(expected):
        position = next((each for each, other in zip(expected, found, strict=False) if each != other), None)
        lost = expected[len(found)] if position is None and len(found) < len(expected) else position
        raise StoreCorrupt(f"{path}: event {lost} is missing; {WHAT_TO_DO}")


def _damaged(path: str, position: int) -> StoreCorrupt:
    return StoreCorrupt(f"{path}: the content of event {position} does not agree with its checksum; {WHAT_TO_DO}")


def check_table(connection: apsw.Connection, table: str) -> None:
    """Raise StoreCorrupt if a row of a small table may be lost: SQLite checks every page of the table."""
    for (line,) in run(connection, f"PRAGMA quick_check('{table}')"):
        if line != "ok":
            raise StoreCorrupt(f"{connection.filename}: {table}: {line}; {WHAT_TO_DO}")
