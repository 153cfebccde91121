"""The recorded conditions of appends: one row for each append, in record batches.

Workers keep them in the stored form, texts of JSON, and decode nothing before it is needed. An append belongs to the
range of positions in which its last event lies.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from ...engine import RecordedAppend
from ..basics import Snapshot, over_tasks, ranges
from ..lake_engine.columns import RECORDED
from ..lake_kind import LAKE
from .scan import Scan, scan_of


def batch_of(appends: Iterable[RecordedAppend]) -> pa.RecordBatch:
    rows = [(append.first, append.last, append.conditions_json, append.unless_json) for append in appends]
    columns = zip(*rows, strict=True) if rows else ((), (), (), ())
    return pa.RecordBatch.from_arrays(
        [pa.array(column, field.type) for column, field in zip(columns, RECORDED, strict=True)], schema=RECORDED
    )


def stored_appends(batch: pa.RecordBatch) -> Iterator[tuple[int, int, bytes, bytes | None]]:
    """(first, last, conditions, unless) of each row, as bytes: a damaged record need not be text."""
    texts = (batch.column(name).cast(pa.binary()).to_pylist() for name in ("conditions", "unless"))
    return zip(batch.column("first").to_pylist(), batch.column("last").to_pylist(), *texts, strict=True)


def as_recorded(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch of a driver that returns an empty text in place of NULL, with the columns of `RECORDED`."""
    unless = batch.column("unless").cast(pa.string())
    filled = pc.if_else(pc.equal(unless, ""), pa.scalar(None, pa.string()), unless)
    columns = [batch.column(name).cast(RECORDED.field(name).type) for name in RECORDED.names[:3]]
    return pa.RecordBatch.from_arrays([*columns, filled], schema=RECORDED)


def recorded(spark: SparkSession, prefix: Snapshot) -> DataFrame:
    """The recorded appends of the prefix: first, last, conditions, unless."""
    if prefix.lake is None or prefix.address.kind is LAKE:
        return _recorded(spark, scan_of(prefix.address), ranges(prefix.up_to))
    from .lake import LakeScan

    border = prefix.lake.up_to
    past = _recorded(spark, LakeScan(prefix.lake.folder), ranges(border))
    return past.union(_recorded(spark, scan_of(prefix.address), ranges(prefix.up_to, after=border)))


def _recorded(spark: SparkSession, scan: Scan, parts: Sequence[tuple[int, int]]) -> DataFrame:
    schema = "first long, last long, conditions string, unless string"
    return over_tasks(spark, parts, lambda range: scan.recorded(*range), schema)
