"""Streams whose batches are ranges of positions: Spark plans a range, and the code of the caller reads it.

    follow_ranges(spark, address, handle, checkpoint="checkpoints/x", trigger={"availableNow": True})

The stream has one row for each batch, the range, and no events. So the caller can read the events in bulk, or from
a lake, and never through the source. Spark's checkpoint has the range of every batch before it is handled, so a batch
that Spark repeats is the same range: tests/spark/test_following.py and tests/spark/slow/test_following_kills.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import DataFrame, SparkSession

from ...engine import Address
from .columns import range_columns
from .places import place_of

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

AT_ONCE: Final = {"processingTime": "0 seconds"}  # the next batch begins as soon as there are events for it


@dataclass(frozen=True)
class Batch:
    """A batch of a stream: the events with after < position <= up_to. `id` is Spark's number of the batch."""

    id: int
    after: int
    up_to: int


def follow_ranges(
    spark: SparkSession,
    address: Address,
    handle: Callable[[SparkSession, Batch], None],
    *,
    checkpoint: str,
    trigger: Mapping[str, Any],
    name: str | None = None,
    after: int | str = 0,
    max_events: int | None = None,
) -> StreamingQuery:
    """Call `handle` for one range after the other, without gaps, as a streaming query.

    The first range may be empty: Spark plans a first batch even if there are no events yet.
    With Spark Connect `handle` is pickled and called on the server, so it is given the session to use.
    """
    ranges = spark.readStream.format("fencepost").schema(range_columns(address))
    ranges = ranges.options(batchEnds=True, after=after, **place_of(address))
    if max_events is not None:
        ranges = ranges.option("maxEventsPerTrigger", str(max_events))

    def handle_batch(frame: DataFrame, batch_id: int) -> None:
        for start, end in frame.collect():
            handle(frame.sparkSession, Batch(batch_id, int(start), int(end)))

    writer = ranges.load().writeStream.foreachBatch(handle_batch).option("checkpointLocation", checkpoint)
    return writer.trigger(**(trigger or AT_ONCE)).start(queryName=name)
