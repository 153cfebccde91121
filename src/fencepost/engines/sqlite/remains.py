"""What can still be read of a damaged file, by SQLite's own reader, from pages whose checksum holds.

`readable_rows` goes through the table of events by position, and around every page that cannot be read. Events on
intact pages that no tree leads to any more come from `Leaves`: in a scratch copy of the file, the table is said to
begin at each intact leaf page in turn, so that SQLite reads that page as a whole table.

Only a page of the file can be taken for a leaf, never bytes inside an event: a page that continues a large event begins
with the number of the next page, whose first byte is that of a leaf only in files of more than 890 GB.
tests/sqlite/test_verify_and_salvage.py and tests/torture/damage.py check this.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from struct import pack
from typing import Any, Final

import apsw

from ...core.file_tools import Range
from ...errors import InvalidInput, StoreError
from ...model import RecordedAppend, decode_metadata, decode_tags
from . import sizes
from .connections import run, value
from .files import USE_WAL, schema
from .forks import Connection
from .layout import COLUMNS, Row
from .page_checksums import RESERVED_BYTES, load, reserve_bytes
from .recorded_appends import TABLE
from .write_ahead_log import checksum

READ_ERRORS: Final = (apsw.Error, ValueError, TypeError, OverflowError, StoreError)

TABLE_LEAF: Final = 13  # the first byte of a page that holds rows
MOST_PAGES: Final = TABLE_LEAF << 24
COPIED_BYTES: Final = 1_048_576

# Each of these is at or below the last position that was ever given out. The last event itself may be lost.
ENDS: Final = (
    "SELECT max(position) FROM events",
    "SELECT head FROM closed",
    "SELECT max(last) FROM generations WHERE state = 'ready'",
    "SELECT max(last) FROM appends",
)
# Not `position > ?`: SQLite would look for that position first, on a page that may be damaged.
FROM: Final = f"SELECT {COLUMNS} FROM events WHERE position >= ? ORDER BY position"
EVENT: Final = f"SELECT {COLUMNS} FROM events WHERE position = ?"
APPEND: Final = "SELECT last, first, conditions, unless FROM appends WHERE last = ?"


def last_position(connection: apsw.Connection) -> int:
    """The highest position that any tree knows of."""
    found = [0]
    for sql in ENDS:
        with suppress(*READ_ERRORS):
            found.append(int(value(connection, sql) or 0))
    return max(found)


def readable_rows(connection: apsw.Connection, up_to: int) -> Iterator[tuple[int, Row | None]]:
    """Every position up to the given one, with its row, or None if SQLite cannot read it."""
    position = 1
    while position <= up_to:
        try:
            for row in connection.execute(FROM, (position,)):
                while position < min(row[0], up_to + 1):
                    yield position, None
                    position += 1
                if position > up_to:
                    return
                yield position, row if is_event(row) else None
                position += 1
            yield from ((missing, None) for missing in range(position, up_to + 1))
            return
        except READ_ERRORS:
            yield position, None
            position += 1


def readable_positions(connection: apsw.Connection) -> Iterator[int]:
    return (position for position, row in readable_rows(connection, last_position(connection)) if row is not None)


def is_event(row: Row) -> bool:
    """Whether a row can be one of `events`, and not one of another table whose page was read as if it were."""
    position, type, tags, data, recorded_at, id, metadata = row
    try:
        return (
            isinstance(position, int)
            and position > 0
            and isinstance(type, str)
            and isinstance(data, bytes)
            and isinstance(recorded_at, int)
            and (id is None or (isinstance(id, bytes) and len(id) == 16))
            and isinstance(tags, str)
            and all(isinstance(tag, str) for tag in decode_tags(tags))
            and (metadata is None or (isinstance(metadata, str) and isinstance(decode_metadata(metadata), dict)))
        )
    except (ValueError, TypeError):
        return False


def is_append(row: Row) -> bool:
    """Whether a row can be one of `appends`."""
    last, first, conditions, unless = row
    if not isinstance(first, int) or not 0 < first <= last or not isinstance(conditions, str):
        return False
    try:
        append = RecordedAppend(first, last, conditions, unless)
        append.conditions, append.unless  # noqa: B018
    except (InvalidInput, TypeError):
        return False
    return True


def has_checked_pages(path: str) -> bool:
    """Whether a page of the file, other than its first, has content and a checksum that holds."""
    load()
    checker = apsw.Connection(":memory:")
    return any(_holds(checker, page) and any(page) for number, page in _pages(path) if number > 1)


class Leaves:
    """The rows on intact leaf pages of a file, whether or not a tree leads to them."""

    def __init__(self, path: str, scratch: Path) -> None:
        """`scratch` is an empty folder, on a disk that has room for a copy of the file."""
        self._connection = _scratch_copy(path, scratch)
        self._events: dict[int, int] = {}  # the page of each position
        self._appends: dict[int, int] = {}
        self._table, self._page = "", 0
        copy = str(scratch / "copy.db")
        leaves = [number for number, page in _pages(copy) if page[0] == TABLE_LEAF and _holds(self._connection, page)]
        for number in leaves:
            if 1 < number < MOST_PAGES:
                self._add(number)

    @property
    def last(self) -> int:
        return max([0, *self._events])

    @property
    def appends(self) -> list[int]:
        return sorted(self._appends)

    def event(self, position: int) -> Row | None:
        row = self._read("events", self._events.get(position), EVENT, position)
        return row if row is not None and is_event(row) else None

    def append(self, last: int) -> Row | None:
        return self._read("appends", self._appends.get(last), APPEND, last)

    def close(self) -> None:
        self._connection.close()

    def _add(self, page: int) -> None:
        try:
            self._point("events", page)
            keys = [key for (key,) in run(self._connection, "SELECT position FROM events")]
        except READ_ERRORS:
            return
        if not keys:
            return
        for key in keys:
            row = self._read("events", page, EVENT, key)
            if row is not None and is_event(row):
                self._events[key] = page
        for key in keys:
            row = self._read("appends", page, APPEND, key)
            if row is None or not is_append(row):
                break
            self._appends[key] = page

    def _read(self, table: str, page: int | None, sql: str, key: int) -> Row | None:
        if page is None:
            return None
        try:
            self._point(table, page)
            rows = run(self._connection, sql, (key,))
        except READ_ERRORS:
            return None
        return rows[0] if rows else None

    def _point(self, table: str, page: int) -> None:
        """Let the table begin at the page."""
        if (self._table, self._page) != (table, page):
            connection = self._connection
            run(connection, "PRAGMA writable_schema = ON")
            run(connection, "UPDATE sqlite_schema SET rootpage = ? WHERE name = ?", (page, table))
            run(connection, "PRAGMA writable_schema = RESET")
            self._table, self._page = table, page


def _scratch_copy(path: str, folder: Path) -> apsw.Connection:
    """A copy whose first page is one that SQLite can read; what is in the write-ahead log is in the copy."""
    copy = folder / "copy.db"
    with copy.open("wb") as target:
        for _, page in _pages(path):
            target.write(page)
        target.truncate(max(target.tell(), 3 * sizes.PAGE_BYTES))
    with suppress(FileNotFoundError):
        shutil.copyfile(f"{os.path.realpath(path)}-wal", f"{copy}-wal")
    first = _first_page(folder / "model.db")
    _write_first_page(copy, first)
    with suppress(*READ_ERRORS):  # a damaged log is left out
        _take_in_log(copy)
    for suffix in ("-wal", "-shm"):
        Path(f"{copy}{suffix}").unlink(missing_ok=True)
    _write_first_page(copy, first)
    connection = Connection(str(copy))
    connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 0)
    run(connection, "PRAGMA journal_mode = OFF")
    run(connection, "PRAGMA synchronous = OFF")
    return connection


def _take_in_log(copy: Path) -> None:
    connection = Connection(str(copy))
    try:
        run(connection, "PRAGMA schema_version")  # opens the log
        connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    finally:
        connection.close()


def _first_page(model: Path) -> bytes:
    """The first page of an empty store with the tables that are read. It leaves the number of pages open."""
    connection = Connection(str(model))
    reserve_bytes(connection)
    run(connection, USE_WAL)
    run(connection, schema().partition(";")[0])  # the table of events, and then that of appends, on pages 2 and 3
    run(connection, TABLE)
    connection.close()
    page = bytearray(model.read_bytes()[: sizes.PAGE_BYTES])
    page[28:32] = bytes(4)  # then SQLite goes by the size of the file
    page[-RESERVED_BYTES:] = pack("<2I", *checksum(bytes(page[:-RESERVED_BYTES])))
    return bytes(page)


def _write_first_page(copy: Path, page: bytes) -> None:
    with copy.open("r+b") as file:
        file.write(page)


def _pages(path: str) -> Iterator[tuple[int, bytes]]:
    """The pages of a file by number, read through SQLite's VFS, which does not drop locks when it closes the file."""
    flags: list[Any] = [apsw.SQLITE_OPEN_MAIN_DB | apsw.SQLITE_OPEN_READONLY, 0]
    file = apsw.VFSFile("unix", os.path.realpath(path), flags)
    try:
        size = file.xFileSize()
        for number, offset in enumerate(range(0, size, sizes.PAGE_BYTES), start=1):
            yield number, file.xRead(min(sizes.PAGE_BYTES, size - offset), offset).ljust(sizes.PAGE_BYTES, b"\0")
    finally:
        file.xClose()


def _holds(connection: apsw.Connection, page: bytes) -> bool:
    return bool(value(connection, "SELECT verify_checksum(?)", (page,)))


def extend(ranges: list[Range], position: int) -> None:
    """Add a position above all others to the ranges."""
    if ranges and ranges[-1][1] == position - 1:
        ranges[-1] = (ranges[-1][0], position)
    else:
        ranges.append((position, position))
