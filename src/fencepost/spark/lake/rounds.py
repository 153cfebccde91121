"""Rounds of tasks over the files of a lake: each task returns entries of the manifest, as lines of JSON.

One process at a time changes a lake in a folder; it holds the lock on the folder. In an object store, several may
write files at once, and one of them replaces the manifest. The others begin again from that manifest.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import msgspec
import pyarrow as pa
from pyspark.sql import SparkSession

from ...engines.lake.files import EVENTS, LakeFile
from ...engines.lake.storage import Place, storage_of
from ...storage import Folder, Storage, busy
from ..basics import Work, absolute_lake, locked, over_tasks

LOCK: Final = "export.lock"
CHUNK_EVENTS: Final = 250_000  # of a file
_LINES: Final = pa.schema([("line", pa.string())])


def lake_storage(given: str) -> Storage:
    """The storage of the lake in a folder, by its absolute path, or below a prefix of an object store."""
    return storage_of(absolute_lake(given, "folder"))


@contextmanager
def exporting(lake: Place) -> Iterator[None]:
    """Hold the lock on the folder of a lake: two exports at once would each remove the other's files.

    An object store has no lock; `tidy_up` says why no files are removed there that are still needed.
    """
    storage = storage_of(lake)
    if not isinstance(storage, Folder):
        yield
        return
    (storage.folder / EVENTS).mkdir(parents=True, exist_ok=True)
    with locked(storage.folder / LOCK, busy(storage)):
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
