"""Rounds of tasks over the files of a lake: each task returns entries of the manifest, as lines of JSON.

One process at a time changes a lake; it holds the lock on the folder.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
from pyspark.sql import SparkSession

from ...engines.lake.files import EVENTS, LakeFile
from ..basics import Work, local_path, locked, over_tasks

LOCK: Final = "export.lock"
CHUNK_EVENTS: Final = 250_000  # of a file
_LINES: Final = pa.schema([("line", pa.string())])


def lake_folder(given: str) -> Path:
    """The folder of a lake, absolute."""
    return Path(local_path(given, "folder")).absolute()


@contextmanager
def exporting(folder: Path) -> Iterator[None]:
    """Hold the lock on the lake: two exports at once would each remove the other's files."""
    (folder / EVENTS).mkdir(parents=True, exist_ok=True)
    with locked(folder / LOCK, f"{folder}: another process is exporting into this lake; try again later"):
        yield


def on_spark(spark: SparkSession, inputs: Sequence[Any], work: Work) -> list[LakeFile]:
    """Run `work` on each input, each in a task of its own; the entries that it yields, by position."""
    rows = over_tasks(spark, inputs, work, "line string").collect()
    found = [msgspec.json.decode(row["line"], type=LakeFile) for row in rows]
    return sorted(found, key=lambda file: file.after)


def lines(file: LakeFile) -> pa.RecordBatch:
    """The entry as a task returns it."""
    return pa.RecordBatch.from_pylist([{"line": msgspec.json.encode(file).decode()}], schema=_LINES)


def parallelism(spark: SparkSession) -> int:
    """How many tasks run at once. Spark Connect does not say; 4 then makes a few more rounds."""
    try:
        return max(1, spark.sparkContext.defaultParallelism)
    except Exception:
        return 4
