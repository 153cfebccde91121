"""Ranges of positions over tasks: Spark runs one task for each input and collects the batches that it yields.

A range of positions below a head that was seen never changes. So tasks that read different ranges, at different
times and on different machines, together read one consistent prefix of the log, and a task that Spark repeats yields
the same events again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, TypeAlias

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from .errors import reporting

SMALL_EVENTS: Final = 20_000  # are read by one task: starting another takes longer than reading them
LARGE_EVENTS: Final = 1_000_000  # the most for one task, so that repeating a lost task costs little

Work: TypeAlias = Callable[[Any], Iterator[pa.RecordBatch]]


def over_tasks(spark: SparkSession, inputs: Sequence[Any], work: Work, schema: StructType | str) -> DataFrame:
    """The batches that `work` yields for each input, each input in a task of its own.

    `inputs` and `work` are pickled and sent to the workers.
    """
    if not inputs:
        return spark.createDataFrame([], schema)
    return spark.range(0, len(inputs), 1, len(inputs)).mapInArrow(_Task(tuple(inputs), work), schema)


@dataclass(frozen=True)
class _Task:
    """Runs in a worker: its rows are numbers of inputs."""

    inputs: tuple[Any, ...]
    work: Work

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with reporting():
            for batch in batches:
                for number in batch.column(0).to_pylist():
                    yield from self.work(self.inputs[number])


def ranges(upto: int, *, after: int = 0) -> list[tuple[int, int]]:
    """The positions above `after` and up to `upto` as ranges (after, upto), one for each task."""
    if after >= upto > 0:
        return []
    return list(pairwise([after, *even_borders(after, upto, default_parts(upto - after)), upto]))


def default_parts(events: int) -> int:
    """How many tasks read that many events."""
    if events <= SMALL_EVENTS:
        return 1
    return max(os.cpu_count() or 1, -(-events // LARGE_EVENTS))


def even_borders(after: int, upto: int, parts: int) -> list[int]:
    """Positions that cut the range into equal parts; without gaps that is an equal number of events."""
    span = upto - after
    return sorted({after + span * part // parts for part in range(1, parts)})
