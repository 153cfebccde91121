"""Ranges of positions over tasks: Spark runs one task for each input and collects the batches that it yields; an error
of a task reaches the driver as one sentence.

A range of positions below a head that was seen never changes. So tasks that read different ranges, at different
times and on different machines, together read one consistent prefix of the log, and a task that Spark repeats yields
the same events again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from typing import Any, Final, TypeAlias, TypeVar

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from ...errors import FencepostError

SMALL_EVENTS: Final = 20_000  # are read by one task: starting another takes longer than reading them
LARGE_EVENTS: Final = 1_000_000  # the most for one task, so that repeating a lost task costs little

HIDE_TRACEBACK: Final = "SPARK_HIDE_TRACEBACK"
LINES: Final = "line string"  # the schema of tasks that return entries

Work: TypeAlias = Callable[[Any], Iterator[pa.RecordBatch]]
Entry = TypeVar("Entry")


@contextmanager
def reporting() -> Iterator[None]:
    """Let Spark report errors of Fencepost that the block, or the decorated function, raises without tracebacks.

    A traceback is right for a bug and noise for "there is no such store". Spark leaves it out if this variable says so
    when it reports. The process ends after the report, so no other error is shortened.
    """
    try:
        yield
    except FencepostError:
        os.environ[HIDE_TRACEBACK] = "1"
        raise


def over_tasks(spark: SparkSession, inputs: Sequence[Any], work: Work, schema: StructType | str) -> DataFrame:
    """The batches that `work` yields for each input, each input in a task of its own.

    `inputs` and `work` are pickled and sent to the workers.
    """
    if not inputs:
        return spark.createDataFrame([], schema)
    return spark.range(0, len(inputs), 1, len(inputs)).mapInArrow(partial(_run, tuple(inputs), work), schema)


def _run(inputs: tuple[Any, ...], work: Work, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Runs in a worker: its rows are numbers of inputs."""
    with reporting():
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from work(inputs[number])


def line_of(entry: Any) -> pa.RecordBatch:
    """The entry of a file that a task has written, as the task returns it: a line of JSON."""
    return pa.RecordBatch.from_pydict({"line": [msgspec.json.encode(entry).decode()]})


def entries_in(lines: DataFrame, kind: type[Entry]) -> list[Entry]:
    """The entries that the tasks have returned; on the driver."""
    return [msgspec.json.decode(row["line"], type=kind) for row in lines.collect()]


def parallelism(spark: SparkSession) -> int:
    """How many tasks run at once. Spark Connect does not say; 4 then makes a few more rounds."""
    return max(1, spark.sparkContext.defaultParallelism) if isinstance(spark, SparkSession) else 4


def ranges(up_to: int, *, after: int = 0) -> list[tuple[int, int]]:
    """The positions above `after` and up to `up_to` as ranges (after, up_to), one for each task."""
    if after >= up_to > 0:
        return []
    return list(pairwise([after, *even_borders(after, up_to, default_parts(up_to - after)), up_to]))


def default_parts(events: int) -> int:
    """How many tasks read that many events."""
    if events <= SMALL_EVENTS:
        return 1
    return max(os.cpu_count() or 1, -(-events // LARGE_EVENTS))


def even_borders(after: int, up_to: int, parts: int) -> list[int]:
    """Positions that cut the range into equal parts; without gaps that is an equal number of events."""
    span = up_to - after
    return sorted({after + span * part // parts for part in range(1, parts)})
