"""Reading a SQLite file in a worker, straight into record batches.

The ADBC driver reads the events table by ranges of its primary key; no row becomes a Python
object. It brings an SQLite library of its own, and two of those must never have one file open in
one process. So it is used in Spark's Python workers alone, where a task that has a query goes
through the store instead, and each closes the file before the next begins.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

import pyarrow as pa

from ..errors import StoreUnavailable
from ..opening import open as open_address
from ..store import EventStore
from .recorded import as_recorded
from .scanning import even_borders
from .selection import Selection
from .store_scan import read_batches

BATCH_BYTES: Final = 16_777_216  # of the file, so of the memory that a batch takes, give or take
BATCH_ROWS: Final = 8_192
FEWEST_ROWS: Final = 64
LOOKED_AT: Final = 50_000  # events that a query is tried on to balance its partitions

# The driver takes a column's type from its first rows, and NULL has none: so nothing is NULL here.
SOURCES: Final = {"id": "coalesce(id, x'') AS id", "metadata": "coalesce(metadata, '') AS metadata"}
CHECKED: Final = (
    "position",
    "CAST(type AS BLOB) AS type",
    "CAST(tags AS BLOB) AS tags",
    "data",
    "recorded_at",
    "id",
    "CAST(coalesce(metadata, '') AS BLOB) AS metadata",
    "checksum",
)


@dataclass(frozen=True)
class SqliteScan:
    path: str

    def open(self) -> EventStore:
        return open_address(f"sqlite:{self.path}", create=False)

    def borders(self, store: EventStore, selection: Selection, parts: int) -> Sequence[int]:
        if selection.query.matches_all:
            return even_borders(selection, parts)
        return matched_borders(store, selection, parts)

    def batches(self, selection: Selection, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        if not selection.query.matches_all:
            with self.open() as store:
                yield from read_batches(store, selection, columns)
            return
        yield from self._executed(statement(selection, columns), self._rows_per_batch(selection))

    def recorded(self, after: int, upto: int) -> Iterator[pa.RecordBatch]:
        for batch in self._executed("SELECT count(*) AS found FROM sqlite_schema WHERE name = 'appends'", 1):
            if batch.column("found")[0].as_py():
                wanted = f"last > {after} AND last <= {min(upto, 2**63 - 1)} ORDER BY last"
                columns = "first, last, conditions, coalesce(unless, '') AS unless"
                for found in self._executed(f"SELECT {columns} FROM appends WHERE {wanted}", BATCH_ROWS):
                    if found.num_rows:
                        yield as_recorded(found)

    def with_checksums(self, after: int, upto: int) -> Iterator[pa.RecordBatch]:
        """The columns that a checksum is made of, in its order, and the checksum.

        Texts come as bytes: where something is broken, they need not be texts.
        """
        selection = Selection(after, upto)
        return self._executed(statement(selection, CHECKED), self._rows_per_batch(selection))

    def _executed(self, sql: str, rows: int) -> Iterator[pa.RecordBatch]:
        """The statement's rows, so many in a batch."""
        from adbc_driver_manager import Error
        from adbc_driver_sqlite import dbapi

        try:
            with dbapi.connect(f"file:{quote(self.path)}?mode=ro") as connection, connection.cursor() as cursor:
                cursor.adbc_statement.set_options(**{"adbc.sqlite.query.batch_rows": str(rows)})
                cursor.execute(sql)
                yield from cursor.fetch_record_batch()
        except Error as error:
            raise StoreUnavailable(
                f"{self.path}: {error}; a worker reads the file itself, so it must be on a path that all of them see"
            ) from None

    def _rows_per_batch(self, selection: Selection) -> int:
        try:
            size = os.path.getsize(self.path)
        except OSError:  # opening it will say what is the matter
            return FEWEST_ROWS
        return max(FEWEST_ROWS, min(BATCH_ROWS, BATCH_BYTES * selection.upto // max(size, 1)))


def statement(selection: Selection, columns: Sequence[str]) -> str:
    terms = [f"position > {selection.after}", f"position <= {min(selection.upto, 2**63 - 1)}"]
    if selection.types is not None:
        terms.append(f"type IN ({literals(selection.types)})")
    if selection.recorded_from is not None:
        terms.append(f"recorded_at >= {selection.recorded_from}")
    if selection.recorded_upto is not None:
        terms.append(f"recorded_at <= {selection.recorded_upto}")
    wanted = ", ".join(SOURCES.get(name, name) for name in columns)
    return f"SELECT {wanted} FROM events WHERE {' AND '.join(terms)} ORDER BY position"


def literals(texts: Iterable[str]) -> str:
    """
    >>> literals(["it's"])
    "'it''s'"
    """
    # A literal ends at a NUL, and no type holds one: the text that does can be left out. Nothing is equal to NULL.
    return ", ".join("'" + text.replace("'", "''") + "'" for text in sorted(texts) if "\0" not in text) or "NULL"


def matched_borders(store: EventStore, selection: Selection, parts: int) -> list[int]:
    """Borders between equal numbers of matching events, when there are few enough to look at them all."""
    matched = [
        event.position
        for event in store.read(selection.query, after=selection.after, upto=selection.upto, limit=LOOKED_AT)
    ]
    if len(matched) == LOOKED_AT:
        return even_borders(selection, parts)
    return sorted(
        {matched[len(matched) * part // parts - 1] for part in range(1, parts) if len(matched) * part // parts}
    )
