"""The events to fold, as rows with keys: a transfer between two wallets is two rows.

The workers read them from the store. Through the source, tags and metadata would go to Spark only to be decoded
there; here they are decoded a column at a time, and only what the handlers need is shuffled: data and version, unless
a handler takes the stored event.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import DataType

from ... import Query, QueryItem
from ...decisions import Projection
from ...decisions.inspection import VERSION, items_of, query_of, tag_text
from ...engine import MAX_BUCKETS, checked_position
from ...errors import InvalidInput
from ..basics import Snapshot, Store, arrow_schema, over_tasks, position_type, tag_values
from ..frames import Folder, lake_frame, matches, prefix_of
from ..scanning import Scan, Selection, partition, scan_of, to_spark
from .plan import POSITION, Plan

Events: TypeAlias = Store | DataFrame

NEEDED: Final = (POSITION, "type", "tags", "data", "metadata")
WHOLE: Final = ("recorded_at", "id")  # also needed if handlers take the stored event


@dataclass(frozen=True)
class Log:
    """The events to fold, as rows with keys: those with after < position <= up_to."""

    rows: DataFrame
    up_to: int
    position: DataType  # of the column


def log_of(
    spark: SparkSession,
    store: Events,
    plan: Plan,
    *,
    after: int = 0,
    up_to: int | None = None,
    keys: Sequence[Any] | None = None,
    lake: Folder | None = None,
) -> Log:
    checked_position(after, "after")
    if up_to is not None:
        checked_position(up_to, "up_to")
    query = _query(plan.projection.load(), keys)
    if isinstance(store, DataFrame):
        frame, end = _of_frame(store, plan, after, up_to)
        position = frame.schema[POSITION].dataType
        rows = _keyed(frame, plan)
    else:
        prefix = prefix_of(spark, store, up_to=up_to, lake=lake)
        end, position = prefix.up_to, position_type(prefix.address)
        rows = _of_prefix(spark, prefix, plan, after, query)
    if keys is not None:
        wanted = sorted({_tag_values(key) for key in keys})
        rows = rows.where(F.struct(*plan.keys).isin([F.struct(*map(F.lit, values)) for values in wanted]))
    return Log(rows, end, position)


def _needed(plan: Plan) -> tuple[str, ...]:
    return (*NEEDED, *WHOLE) if plan.whole else NEEDED


def _of_frame(frame: DataFrame, plan: Plan, after: int, up_to: int | None) -> tuple[DataFrame, int]:
    for name in _needed(plan):
        if name not in frame.columns:
            raise InvalidInput("store", f"the column {name!r} is missing; a fold needs it")
    within = frame.where(F.col(POSITION) > F.lit(after))
    if up_to is not None:
        within = within.where(F.col(POSITION) <= F.lit(up_to))
    else:
        found = within.agg(F.max(POSITION)).collect()[0][0]
        up_to = after if found is None else int(found)
    return within.withColumn("data", F.col("data").cast("binary")), up_to


def _query(projection: type[Projection], keys: Sequence[Any] | None) -> Query | None:
    """With keys, their events, which the store finds by its index; None reads the whole log.

    A query has a limit on its buckets. Where the events of all keys would pass it, the query names no types, and
    with still more keys the whole log is read: rows of other types and keys are dropped afterwards in any case.
    """
    if keys is None:
        return None
    if isinstance(keys, str) or not keys:
        raise InvalidInput("keys", "a list of at least 1 key is needed")
    instances = [projection(*(key if isinstance(key, tuple) else (key,))) for key in keys]
    try:
        return query_of(instances)
    except InvalidInput as error:
        if error.field != "items":
            raise
    items = {QueryItem(tags=item.tags) for instance in instances for item in items_of(instance)}
    return Query(items) if len(items) <= MAX_BUCKETS else None


def _keyed(frame: DataFrame, plan: Plan) -> DataFrame:
    """A row for each key that an event concerns, computed by Spark."""
    definition = plan.projection.load().definition
    if definition.every is None:
        frame = frame.where(F.col("type").isin(sorted(definition.types)))
    for column, tag in zip(plan.keys, plan.tags, strict=True):
        frame = frame.withColumn(column, F.explode(tag_values(tag)))
    if plan.whole:
        frame = frame.withColumn("recorded_at", F.unix_micros("recorded_at"))
    else:
        frame = frame.withColumn("version", F.element_at("metadata", F.lit(VERSION)))
    return frame.select(*plan.rows_schema(frame.schema[POSITION].dataType).names)


def _of_prefix(spark: SparkSession, prefix: Snapshot, plan: Plan, after: int, query: Query | None) -> DataFrame:
    """The rows of the lake's part, which Spark reads, and those of the store's part, which the workers read."""
    position = position_type(prefix.address)
    past: DataFrame | None = None
    if prefix.lake is not None:
        frame = lake_frame(spark, prefix, _needed(plan), after=after)
        if frame is not None:
            found = frame if query is None else frame.where(matches(query))
            past = _keyed(found.withColumn(POSITION, F.col(POSITION).cast(position)), plan)
        after = max(after, prefix.lake.up_to)
        if past is not None and after >= prefix.up_to:
            return past
    scan = scan_of(prefix.address)
    definition = plan.projection.load().definition
    types = definition.types if definition.every is None else None
    with scan.open() as opened:
        wanted = Selection(after, prefix.up_to, Query.all() if query is None else query, types)
        parts = partition(scan, opened, wanted)
    rest = over_tasks(spark, parts, partial(_read, scan, plan, position), plan.rows_schema(position))
    return rest if past is None else past.union(rest)


def _read(scan: Scan, plan: Plan, position: DataType, part: Selection) -> Iterator[pa.RecordBatch]:
    """A part of the log as rows with keys, straight from the store; in a worker."""
    rows = to_arrow_schema(plan.rows_schema(position), timezone="UTC")
    wanted = arrow_schema(_needed(plan), position)
    for stored in scan.batches(part, wanted.names):
        batch = to_spark(stored, wanted)
        if part.types is not None:  # a scan may return other types as well
            batch = batch.filter(pc.is_in(batch.column("type"), pa.array(sorted(part.types))))
        for column, tag in zip(plan.keys, plan.tags, strict=True):
            batch = keyed(batch, column, f"{tag}:")
        if not plan.whole:
            versions = pc.map_lookup(batch.column("metadata"), VERSION, "first")
            batch = batch.append_column("version", versions)
        else:
            times = batch.column("recorded_at").view(pa.int64())
            batch = batch.set_column(batch.schema.get_field_index("recorded_at"), "recorded_at", times)
        yield pa.RecordBatch.from_arrays([batch.column(name) for name in rows.names], schema=rows)


def keyed(batch: pa.RecordBatch, column: str, prefix: str) -> pa.RecordBatch:
    """A row for each tag that begins with the prefix, with the rest of the tag in a new column."""
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
