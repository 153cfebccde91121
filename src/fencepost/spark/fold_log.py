"""The events to fold, as rows with keys: a transfer between two wallets is two rows.

From a store they are read by the workers themselves. Through the source, tags and metadata would
go to Spark only to be taken apart there; here they are taken apart a column at a time, and only
what the handlers need goes on: unless one takes the stored event, that is data and version.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import ArrayType, BinaryType, LongType, MapType, StringType, StructField, StructType

from ..decisions import Projection
from ..decisions.boundary import query_of
from ..decisions.tags import tag_text
from ..decisions.upcasting import VERSION
from ..errors import InvalidInput
from ..model import Query, checked_position
from .arrow import to_spark
from .columns import TYPES, WIDE
from .fold_plan import POSITION, Plan
from .options import absolute
from .reporting import reporting
from .scanning import Scan, partition, scan_of
from .selection import Selection

Store: TypeAlias = str | DataFrame

NEEDED: Final = ("position", "type", "tags", "data", "metadata")


@dataclass(frozen=True)
class Log:
    """The events to fold, as rows with keys: those with after < position <= upto."""

    rows: DataFrame
    upto: int
    wide: bool


def log_of(
    spark: SparkSession,
    store: Store,
    plan: Plan,
    *,
    after: int = 0,
    upto: int | None = None,
    keys: Sequence[Any] | None = None,
) -> Log:
    checked_position(after, "after")
    if upto is not None:
        checked_position(upto, "upto")
    query = _query(plan.projection.load(), keys)
    if isinstance(store, DataFrame):
        frame, end = _of_frame(store, plan, after, upto)
        wide = frame.schema[POSITION].dataType == WIDE
        rows = _keyed(frame, plan)
    else:
        wide = store.startswith("fdb:")
        reader, end = KeyReader.planned(store, plan, wide, after, upto, query)
        rows = spark.range(0, len(reader.parts), 1, len(reader.parts)).mapInArrow(reader, _rows_schema(plan, wide))
    if keys is not None:
        wanted = sorted({_tag_values(key) for key in keys})
        rows = rows.where(F.struct(*plan.keys).isin([F.struct(*map(F.lit, values)) for values in wanted]))
    return Log(rows, end, wide)


def _rows_schema(plan: Plan, wide: bool) -> StructType:
    """The key, and what the handlers need of an event."""
    schema = StructType([StructField(name, StringType()) for name in plan.keys])
    schema = schema.add(POSITION, plan.position_type(wide)).add("type", StringType()).add("data", BinaryType())
    if not plan.whole:
        return schema.add("version", StringType())
    schema = schema.add("tags", ArrayType(StringType())).add("recorded_at", LongType()).add("id", StringType())
    return schema.add("metadata", MapType(StringType(), StringType()))


def no_rows(spark: SparkSession, plan: Plan, wide: bool) -> DataFrame:
    """What `log_of` gives for a log without events."""
    return spark.createDataFrame([], _rows_schema(plan, wide))


def _of_frame(frame: DataFrame, plan: Plan, after: int, upto: int | None) -> tuple[DataFrame, int]:
    for name in (*NEEDED, *(("recorded_at", "id") if plan.whole else ())):
        if name not in frame.columns:
            raise InvalidInput("store", f"the column {name!r} is missing; events are folded with it")
    within = frame.where(F.col(POSITION) > F.lit(after))
    if upto is not None:
        within = within.where(F.col(POSITION) <= F.lit(upto))
    if upto is None:
        found = within.agg(F.max(POSITION)).collect()[0][0]
        upto = after if found is None else int(found)
    return within.withColumn("data", F.col("data").cast("binary")), upto


def _query(projection: type[Projection], keys: Sequence[Any] | None) -> Query | None:
    """With keys, exactly their events: the store finds them by its index."""
    if keys is None:
        return None
    if isinstance(keys, str) or not keys:
        raise InvalidInput("keys", "a list of at least 1 key is needed")
    instances = [projection(*(key if isinstance(key, tuple) else (key,))) for key in keys]
    return query_of(instances)


def _keyed(frame: DataFrame, plan: Plan) -> DataFrame:
    """A row for each key that an event concerns, made by Spark."""
    definition = plan.projection.load().definition
    if definition.every is None:
        frame = frame.where(F.col("type").isin(sorted(definition.types)))
    for column, tag in zip(plan.keys, plan.tags, strict=True):
        prefix = f"{tag}:"
        own = F.filter("tags", lambda each: F.startswith(each, F.lit(prefix)))  # noqa: B023
        values = F.transform(own, lambda each: F.substring(each, len(prefix) + 1, 2**31 - 1))  # noqa: B023
        frame = frame.withColumn(column, F.explode(values))
    common = [*plan.keys, POSITION, "type", "data"]
    if plan.whole:
        return frame.select(*common, "tags", F.unix_micros("recorded_at").alias("recorded_at"), "id", "metadata")
    return frame.select(*common, F.element_at("metadata", F.lit(VERSION)).alias("version"))


@dataclass(frozen=True)
class KeyReader:
    """In a worker: a part of the log as rows with keys, straight from the store."""

    scan: Scan = field(repr=False)  # its address may hold a password
    plan: Plan
    wide: bool
    parts: tuple[Selection, ...]

    @classmethod
    def planned(
        cls, store: str, plan: Plan, wide: bool, after: int, upto: int | None, query: Query | None
    ) -> tuple[KeyReader, int]:
        """The reader, and where it ends; on the driver."""
        scan = scan_of(absolute(store))
        definition = plan.projection.load().definition
        types = definition.types if definition.every is None else None
        with scan.open() as opened:
            head = opened.head()
            end = head if upto is None else min(upto, head)
            selection = Selection(after, end, Query.all() if query is None else query, types)
            parts = partition(scan, opened, selection, None)
        # Without a part there would be nothing to make a frame of.
        return cls(scan, plan, wide, tuple(parts) or (Selection(0, 0),)), end

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with reporting():
            for batch in batches:
                for number in batch.column(0).to_pylist():
                    yield from self._read(self.parts[number])

    def _read(self, part: Selection) -> Iterator[pa.RecordBatch]:
        if part.is_empty:
            return
        rows = to_arrow_schema(_rows_schema(self.plan, self.wide), timezone="UTC")
        wanted = _stored_schema(self.plan, self.wide)
        for stored in self.scan.batches(part, wanted.names):
            batch = to_spark(stored, wanted)
            if part.types is not None:  # which a scan may leave to others
                batch = batch.filter(pc.is_in(batch.column("type"), pa.array(sorted(part.types))))
            for column, tag in zip(self.plan.keys, self.plan.tags, strict=True):
                batch = keyed(batch, column, f"{tag}:")
            if not self.plan.whole:
                versions = pc.map_lookup(batch.column("metadata"), VERSION, "first")
                batch = batch.append_column("version", versions)
            else:
                times = batch.column("recorded_at").view(pa.int64())
                batch = batch.set_column(batch.schema.get_field_index("recorded_at"), "recorded_at", times)
            yield pa.RecordBatch.from_arrays([batch.column(name) for name in rows.names], schema=rows)


def _stored_schema(plan: Plan, wide: bool) -> pa.Schema:
    names = ("position", "type", "data", "tags", "metadata", *(("recorded_at", "id") if plan.whole else ()))
    chosen = [StructField(name, WIDE if name == "position" and wide else TYPES[name][0]) for name in names]
    return to_arrow_schema(StructType(chosen), timezone="UTC")


def keyed(batch: pa.RecordBatch, column: str, prefix: str) -> pa.RecordBatch:
    """A row for each tag that begins with the prefix, with what follows it."""
    tags = batch.column("tags")
    every = tags.flatten()
    own = pc.starts_with(every, prefix)
    rows = pc.list_parent_indices(tags).filter(own)
    keys = pc.utf8_slice_codeunits(every.filter(own), len(prefix))
    if len(rows) != batch.num_rows or pc.any(pc.not_equal(rows, np.arange(len(rows)))).as_py():
        batch = batch.take(rows)
    return batch.append_column(column, keys)


def _tag_values(key: Any) -> tuple[str, ...]:
    return tuple(tag_text("", value)[1:] for value in (key if isinstance(key, tuple) else (key,)))
