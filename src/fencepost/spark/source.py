"""Spark's reader of a log: `spark.read.format("fencepost")`.

A read is planned on the driver, where the head is looked up once and becomes the end of every
partition: so a read is one consistent prefix of the log, however long it takes and whatever is
appended meanwhile. Workers get a range each and give back Arrow record batches.

Spark plans a DataFrame once: what it was told for the first use stands for all later ones. For the
head that is welcome, since a DataFrame is then the same prefix for good. For filters it is not:
`df.where(...)` followed by `df.count()` counts the filtered rows, and a union of two filtered
halves reads one of them twice (PySpark 4.3). So filters are not taken from Spark unless the user
asks for it with `pushFilters`, for a DataFrame that is used once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    Filter,
    InputPartition,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from ..errors import InvalidInput
from ..model import Query
from .arrow import needed, to_spark
from .columns import check_narrowed, full_schema
from .options import Options, parse
from .reporting import reported, reporting
from .scanning import Scan, partition, scan_of
from .secrets import place_of
from .selection import Selection


class FencepostSource(DataSource):
    """What `register` registers: Spark makes one for each read and each write."""

    def __init__(self, options: Mapping[str, str]) -> None:
        # Here and not later: for a stream this is the one place whose errors Spark reports as they are.
        with reporting():
            self._parsed = parse(dict(options))

    @classmethod
    def name(cls) -> str:
        return "fencepost"

    def schema(self) -> StructType:
        return full_schema(self._parsed)

    @reported
    def reader(self, schema: StructType) -> DataSourceReader:
        check_narrowed(schema, self._parsed)
        if self._parsed.from_head:
            raise InvalidInput("option 'after'", "'head' is for streams; a read that is not one needs a position")
        kind = FilteringReader if self._parsed.push_filters else FencepostReader
        return kind(self._parsed, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from .stream import FencepostStreamReader

        return FencepostStreamReader(self._parsed, schema)

    @reported
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from .sink import batch_writer

        return batch_writer(self._parsed, schema, overwrite)

    @reported
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from .sink import stream_writer

        return stream_writer(self._parsed, schema, overwrite)


@dataclass
class Part(InputPartition):
    """What one task reads."""

    selection: Selection


class FencepostReader(DataSourceReader):
    def __init__(self, options: Options, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._filters: list[Filter] = []

    @reported
    def partitions(self) -> Sequence[InputPartition]:
        options = self._options
        scan = scan_of(options.store)
        with scan.open() as store:
            head = store.head()
            upto = head if options.upto is None else min(options.upto, head)
            selection = Selection(options.after, upto, options.query).narrowed(self._filters)
            parts = partition(scan, store, selection, options.partitions)
        # Without a part Spark would ask for one all the same.
        return [Part(part) for part in parts or [Selection(0, 0)]]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Part)
        return read_part(scan_of(self._options.store), partition.selection, self._schema)


class FilteringReader(FencepostReader):
    """A class of its own: Spark asks for filters wherever the method is there, and fails if it is not configured."""

    def pushFilters(self, filters: list[Filter]) -> Iterator[Filter]:
        self._filters = filters
        # All of them go back: Spark applies them again, so ours need only be sound.
        return iter(filters)


def read_part(scan: Scan, selection: Selection, schema: StructType) -> Iterator[pa.RecordBatch]:
    """The batches of one partition as Spark takes them; in a worker."""
    if selection.is_empty:
        return
    wanted = to_arrow_schema(schema, timezone="UTC")
    with reporting():
        for stored in scan.batches(selection, needed(wanted)):
            yield to_spark(stored, wanted)


def events(
    spark: SparkSession,
    store: str,
    *,
    query: Query | None = None,
    after: int = 0,
    upto: int | None = None,
    columns: str | None = None,
    **options: Any,
) -> DataFrame:
    """The store's events as a DataFrame; `columns` is a schema such as "position long, type string".

    The same as `spark.read.format("fencepost")` with its options, for those who have Python values
    at hand. The address may hold a password: Spark does not get to see it.
    """
    named: dict[str, Any] = {"after": after, **options, **place_of(store)}
    if query is not None:
        named["query"] = query.to_json()
    if upto is not None:
        named["upTo"] = upto
    reader = spark.read.format("fencepost").options(**named)
    return (reader.schema(columns) if columns is not None else reader).load()
