"""Scanning PostgreSQL in a worker, straight into record batches.

The ADBC driver reads a range of positions by binary COPY and turns it into Arrow without Python objects. A query goes
through the store, whose SQL functions search the index.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from ...address import Address
from ...errors import StoreUnavailable
from ...redaction import scrubbed
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
        return self._executed(lambda schema: statement(schema, selection, columns))

    def recorded(self, after: int, upto: int) -> Iterator[pa.RecordBatch]:
        wanted = f"last > {after} AND last <= {min(upto, 2**63 - 1)} ORDER BY last"
        columns = "first, last, conditions::text AS conditions, coalesce(unless::text, '') AS unless"
        for found in self._executed(lambda schema: f"SELECT {columns} FROM {schema}.append WHERE {wanted}"):
            if found.num_rows:
                yield as_recorded(found)

    def _executed(self, sql: Callable[[str], str]) -> Iterator[pa.RecordBatch]:
        """The rows of the statement that `sql` returns for the name of the schema."""
        from adbc_driver_manager import Error
        from adbc_driver_postgresql import dbapi

        url, schema = split_address(self.address)
        try:
            with dbapi.connect(url) as connection, connection.cursor() as cursor:
                cursor.adbc_statement.set_options(**{"adbc.postgresql.batch_size_hint_bytes": str(BATCH_BYTES)})
                cursor.execute(sql(schema))
                yield from cursor.fetch_record_batch()
        except Error as error:
            problem = scrubbed(str(error).strip(), [self.address.text])
        else:
            return
        # Raised outside the handler, so that the driver's message, which may hold the password, is not its context.
        raise StoreUnavailable(
            f"PostgreSQL: {problem}; every worker connects to the server, so it must be reachable from all of them"
        )


def split_address(address: Address) -> tuple[str, str]:
    """The URL for PostgreSQL, without options of Fencepost, and the quoted name of the store's schema."""
    from ...engines.postgres.addresses import parameters_of
    from ...engines.postgres.install import DEFAULT_SCHEMA, quoted

    parameters_of(address.location)
    return address.location, quoted(str(address.options.get("schema", DEFAULT_SCHEMA)))


def statement(schema: str, selection: Selection, columns: Sequence[str]) -> str:
    wanted = ", ".join(SOURCES.get(name, name) for name in columns)
    return f"SELECT {wanted} FROM {schema}.event WHERE {selection.terms(_moment)} ORDER BY position"


def _moment(microseconds: int) -> str:
    return f"(timestamptz 'epoch' + {microseconds} * interval '1 microsecond')"
