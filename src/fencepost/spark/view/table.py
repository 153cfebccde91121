"""A view in a table of PostgreSQL, to be read with SQL.

The table has the columns of the fold; the table `fencepost_view` beside it says which position it covers. A refresh
is one transaction that changes both. So readers see the view before or after a refresh, and a killed refresh has not
happened. Only the latest version is kept.

The table also has a column with the states to continue from. Each worker reads its part in one snapshot, and only if
the view is still at the position that the driver has found.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timezone
from functools import partial
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampType,
)

from ...address import POSTGRES, without_options
from ...engines.postgres.addresses import parameters_of
from ...errors import FormatUnsupported, InvalidInput, StoreUnavailable
from ..basics import over_tasks
from ..folding import Plan
from .place import FORMAT, Version, ViewManifest

try:
    import psycopg
    from psycopg import sql
    from psycopg.types.json import Jsonb
except ImportError as error:
    raise ImportError(f"{error}; a view in PostgreSQL needs an extra: pip install 'fencepost[postgres]'") from error

VIEWS: Final = "fencepost_view"
BATCH_ROWS: Final = 8_192
PARTS: Final = 4

MAKE_VIEWS: Final = """
CREATE TABLE IF NOT EXISTS {views} (
    name text PRIMARY KEY,
    format integer NOT NULL,
    projection text NOT NULL,
    fingerprint text NOT NULL,
    columns text NOT NULL,
    position numeric(38) NOT NULL,
    digest text NOT NULL
)
"""
PUT_VIEW: Final = """
INSERT INTO {views} VALUES (%s, %s, %s, %s, %s, %s, %s)
ON CONFLICT (name) DO UPDATE SET format = EXCLUDED.format, projection = EXCLUDED.projection,
    fingerprint = EXCLUDED.fingerprint, columns = EXCLUDED.columns, position = EXCLUDED.position,
    digest = EXCLUDED.digest
"""

SQL_TYPES: Final[dict[type[DataType], str]] = {
    BooleanType: "boolean",
    ByteType: "smallint",
    ShortType: "smallint",
    IntegerType: "integer",
    LongType: "bigint",
    FloatType: "real",
    DoubleType: "double precision",
    StringType: "text",
    BinaryType: "bytea",
    DateType: "date",
    TimestampType: "timestamptz",
}


def sql_type(type_: DataType) -> str:
    """The PostgreSQL type of a Spark column. Anything but a value or a list of values becomes JSON."""
    if isinstance(type_, DecimalType):
        return f"numeric({type_.precision},{type_.scale})"
    if isinstance(type_, ArrayType) and type(type_.elementType) in SQL_TYPES:
        return f"{SQL_TYPES[type(type_.elementType)]}[]"
    return SQL_TYPES.get(type(type_), "jsonb")


@dataclass(frozen=True)
class TablePlace:
    url: str = field(repr=False)  # it may hold a password
    schema: str
    name: str
    plan: Plan

    @classmethod
    def of(cls, address: str, plan: Plan) -> TablePlace:
        # The address of a store with a table added to it is accepted: its options for the engine are ignored.
        url, given = without_options(address, ("table", *POSTGRES.options))
        table = given.get("table", "")
        if not table:
            raise InvalidInput("at", "the table is missing: postgresql://…?table=balances")
        schema, dot, name = table.rpartition(".")
        parameters_of(url)
        return cls(url, schema if dot else "public", name, plan)

    @property
    def table(self) -> sql.Identifier:
        return sql.Identifier(self.schema, self.name)

    @property
    def views(self) -> sql.Identifier:
        return sql.Identifier(self.schema, VIEWS)

    @contextmanager
    def refreshing(self) -> Iterator[None]:
        with self.connected() as connection:
            key = f"fencepost view {self.schema}.{self.name}"
            (locked,) = one(connection, "SELECT pg_try_advisory_lock(hashtextextended(%s, 0))", key)
            connection.commit()
            if not locked:
                raise StoreUnavailable(f"{self.name}: another process is refreshing this view; try again later")
            yield  # the lock ends with the connection

    def manifest(self) -> ViewManifest | None:
        with self.connected() as connection:
            (there,) = one(connection, "SELECT to_regclass(%s)::text", f'"{self.schema}"."{VIEWS}"')
            return None if there is None else self.manifest_in(connection)

    def manifest_in(self, connection: psycopg.Connection[Any]) -> ViewManifest | None:
        statement = sql.SQL(
            "SELECT format, projection, fingerprint, columns, position, digest FROM {} WHERE name = %s"
        ).format(self.views)
        found = connection.execute(statement, (self.name,)).fetchone()
        if found is None:
            return None
        format, projection, fingerprint, columns, position, digest = found
        if format > FORMAT:
            raise FormatUnsupported(
                f"{self.name}: written in format {format}; this version of Fencepost reads formats up to {FORMAT}: "
                "upgrade Fencepost"
            )
        version = Version(position=int(position), digest=digest, layers=())
        return ViewManifest(projection=projection, fingerprint=fingerprint, columns=columns, versions=(version,))

    def saved(self, spark: SparkSession, schema: StructType, version: Version) -> DataFrame | None:
        return None  # computed from the states, by the projection

    def states(self, spark: SparkSession, schema: StructType, version: Version) -> DataFrame:
        return over_tasks(spark, range(PARTS), partial(_states, self, version.position, schema), schema)

    def save(self, changes: DataFrame, manifest: ViewManifest, position: int, digest: str) -> int:
        anew = not manifest.versions
        with self.connected() as connection:
            draft = sql.Identifier(self.schema, f"{self.name}_refreshed") if anew else sql.Identifier("changes")
            self._make(connection, draft, changes.schema, temporary=not anew)
            count = self._copy(connection, draft, changes)
            if anew:
                self._replace(connection, draft)
            else:
                self._merge(connection, draft, changes.schema.names)
            connection.execute(sql.SQL(MAKE_VIEWS).format(views=self.views))
            connection.execute(
                sql.SQL(PUT_VIEW).format(views=self.views),
                (self.name, FORMAT, manifest.projection, manifest.fingerprint, manifest.columns, position, digest),
            )
        return count

    def _make(
        self, connection: psycopg.Connection[Any], table: sql.Identifier, schema: StructType, *, temporary: bool
    ) -> None:
        columns = sql.SQL(", ").join(
            sql.SQL("{} {}").format(sql.Identifier(each.name), sql.SQL(sql_type(each.dataType)))
            for each in schema.fields
        )
        if not temporary:
            connection.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(table))
        kind = sql.SQL("TEMPORARY TABLE" if temporary else "TABLE")
        end = sql.SQL(" ON COMMIT DROP" if temporary else "")
        connection.execute(
            sql.SQL("CREATE {} {} ({}, PRIMARY KEY ({})){}").format(kind, table, columns, self._keys, end)
        )

    @property
    def _keys(self) -> sql.Composed:
        return sql.SQL(", ").join(map(sql.Identifier, self.plan.keys))

    def _copy(self, connection: psycopg.Connection[Any], table: sql.Identifier, rows: DataFrame) -> int:
        types = [each.dataType for each in rows.schema.fields]
        count = 0
        with connection.cursor() as cursor, cursor.copy(sql.SQL("COPY {} FROM STDIN").format(table)) as copy:
            for row in rows.toLocalIterator(prefetchPartitions=True):
                copy.write_row([adapted(value, type) for value, type in zip(row, types, strict=True)])
                count += 1
        return count

    def _replace(self, connection: psycopg.Connection[Any], draft: sql.Identifier) -> None:
        """Replace the table. Readers are blocked from here to the commit."""
        connection.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(self.table))
        connection.execute(sql.SQL("ALTER TABLE {} RENAME TO {}").format(draft, sql.Identifier(self.name)))

    def _merge(self, connection: psycopg.Connection[Any], draft: sql.Identifier, names: Sequence[str]) -> None:
        put = sql.SQL(", ").join(
            sql.SQL("{0} = EXCLUDED.{0}").format(sql.Identifier(name)) for name in names if name not in self.plan.keys
        )
        connection.execute(
            sql.SQL("INSERT INTO {} SELECT * FROM {} ON CONFLICT ({}) DO UPDATE SET {}").format(
                self.table, draft, self._keys, put
            )
        )

    @contextmanager
    def connected(self) -> Iterator[psycopg.Connection[Any]]:
        try:
            with psycopg.connect(self.url) as connection:
                yield connection
        except psycopg.Error as error:
            raise StoreUnavailable(f"the view in PostgreSQL: {str(error).strip().splitlines()[0]}") from None


def one(connection: psycopg.Connection[Any], statement: Any, *values: Any) -> tuple[Any, ...]:
    found = connection.execute(statement, values).fetchone()
    assert found is not None
    return tuple(found)


def adapted(value: Any, type_: DataType) -> Any:
    if value is None:
        return None
    if isinstance(type_, TimestampType):
        return moment(value)
    if sql_type(type_) == "jsonb":
        return Jsonb(plain(value, type_))
    if isinstance(type_, ArrayType):
        return [adapted(each, type_.elementType) for each in value]
    return bytes(value) if isinstance(value, bytearray) else value


def plain(value: Any, type_: DataType) -> Any:
    """Rows and maps as values of JSON."""
    if value is None:
        return None
    if isinstance(type_, StructType):
        return {each.name: plain(value[each.name], each.dataType) for each in type_.fields}
    if isinstance(type_, MapType):
        return {str(plain(name, type_.keyType)): plain(each, type_.valueType) for name, each in value.items()}
    if isinstance(type_, ArrayType):
        return [plain(each, type_.elementType) for each in value]
    if isinstance(type_, TimestampType):
        return moment(value).isoformat()
    return value if isinstance(value, (str, int, float)) else str(value)


def moment(value: datetime) -> datetime:
    """The time in UTC. Spark returns it without a time zone, in that of this process."""
    return value.astimezone(timezone.utc)


def _states(place: TablePlace, position: int, wanted: StructType, part: int) -> Iterator[pa.RecordBatch]:
    """A part of the states; in a worker."""
    schema = to_arrow_schema(wanted, timezone="UTC")
    with place.connected() as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        manifest = place.manifest_in(connection)
        if manifest is None or manifest.versions[-1].position != position:
            raise StoreUnavailable(f"{place.name}: the view was refreshed meanwhile; read it again")
        statement = sql.SQL("SELECT {} FROM {} WHERE abs(mod(hashtext({})::bigint, {})) = {}").format(
            sql.SQL(", ").join(sql.Identifier(name) for name in wanted.names),
            place.table,
            sql.Identifier(place.plan.keys[0]),
            PARTS,
            part,
        )
        with connection.cursor("states") as cursor:
            cursor.execute(statement)
            while rows := cursor.fetchmany(BATCH_ROWS):
                columns = zip(*rows, strict=True)
                arrays = [pa.array(column, type=each.type) for column, each in zip(columns, schema, strict=True)]
                yield pa.RecordBatch.from_arrays(arrays, schema=schema)
