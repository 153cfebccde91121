"""Reading PostgreSQL in a worker, straight into record batches.

The ADBC driver asks for a range of positions as binary COPY, which the server sends without
planning pages and the driver turns into Arrow without Python. A query goes through the store,
whose functions know how to walk the postings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

from ..errors import StoreUnavailable
from ..opening import open as open_address
from ..store import EventStore
from .recorded import as_recorded
from .scanning import even_borders
from .selection import Selection
from .sqlite_scan import literals
from .store_scan import read_batches

BATCH_BYTES: Final = 16_777_216
OURS: Final = (
    "schema",
    "create",
    "connections",
    "patience_s",
    "record_conditions",
)  # what the address tells the engine, not PostgreSQL
SOURCES: Final = {"metadata": "coalesce(metadata::text, '') AS metadata"}


@dataclass(frozen=True)
class PostgresScan:
    address: str = field(repr=False)  # it may hold a password

    def open(self) -> EventStore:
        return open_address(self.address)

    def borders(self, store: EventStore, selection: Selection, parts: int) -> Sequence[int]:
        return even_borders(selection, parts)

    def batches(self, selection: Selection, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        if not selection.query.matches_all:
            with self.open() as store:
                yield from read_batches(store, selection, columns)
            return
        yield from self._executed(lambda schema: statement(schema, selection, columns))

    def recorded(self, after: int, upto: int) -> Iterator[pa.RecordBatch]:
        wanted = f"last > {after} AND last <= {min(upto, 2**63 - 1)} ORDER BY last"
        columns = "first, last, conditions::text AS conditions, coalesce(unless::text, '') AS unless"
        for found in self._executed(lambda schema: f"SELECT {columns} FROM {schema}.append WHERE {wanted}"):
            if found.num_rows:
                yield as_recorded(found)

    def _executed(self, sql: Callable[[str], str]) -> Iterator[pa.RecordBatch]:
        """The rows of a statement, which is made for the name of the schema."""
        from adbc_driver_manager import Error
        from adbc_driver_postgresql import dbapi

        url, schema = split_address(self.address)
        try:
            with dbapi.connect(url) as connection, connection.cursor() as cursor:
                cursor.adbc_statement.set_options(**{"adbc.postgresql.batch_size_hint_bytes": str(BATCH_BYTES)})
                cursor.execute(sql(schema))
                yield from cursor.fetch_record_batch()
        except Error as error:
            raise StoreUnavailable(
                f"PostgreSQL: {str(error).strip()}; workers connect by themselves, so it must be reachable from all"
            ) from None


def split_address(address: str) -> tuple[str, str]:
    """What PostgreSQL understands of the address, and the schema that the store is in, quoted."""
    from ..engines.postgres.addresses import parted
    from ..engines.postgres.install import DEFAULT_SCHEMA, quoted

    url, given = parted(address, OURS)
    return url, quoted(given.get("schema", DEFAULT_SCHEMA))


def statement(schema: str, selection: Selection, columns: Sequence[str]) -> str:
    terms = [f"position > {selection.after}", f"position <= {min(selection.upto, 2**63 - 1)}"]
    if selection.types is not None:
        terms.append(f"type IN ({literals(selection.types)})")
    if selection.recorded_from is not None:
        terms.append(f"recorded_at >= {_moment(selection.recorded_from)}")
    if selection.recorded_upto is not None:
        terms.append(f"recorded_at <= {_moment(selection.recorded_upto)}")
    wanted = ", ".join(SOURCES.get(name, name) for name in columns)
    return f"SELECT {wanted} FROM {schema}.event WHERE {' AND '.join(terms)} ORDER BY position"


def _moment(microseconds: int) -> str:
    return f"(timestamptz 'epoch' + {microseconds} * interval '1 microsecond')"
