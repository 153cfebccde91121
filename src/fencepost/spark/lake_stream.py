"""A lake that is kept current: a stream of the log whose batches are exports.

Spark's checkpoint says how far the stream has planned, the lake's manifest how far it has come. A
batch exports whatever the lake lacks up to the batch's end, so one that is repeated does nothing.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from .lake import CHUNK_EVENTS, export
from .options import has_password
from .secrets import hidden


def follow(
    spark: SparkSession,
    store: str,
    folder: str,
    *,
    checkpoint: str,
    chunk: int = CHUNK_EVENTS,
    delta: bool = False,
    iceberg: bool = False,
    **trigger: Any,
) -> StreamingQuery:
    """Export now and whenever the log grows, as a streaming query.

    `trigger` is what Spark calls so: `processingTime="1 minute"`, or `availableNow=True` to end when it is current.
    """
    place = {"storeFrom": hidden(store)} if has_password(store) else {"store": store}
    # The batch itself is only asked where it ends: the workers read the events from the store, in bulk.
    ends = spark.readStream.format("fencepost").schema("position long").options(**place)

    def export_batch(batch: DataFrame, batch_id: int) -> None:
        (end,) = batch.agg(F.max("position")).collect()[0]
        if end is not None:
            export(spark, store, folder, upto=end, chunk=chunk, delta=delta, iceberg=iceberg)

    writer = ends.option("maxEventsPerTrigger", str(chunk)).load().writeStream.foreachBatch(export_batch)
    return (
        writer.option("checkpointLocation", checkpoint).trigger(**(trigger or {"processingTime": "0 seconds"})).start()
    )
