"""A source that only hands record batches over: what Python, the socket and Java take when there is nothing to read.

Each task reads one batch of the log and yields it again and again, up to the number of events that are asked for. So
its speed is the limit of any source that is written in Python.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from fencepost.spark.scanning import Selection, SqliteScan
from fencepost.spark.source.batch import read_partition

TASK_EVENTS = 1_000_000  # as many as a task of a scan reads at most


class Ready(DataSource):
    """`format("ready")`, with the options `path` and `events`, and a schema."""

    @classmethod
    def name(cls) -> str:
        return "ready"

    def reader(self, schema: StructType) -> DataSourceReader:
        return ReadyReader(self.options["path"], int(self.options["events"]), schema)


class ReadyReader(DataSourceReader):
    def __init__(self, path: str, events: int, schema: StructType) -> None:
        self._path = path
        self._events = events
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        firsts = range(0, self._events, TASK_EVENTS)
        return [InputPartition(min(TASK_EVENTS, self._events - first)) for first in firsts]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        batch = next(read_partition(SqliteScan(self._path), Selection(0, TASK_EVENTS), self._schema))
        left = partition.value
        while left > 0:
            yield batch.slice(0, left)
            left -= batch.num_rows
