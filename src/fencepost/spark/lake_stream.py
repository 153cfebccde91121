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
from .secrets import place_of


def follow(
    spark: SparkSession,
    store: str,
    folder: str,
    *,
    checkpoint: str,
    name: str | None = None,
    chunk: int = CHUNK_EVENTS,
    delta: bool = False,
    iceberg: bool = False,
    **trigger: Any,
) -> StreamingQuery:
    """Export now and whenever the log grows, as a streaming query.

    `trigger` is what Spark calls so: `processingTime="1 minute"`, or `availableNow=True` to end when it is current.
    `name` is the query's.
    """
    export(spark, store, folder, upto=0)  # a lake that is there can be read, be it empty
    # The batch itself is only asked where it ends: the workers read the events from the store, in bulk.
    ends = spark.readStream.format("fencepost").schema("position long").options(**place_of(store))

    def export_batch(batch: DataFrame, batch_id: int) -> None:
        (end,) = batch.agg(F.max("position")).collect()[0]
        if end is not None:
            # The batch's own session: with Spark Connect this function runs on the server.
            export(batch.sparkSession, store, folder, upto=end, chunk=chunk, delta=delta, iceberg=iceberg)

    writer = ends.option("maxEventsPerTrigger", str(chunk)).load().writeStream.foreachBatch(export_batch)
    writer = writer.option("checkpointLocation", checkpoint).trigger(**(trigger or {"processingTime": "0 seconds"}))
    return writer.start(queryName=name)
