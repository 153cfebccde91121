"""The conditions of recorded appends, from a store to Spark: one row for each append, in record batches.

In the worker that reads them, they are in the stored form, texts of JSON; nothing is decoded before it is
needed. An append belongs to the range of positions in which its last event is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from itertools import pairwise
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from ..model import RecordedAppend
from .reporting import reporting
from .scanning import Scan, default_parts, even_borders
from .selection import Selection

SCHEMA: Final = pa.schema(
    [
        pa.field("first", pa.int64(), nullable=False),
        pa.field("last", pa.int64(), nullable=False),
        pa.field("conditions", pa.string(), nullable=False),
        pa.field("unless", pa.string()),
    ]
)


def batch_of(appends: Iterable[RecordedAppend]) -> pa.RecordBatch:
    rows = [(append.first, append.last, append.conditions_json, append.unless_json) for append in appends]
    columns = zip(*rows, strict=True) if rows else ((), (), (), ())
    return pa.RecordBatch.from_arrays(
        [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)], schema=SCHEMA
    )


def appends_of(batch: pa.RecordBatch) -> Iterator[RecordedAppend]:
    return map(RecordedAppend, *(batch.column(name).to_pylist() for name in SCHEMA.names))


def stored_appends(batch: pa.RecordBatch) -> Iterator[tuple[int, int, bytes, bytes | None]]:
    """Without taking for granted that what was recorded is text."""
    texts = (batch.column(name).cast(pa.binary()).to_pylist() for name in ("conditions", "unless"))
    return zip(batch.column("first").to_pylist(), batch.column("last").to_pylist(), *texts, strict=True)


def as_recorded(batch: pa.RecordBatch) -> pa.RecordBatch:
    """What a driver gives that has no NULL: the empty text stands for it."""
    unless = batch.column("unless").cast(pa.string())
    filled = pc.if_else(pc.equal(unless, ""), pa.scalar(None, pa.string()), unless)
    columns = [batch.column(name).cast(SCHEMA.field(name).type) for name in SCHEMA.names[:3]]
    return pa.RecordBatch.from_arrays([*columns, filled], schema=SCHEMA)


def recorded(spark: SparkSession, scan: Scan, head: int) -> DataFrame:
    """The recorded appends up to the head: first, last, conditions, unless."""
    whole = Selection(0, head)
    borders = [0, *even_borders(whole, default_parts(head)), head]
    ranges = [(msgspec.json.encode(pair).decode(),) for pair in pairwise(borders)]
    given = spark.createDataFrame(ranges, "line string").repartition(len(ranges))
    return given.mapInArrow(partial(_read, scan=scan), "first long, last long, conditions string, unless string")


def _read(batches: Iterator[pa.RecordBatch], scan: Scan) -> Iterator[pa.RecordBatch]:
    with reporting():
        for batch in batches:
            for line in batch.column("line").to_pylist():
                yield from scan.recorded(*msgspec.json.decode(line, type=tuple[int, int]))
