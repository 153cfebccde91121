"""Rounds of tasks over the files of a lake: each task returns entries of the manifest, as lines of JSON.

One process at a time changes a lake in a folder; it holds the lock on the folder. In an object store, several may
write files at once, and one of them replaces the manifest. The others begin again from that manifest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import SparkSession

from ...engines.lake.files import EVENTS, LakeFile
from ...engines.lake.paths import storage_of
from ...storage import Storage
from ..basics import LINES, absolute_lake, entries_in, line_of, locked, over_tasks

LOCK: Final = "export.lock"
CHUNK_EVENTS: Final = 250_000  # of a file


def lake_storage(given: str) -> Storage:
    """The storage of the lake in a folder, by its absolute path, or below a prefix of an object store."""
    return storage_of(absolute_lake(given, "folder"))


def exporting(lake: Storage) -> AbstractContextManager[None]:
    """Hold the lock on the folder of a lake: two exports at once would each remove the other's files.

    An object store has no lock; `tidy_up` says why no files are removed there that are still needed.
    """
    return locked(lake, LOCK, folder=EVENTS)


def on_spark(spark: SparkSession, inputs: Sequence[Any], work: Callable[[Any], LakeFile]) -> list[LakeFile]:
    """Run `work` on each input, each in a task of its own; the entries that it returns, by position."""
    found = entries_in(over_tasks(spark, inputs, partial(_line, work), LINES), LakeFile)
    return sorted(found, key=lambda file: file.after)


def _line(work: Callable[[Any], LakeFile], given: Any) -> Iterator[pa.RecordBatch]:
    yield line_of(work(given))
