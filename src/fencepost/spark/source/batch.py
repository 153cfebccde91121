"""Spark's batch reader of a log: `spark.read.format("fencepost")`.

A DataFrame is one prefix of the log. `load()` looks up the head, which stays the end of every use of the DataFrame,
whatever is appended meanwhile (tests/spark/test_prefix.py). For each use the driver cuts the positions up to that end
into partitions; each worker gets one and returns Arrow record batches.

Spark keeps the plan of a Python source for later uses of the same DataFrame, the pushed filters included:
`df.where(...)` followed by `df.count()` counts the filtered rows, and a union of two filtered halves reads one of
them twice (PySpark 4.3). So the source accepts no filters from Spark unless the user asks for it with `pushFilters`,
for a DataFrame that is used once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
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

from ...errors import FencepostError, InvalidInput, StoreUnavailable
from ..basics import Options, check_narrowed, full_schema, parse, reporting
from ..scanning import Scan, Selection, narrowed, needed, partition, scan_of, snapshot, to_spark


class FencepostSource(DataSource):
    """The data source that `register` registers. Spark creates one for each read and each write."""

    def __init__(self, options: Mapping[str, str]) -> None:
        # For a stream, only errors of this constructor reach the user as they are.
        with reporting():
            self._parsed = parse(dict(options))
        # Spark creates one source for each `load()` and pickles it into the plan, so this position is the end of every
        # use of the DataFrame. A stream or a write does not need it, and its store need not exist yet.
        try:
            self._end: int | None = self._head()
        except (FencepostError, ImportError):
            self._end = None

    @classmethod
    def name(cls) -> str:
        return "fencepost"

    def schema(self) -> StructType:
        return full_schema(self._parsed)

    @reporting()
    def reader(self, schema: StructType) -> DataSourceReader:
        check_narrowed(schema, self._parsed)
        if self._parsed.from_head:
            raise InvalidInput("option 'after'", "'head' is for streams; a batch read needs a position")
        if self._end is None:
            self._head()
            raise StoreUnavailable(
                f"{self._parsed.store} could not be opened when the DataFrame was created, and can be now: call load() "
                "again"
            )
        reader = FencepostReader(self._parsed, schema, self._end)
        if self._parsed.push_filters:
            reader.pushFilters = FilterTaker(reader)  # type: ignore[method-assign]
        return reader

    def _head(self) -> int:
        return snapshot(self._parsed.store, up_to=self._parsed.up_to).up_to

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from .stream import FencepostStreamReader

        return FencepostStreamReader(self._parsed, schema)

    @reporting()
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from ..sink import writer_of

        return writer_of(self._parsed, schema, overwrite, stream=False)

    @reporting()
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from ..sink import writer_of

        return writer_of(self._parsed, schema, overwrite, stream=True)


@dataclass
class Partition(InputPartition):
    """The events that one task reads."""

    selection: Selection


class FencepostReader(DataSourceReader):
    def __init__(self, options: Options, schema: StructType, end: int) -> None:
        self._options = options
        self._schema = schema
        self._end = end
        self.filters: list[Filter] = []  # they narrow what is read; Spark applies them again

    @reporting()
    def partitions(self) -> Sequence[InputPartition]:
        options = self._options
        scan = scan_of(options.store)
        with scan.open() as store:
            selection = narrowed(Selection(options.after, self._end, options.query, options.types), self.filters)
            parts = partition(scan, store, selection, options.partitions)
        # Spark needs at least one partition.
        return [Partition(part) for part in parts or [Selection(0, 0)]]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Partition)
        return read_partition(scan_of(self._options.store), partition.selection, self._schema)


class FilterTaker:
    """The method `pushFilters` of a reader that accepts filters where the session pushes them down.

    In a session that does not, Spark refuses every reader with a `pushFilters` of its own. It compares `__func__`, so a
    reader with this one is accepted and reads without filters.
    """

    def __init__(self, reader: FencepostReader) -> None:
        self.__func__ = DataSourceReader.pushFilters
        self._reader = reader

    def __call__(self, filters: list[Filter]) -> Iterator[Filter]:
        self._reader.filters = filters
        # All filters go back to Spark, which applies them again. So the selection may be wider than the filters.
        return iter(filters)


def read_partition(scan: Scan, selection: Selection, schema: StructType) -> Iterator[pa.RecordBatch]:
    """The batches of one partition, with the columns and types of the schema; in a worker."""
    if selection.is_empty:
        return
    wanted = to_arrow_schema(schema, timezone="UTC")
    columns = needed(wanted)
    if selection.types is not None and "type" not in columns:
        columns.append("type")
    with reporting():
        for stored in scan.batches(selection, columns):
            if selection.types is not None:  # a scan may return other types as well
                stored = stored.filter(pc.is_in(stored.column("type"), pa.array(sorted(selection.types), pa.string())))
            yield to_spark(stored, wanted)
