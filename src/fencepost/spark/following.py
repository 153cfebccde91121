"""Following a log as a stream that reads the past from a lake: `fencepost.spark.follow`.

    follow(spark, "wallet.db", handle, lake="/data/wallet-lake", checkpoint="checkpoints/x")

Each batch is a range of positions and the DataFrame that `events` makes of it: Spark's own Parquet reader reads what
the lake holds, the source reads the rest. Batches follow each other without a gap or an overlap. A batch that Spark
repeats after a crash is the same range, and the log up to its end never changes. So it has the same events, whether
they come from the lake or the store this time: tests/spark/test_following.py, tests/spark/slow/test_following_kills.py.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Literal

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from .. import Query
from ..engine import Address, checked_position
from ..errors import InvalidInput, StoreError
from .basics import Batch as Batch
from .basics import Snapshot, absolute_location, address_of, follow_ranges
from .frames import Folder, chosen_lake, events, prefix_of
from .scanning import scan_of


def follow(
    spark: SparkSession,
    store: str | os.PathLike[str] | Address,
    handle: Callable[[DataFrame, Batch], object],
    *,
    checkpoint: str,
    name: str | None = None,
    after: int | Literal["head"] = 0,
    query: Query | None = None,
    columns: str | None = None,
    lake: Folder | None = None,
    max_events: int | None = None,
    **trigger: Any,
) -> StreamingQuery:
    """Call `handle(events, batch)` for one range of the log after the other, as a streaming query.

    `events` is the DataFrame of the events with batch.after < position <= batch.up_to, in any order. With the folder
    of a `lake` of the same log, or one that `use_lake` has named, Spark reads what the lake holds from its files.
    `query` and `columns` narrow the events, as for `fencepost.spark.events`.

    `trigger` is Spark's: `processingTime="10 seconds"`, or `availableNow=True` to end at the present head. `after` says
    where a new stream begins; one with a checkpoint goes on where it was. `max_events` is the number of events of the
    log in the largest batch, before the query. `name` is the query's name.

    A batch is repeated if the program ended before Spark recorded its end: with the same range and the same events.
    """
    if isinstance(store, Snapshot):
        raise InvalidInput("store", "a snapshot does not grow; follow the store itself, or read it with events()")
    if after != "head":
        checked_position(after, "after")
    address = address_of(store)
    chosen = chosen_lake(spark, address, lake)
    # With Spark Connect `handle_range` runs on the server, in another folder.
    folder = None if chosen is None else absolute_location(chosen, "lake")
    scan_of(address).open().close()  # a missing store is refused here, and not by the first batch
    events(spark, address, query=query, columns=columns, up_to=0, lake=folder)  # refuses what no batch could read

    def handle_range(session: SparkSession, batch: Batch) -> None:
        if batch.after == batch.up_to:
            return
        prefix = prefix_of(session, address, up_to=batch.up_to, lake=folder)
        if prefix.up_to < batch.up_to:
            raise StoreError(
                f"the stream was at position {batch.up_to} and the store ends at {prefix.up_to}: it is another store, "
                "or an older copy of it; start with a new checkpoint"
            )
        handle(events(session, prefix, after=batch.after, query=query, columns=columns), batch)

    return follow_ranges(
        spark,
        address,
        handle_range,
        checkpoint=checkpoint,
        name=name,
        after=after,
        max_events=max_events,
        trigger=trigger,
    )
