"""Scanning an SQLite file in a worker, straight into record batches.

The ADBC driver reads the events table by ranges of its primary key; no row becomes a Python object. The driver has an
SQLite library of its own, and two SQLite libraries must never have one file open in one process. So only Spark's
Python workers use it; a task with a query goes through the store instead, and each closes the file before the next
begins. The extension that checks the pages of a store is loaded into the driver's library too.
tests/spark/test_sqlite_scan.py checks this.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from shutil import copy
from tempfile import TemporaryDirectory
from typing import Any, Final
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc

from ... import EventStore
from ... import open as open_address
from ...errors import StoreUnavailable
from ..basics import even_borders
from .appends import as_recorded
from .selection import Selection
from .store import read_batches

BATCH_BYTES: Final = 16_777_216  # the most data in a batch, unless one event has more
BATCH_ROWS: Final = 8_192
FEWEST_ROWS: Final = 64
RECORDED_ROWS: Final = 1_024
LOOKED_AT: Final = 50_000  # events that are read to balance the partitions of a query
PATIENCE_S: Final = 30.0  # for a lock that another process holds on the file

# Stands for data that a first statement leaves out. An event whose data is just that is read twice, which is correct.
LEFT_OUT: Final = b"\0fencepost:large\0"

# The driver infers a column's type from its first rows, and NULL has none, so no column may be NULL.
SOURCES: Final = {"id": "coalesce(id, x'')", "metadata": "coalesce(metadata, '')"}


@dataclass(frozen=True)
class SqliteScan:
    path: str
    read_only: bool = False

    def open(self) -> EventStore:
        return open_address(f"sqlite:{self.path}", create=False, read_only=self.read_only)

    def borders(self, store: EventStore, selection: Selection, parts: int) -> Sequence[int]:
        """For a query, borders between equal numbers of matching events, if there are few enough to read them all."""
        after, up_to = selection.after, selection.up_to
        if selection.query.matches_all:
            return even_borders(after, up_to, parts)
        matched = [event.position for event in store.read(selection.query, after=after, up_to=up_to, limit=LOOKED_AT)]
        if len(matched) == LOOKED_AT:
            return even_borders(after, up_to, parts)
        counts = [len(matched) * part // parts for part in range(1, parts)]
        return sorted({matched[count - 1] for count in counts if count})

    def batches(self, selection: Selection, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        if not selection.query.matches_all:
            with self.open() as store:
                yield from read_batches(store, selection, columns)
            return
        if "data" in columns:
            yield from self._bounded(selection, columns)
        else:
            yield from self._executed(statement(selection, columns), BATCH_ROWS)

    def recorded(self, after: int, up_to: int) -> Iterator[pa.RecordBatch]:
        for batch in self._executed("SELECT count(*) AS found FROM sqlite_schema WHERE name = 'appends'", 1):
            if batch.column("found")[0].as_py():
                wanted = f"last > {after} AND last <= {min(up_to, 2**63 - 1)} ORDER BY last"
                columns = "first, last, conditions, coalesce(unless, '') AS unless"
                for found in self._executed(f"SELECT {columns} FROM appends WHERE {wanted}", RECORDED_ROWS):
                    if found.num_rows:
                        yield as_recorded(found)

    def _bounded(self, selection: Selection, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Batches with at most BATCH_BYTES of data, whatever the sizes of the events are.

        The driver fixes the number of rows in a batch before it knows their sizes. So larger data is left out of the
        first statement, and a second statement reads it, for as many rows at a time as a batch may hold.
        """
        rows = self._rows_per_batch(selection)
        most = 4 * BATCH_BYTES // rows
        # The sizes are not a column of their own, because the driver needs 0.1 us for each value of a column.
        short = {**SOURCES, "data": f"CASE WHEN length(data) <= {most} THEN data ELSE x'{LEFT_OUT.hex()}' END"}
        wanted = list(dict.fromkeys([*columns, "position"]))
        with self._connected() as connection:
            for batch in _rows(connection, statement(selection, wanted, short), rows):
                large = _left_out(batch)
                if not large:
                    yield batch.select(list(columns))
                    continue
                for begin, end in _groups(_sizes(connection, batch, large)):
                    part = batch.slice(begin, end - begin)
                    missing = [index - begin for index in large if begin <= index < end]
                    yield _with_data(connection, part, missing).select(list(columns))

    def _executed(self, sql: str, rows: int) -> Iterator[pa.RecordBatch]:
        """The rows of the statement, `rows` in each batch."""
        with self._connected() as connection:
            yield from _rows(connection, sql, rows)

    @contextmanager
    def _connected(self) -> Iterator[Any]:
        from adbc_driver_manager import Error
        from adbc_driver_sqlite import dbapi

        _check_pages(dbapi)
        try:
            with dbapi.connect(f"file:{quote(self.path)}?mode=ro") as connection:
                for _ in _rows(connection, f"PRAGMA busy_timeout = {int(PATIENCE_S * 1000)}", 1):
                    pass
                yield connection
        except Error as error:
            if "disk I/O error" in str(error):
                self._name_damage()
            if "locked" in str(error):
                remedy = f"another process has held a lock on the file for more than {PATIENCE_S:g} s; try again"
            else:
                remedy = "a worker opens the file, so its path must exist on every machine that runs a worker"
            raise StoreUnavailable(f"{self.path}: {error}; {remedy}") from None

    def _name_damage(self) -> None:
        """Raise StoreCorrupt with the damaged page, which the driver does not tell: the store's own reads do."""
        with self.open() as store:
            for _ in store.read():
                pass

    def _rows_per_batch(self, selection: Selection) -> int:
        """The number of rows at which events of average size fill a batch."""
        try:
            size = os.path.getsize(self.path)
        except OSError:  # opening the file will report the problem
            return FEWEST_ROWS
        return max(FEWEST_ROWS, min(BATCH_ROWS, BATCH_BYTES * selection.up_to // max(size, 1)))


@cache
def _check_pages(dbapi: Any) -> None:
    """Load SQLite's extension cksumvfs into the driver's library, for all connections that are opened after this.

    apsw and the driver each have an SQLite of their own, and the extension has a global variable for the SQLite that it
    calls. So the driver gets a copy of the extension, and each of the two is bound to its own variable. Otherwise
    apsw's connections would call functions of the driver's SQLite, and crash: tests/spark/test_sqlite_scan.py.
    """
    import apsw.sqlite_extra

    original = str(apsw.sqlite_extra.path("cksumvfs"))
    with TemporaryDirectory() as folder, dbapi.connect(":memory:") as connection:
        copied = copy(original, folder)
        for path in (original, copied):
            ctypes.CDLL(path, mode=os.RTLD_NOW | os.RTLD_LOCAL | getattr(os, "RTLD_DEEPBIND", 0))
        for option, value in (("enabled", "true"), ("path", copied), ("entrypoint", "sqlite3_cksumvfs_init")):
            connection.adbc_connection.set_options(**{f"adbc.sqlite.load_extension.{option}": value})


def _rows(connection: Any, sql: str, rows: int) -> Iterator[pa.RecordBatch]:
    with connection.cursor() as cursor:
        cursor.adbc_statement.set_options(**{"adbc.sqlite.query.batch_rows": str(rows)})
        cursor.execute(sql)
        yield from cursor.fetch_record_batch()


def _left_out(batch: pa.RecordBatch) -> list[int]:
    """The rows whose data the first statement has left out."""
    data = batch.column("data")
    if not pa.types.is_binary(data.type):  # no rows
        data = data.cast(pa.string()).cast(pa.binary())
    found: list[int] = pc.indices_nonzero(pc.equal(data, pa.scalar(LEFT_OUT, pa.binary()))).to_pylist()
    return found


def _sizes(connection: Any, batch: pa.RecordBatch, large: Sequence[int]) -> list[int]:
    """The size of the data of every row, also where it was left out."""
    sizes: list[int] = pc.binary_length(batch.column("data")).to_pylist()
    for index, size in zip(large, _of_rows(connection, batch, large, "length(data)"), strict=True):
        sizes[index] = size
    return sizes


def _of_rows(connection: Any, batch: pa.RecordBatch, rows: Sequence[int], source: str) -> list[Any]:
    """The values of a column, or of another expression, for these rows of the batch."""
    positions = batch.column("position")
    numbers = ", ".join(str(positions[index]) for index in rows)
    sql = f"SELECT {source} AS found FROM events WHERE position IN ({numbers}) ORDER BY position"
    return [each for read in _rows(connection, sql, len(rows)) for each in read.column("found").to_pylist()]


def _groups(sizes: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Ranges of rows with at most BATCH_BYTES of data, or one row."""
    begin = total = 0
    for index, size in enumerate(sizes):
        if index > begin and total + size > BATCH_BYTES:
            yield begin, index
            begin, total = index, 0
        total += size
    if begin < len(sizes):
        yield begin, len(sizes)


def _with_data(connection: Any, batch: pa.RecordBatch, large: Sequence[int]) -> pa.RecordBatch:
    """The batch with the data of the rows that the first statement left out."""
    if not large:
        return batch
    data = batch.column("data").to_pylist()
    for index, content in zip(large, _of_rows(connection, batch, large, "data"), strict=True):
        data[index] = content
    return batch.set_column(batch.schema.get_field_index("data"), "data", pa.array(data, type=pa.binary()))


def statement(selection: Selection, columns: Sequence[str], sources: Mapping[str, str] = SOURCES) -> str:
    wanted = ", ".join(f"{sources.get(name, name)} AS {name}" for name in columns)
    return f"SELECT {wanted} FROM events WHERE {selection.terms()} ORDER BY position"
