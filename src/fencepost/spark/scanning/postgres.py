"""Scanning PostgreSQL in a worker, straight into record batches.

The ADBC driver reads a range of positions by binary COPY and turns it into Arrow without Python objects. A query goes
through the store, whose SQL functions search the index.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from ...engine import Tables, scrubbed, tables_at
from ...errors import StoreUnavailable
from .appends import as_recorded
from .selection import Selection
from .store import StoreScan

BATCH_BYTES: Final = 16_777_216
SOURCES: Final = {"metadata": "coalesce(metadata::text, '') AS metadata"}


@dataclass(frozen=True)
class PostgresScan(StoreScan):
    def batches(self, selection: Selection, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        if not selection.query.matches_all:
            return super().batches(selection, columns)
        return self._executed(lambda tables: statement(tables.events, selection, columns))

    def recorded(self, after: int, up_to: int) -> Iterator[pa.RecordBatch]:
        wanted = f"last > {after} AND last <= {min(up_to, 2**63 - 1)} ORDER BY last"
        columns = "first, last, conditions::text AS conditions, coalesce(unless::text, '') AS unless"
        for found in self._executed(lambda tables: f"SELECT {columns} FROM {tables.appends} WHERE {wanted}"):
            if found.num_rows:
                yield as_recorded(found)

    def _executed(self, sql: Callable[[Tables], str]) -> Iterator[pa.RecordBatch]:
        """The rows of the statement that `sql` returns for the tables of the store."""
        from adbc_driver_manager import Error
        from adbc_driver_postgresql import dbapi

        tables = tables_at(self.address)
        try:
            with dbapi.connect(tables.url) as connection, connection.cursor() as cursor:
                cursor.adbc_statement.set_options(**{"adbc.postgresql.batch_size_hint_bytes": str(BATCH_BYTES)})
                cursor.execute(sql(tables))
                yield from cursor.fetch_record_batch()
        except Error as error:
            problem = scrubbed(str(error).strip(), [self.address.text])
        else:
            return
        # Raised outside the handler, so that the driver's message, which may hold the password, is not its context.
        raise StoreUnavailable(
            f"PostgreSQL: {problem}; every worker connects to the server, so it must be reachable from all of them"
        )


def statement(table: str, selection: Selection, columns: Sequence[str]) -> str:
    wanted = ", ".join(SOURCES.get(name, name) for name in columns)
    return f"SELECT {wanted} FROM {table} WHERE {selection.terms(_moment)} ORDER BY position"


def _moment(microseconds: int) -> str:
    return f"(timestamptz 'epoch' + {microseconds} * interval '1 microsecond')"
