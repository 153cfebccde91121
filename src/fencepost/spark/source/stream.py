"""Spark's streaming reader of a log: `spark.readStream.format("fencepost")`.

An offset is a position, and the events up to a position never change. So a batch that Spark plans again after a crash,
from the offsets in its checkpoint, has the same events in the same order. The reader and the store keep no progress.

The offset at which a batch ends also says where the batch begins. For its first batch Spark has logged no other
offset and asks for the initial one again, which may be another by then: the head, or an `after` of the next program.
tests/spark/test_following.py fails such a batch and starts it again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from ... import EventStore
from ...errors import InvalidInput, StoreError
from ..basics import Options, check_narrowed, default_parts, reporting
from ..scanning import Selection, partition, scan_of
from .batch import Partition, read_partition

POSITION = "position"
AFTER = "after"


class FencepostStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: Options, schema: StructType) -> None:
        # Nothing is checked here, because Spark does not report errors of this constructor.
        self._options = options
        self._schema = schema
        self._store: EventStore | None = None
        self._target: int | None = None  # where a run with the trigger availableNow ends

    @reporting()
    def initialOffset(self) -> dict[str, Any]:
        check_narrowed(self._schema, self._options)
        if self._options.types is not None:
            raise InvalidInput("option 'types'", "it is for batch reads; a stream takes the option 'query'")
        return offset(self._head() if self._options.from_head else self._options.after)

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadAllAvailable() if self._options.max_events is None else ReadMaxRows(self._options.max_events)

    @reporting()
    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._head()

    @reporting()
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        check_narrowed(self._schema, self._options)
        after = position_of(start)
        head = self._head()
        if after > head and after == self._options.after:
            raise InvalidInput(
                "option 'after'",
                f"{after} is above the store's head, {head}; to start with the next event that is appended, use 'head'",
            )
        if after > head:
            raise StoreError(
                f"the stream was at position {after} and the store ends at {head}: it is another store, or an older "
                "copy of it; start with a new checkpoint"
            )
        end = head if self._target is None else min(self._target, head)
        end = end if self._options.up_to is None else min(end, self._options.up_to)
        if end <= after:
            return start
        return offset(self._limited(after, end, limit.max_rows) if isinstance(limit, ReadMaxRows) else end, after)

    @reporting()
    def reportLatestOffset(self) -> dict[str, Any]:
        return offset(self._head())

    @reporting()
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        options = self._options
        selection = Selection(start_of(start, end), position_of(end), options.query)
        if options.batch_ends:
            return [Partition(selection)]
        parts = options.partitions
        if parts is None and options.max_events is not None:
            parts = default_parts(min(options.max_events, selection.up_to - selection.after))
        return [Partition(part) for part in partition(scan_of(options.store), self._opened(), selection, parts)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Partition)
        if self._options.batch_ends:
            return _range_of(partition.selection, self._schema)
        return read_partition(scan_of(self._options.store), partition.selection, self._schema)

    def stop(self) -> None:
        if self._store is not None:
            self._store.close()

    def _limited(self, after: int, end: int, most: int) -> int:
        """The position of the last of the next `most` events that the query matches."""
        if self._options.query.matches_all and not self._options.store.kind.has_gaps:
            return min(after + most, end)  # without gaps a position is an event
        reading = self._opened().read(self._options.query, after=after, up_to=end, limit=most)
        for _ in reading:
            pass
        return reading.head

    def _head(self) -> int:
        return self._opened().head()

    def _opened(self) -> EventStore:
        if self._store is None:
            self._store = scan_of(self._options.store).open()
        return self._store

    def __getstate__(self) -> dict[str, Any]:
        """The reader without the open store, for the workers."""
        return {**self.__dict__, "_store": None}


def _range_of(selection: Selection, schema: StructType) -> Iterator[pa.RecordBatch]:
    """One row: the position at which the batch ends and, if the schema has `after`, the one at which it begins."""
    wanted = to_arrow_schema(schema, timezone="UTC")
    yield pa.RecordBatch.from_pylist([{AFTER: selection.after, POSITION: selection.up_to}], schema=wanted)


def offset(position: int, after: int | None = None) -> dict[str, Any]:
    """The end of a batch that begins after `after`; without it, the beginning of a stream or the head."""
    # As text: some readers of JSON keep only 53 bits of a number, and positions have up to 96.
    return {POSITION: str(position)} if after is None else {POSITION: str(position), AFTER: str(after)}


def start_of(start: dict[str, Any], end: dict[str, Any]) -> int:
    """Where the batch begins: what its end says, or Spark if an older version has written the end."""
    return int(end[AFTER]) if AFTER in end else position_of(start)


def position_of(offset: dict[str, Any]) -> int:
    return int(offset[POSITION])
