"""Compacting a lake: small files of consecutive positions become one.

Every export adds a file, so an export every ten seconds would make thousands of files a day. Files are merged in two
ways. Files that together fill a chunk become one, which is never merged again. Of the files after the last full one, 8
of about the same size become one of the next size. So the number of small files is bounded by the logarithm of the
chunk's size, and an event is written a few times, not once for each export (tests/unit/test_lake_runs.py). Delta's own
compaction goes by size alone and would mix ranges of positions.

The events do not change: merged files replace the old ones in one commit that changes no row. The old files stay for a
while, for readers of earlier versions. So no reader notices, and a compaction that is killed has not happened
(tests/spark/slow/test_compaction_kills.py).
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Final

from pyspark.sql import SparkSession

from ...errors import InvalidInput
from ..delta import PATIENCE_S, Change, changing
from ..lake_engine.files import Lake, LakeFile, is_ours, lake_at, lake_of
from ..location import absolute_location
from .writer import merge_files, on_spark

CHUNK_EVENTS: Final = 250_000  # of a file
RETAIN_HOURS: Final = 24  # longer than queries run
FANOUT_BITS: Final = 3
FANOUT: Final = 1 << FANOUT_BITS  # files of about one size that become one of the next
FULL_BYTES: Final = 268_435_456  # a file of this size is not merged, however few events it has

Run = tuple[LakeFile, ...]


@dataclass(frozen=True)
class Compacted:
    """The result of a compaction: how many files of events the lake had, and has."""

    before: int
    after: int


def compact(
    spark: SparkSession, folder: str, *, chunk: int = CHUNK_EVENTS, retain_hours: int = RETAIN_HOURS
) -> Compacted:
    """Merge the small files of the lake into files of about `chunk` events, as an export does.

    The files that they replace stay for `retain_hours`, for readers that still use them.
    """
    location = absolute_location(folder, "folder")

    def work() -> Compacted:
        lake = lake_at(location)
        remove_unused(lake, retain_hours)
        after = merged(spark, lake, chunk=chunk, retain_hours=retain_hours)
        return Compacted(len(lake.files), len(after.files))

    return changing(work, PATIENCE_S)


def remove_unused(lake: Lake, retain_hours: int) -> None:
    """Delete what a killed export or compaction has left, and replaced files whose time is over."""
    if not isinstance(retain_hours, int) or retain_hours < 0:
        raise InvalidInput("retain_hours", f"a whole number of at least 0 is needed, not {retain_hours!r}")
    unused = lake.table.unused(lake.state, retain_hours=retain_hours)
    lake.table.delete([path for path in unused if is_ours(path)])


def merged(spark: SparkSession, lake: Lake, *, chunk: int, retain_hours: int) -> Lake:
    """The lake after its runs of small files were merged, some at a time, each time in one commit."""
    table, before = lake.table, lake
    todo = iter(runs(lake.files, chunk))
    while round := list(islice(todo, os.cpu_count() or 1)):
        new = on_spark(spark, round, partial(merge_files, table))
        _check(round, new)
        replaced = [file.path for run in round for file in run]
        change = Change(new, replaced, lake.state.newest.position, lake.state.newest.digest, rewritten=True)
        lake = lake_of(table, table.commit(lake.state, change))
    if lake is not before and retain_hours == 0:
        remove_unused(lake, 0)
    return lake


def runs(files: Sequence[LakeFile], chunk: int) -> list[Run]:
    """The runs of consecutive files that a compaction must merge, in order."""
    groups: list[list[LakeFile]] = []
    rows = size = 0
    for file in files:
        if groups and rows + file.rows <= chunk and size + file.bytes <= FULL_BYTES:
            groups[-1].append(file)
            rows, size = rows + file.rows, size + file.bytes
        else:
            groups.append([file])
            rows, size = file.rows, file.bytes
    if not groups:
        return []
    newest = groups.pop() if rows < chunk else []  # it can still grow
    return [tuple(group) for group in groups if len(group) > 1] + _grown(newest)


def _grown(files: Sequence[LakeFile]) -> list[Run]:
    """The newest files, if there are `FANOUT` of about one size among them.

    A file counts as large as the largest file after it, so that sizes fall from the oldest to the newest.
    """
    sizes, largest = [], 0
    for file in reversed(files):
        largest = max(largest, (file.rows.bit_length() - 1) // FANOUT_BITS)
        sizes.append(largest)
    many = [size for size, count in Counter(sizes).items() if count >= FANOUT]
    if not many:
        return []
    return [tuple(files[-sum(1 for size in sizes if size <= max(many)) :])]


def _check(round: Sequence[Run], merged: Sequence[LakeFile]) -> None:
    """The new files must hold what the old ones hold."""
    for run, new in zip(round, merged, strict=True):
        assert (new.after, new.up_to) == (run[0].after, run[-1].up_to), new
        assert new.rows == sum(file.rows for file in run), new
