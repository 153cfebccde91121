"""Keeping a lake current: a stream of the log whose batches are exports.

Spark's checkpoint says which positions the stream has planned, the lake's manifest which it has exported. A batch
exports the events that the lake lacks up to the batch's end, so a repeated batch does nothing.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from ...engines.lake.retiring import RETAIN_S
from ..basics import Batch, Store, address_of, follow_ranges
from .exporting import export
from .rounds import CHUNK_EVENTS


def follow(
    spark: SparkSession,
    store: Store,
    folder: str,
    *,
    checkpoint: str,
    name: str | None = None,
    chunk: int = CHUNK_EVENTS,
    delta: bool = False,
    iceberg: bool = False,
    iceberg_catalog: str | None = None,
    iceberg_table: str | None = None,
    compact: bool = True,
    retain_s: float = RETAIN_S,
    **trigger: Any,
) -> StreamingQuery:
    """Export now and whenever the log grows, as a streaming query.

    `trigger` is Spark's: `processingTime="1 minute"`, or `availableNow=True` to end when the lake is current. `name` is
    the query's name. The other options are those of `export`: small files are merged, so that their number stays
    bounded.
    """
    address = address_of(store)
    export(spark, address, folder, upto=0)  # from now on the lake can be read
    options: dict[str, Any] = {
        "chunk": chunk,
        "delta": delta,
        "iceberg": iceberg,
        "iceberg_catalog": iceberg_catalog,
        "iceberg_table": iceberg_table,
        "compact": compact,
        "retain_s": retain_s,
    }

    def export_batch(session: SparkSession, batch: Batch) -> None:
        export(session, address, folder, upto=batch.upto, **options)

    return follow_ranges(
        spark, address, export_batch, checkpoint=checkpoint, name=name, max_events=chunk, trigger=trigger
    )
