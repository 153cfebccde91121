"""Compacting a lake: small files of consecutive positions become one.

Every export adds a file, so an export every ten seconds would make thousands of files a day. Files are merged in two
ways. Files that together fill a chunk become one, which is never merged again. Of the files after the last full one, 8
of about the same size become one of the next size. So the number of small files is bounded by the logarithm of the
chunk's size, and an event is written a few times, not once for each export (tests/unit/test_lake_runs.py).

The events do not change. Merged files are complete before the manifest lists them in place of the old ones, in one
step, and the old ones stay for a while (`engines.lake.retiring`). So no reader notices, and a compaction that is killed
has not happened.

No lock keeps other writers away from an object store. A file there that the manifest does not list may belong to a
process that is about to commit it. So files are first listed, then the manifest is written again, then they are
removed: a file that was listed was written by a process that had read an earlier manifest, and the commit of such a
process fails from then on. So that this disturbs no process that is alive, such files stay for an hour.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Final

import msgspec
from pyspark.sql import SparkSession

from ...address import LAKE, Address
from ...engines.lake.files import (
    LakeFile,
    LakeManifest,
    existing_manifest,
    problem_of,
    strays,
    write_lake_manifest,
)
from ...engines.lake.retiring import RETAIN_S, remove, replaced, retire
from ...errors import InvalidInput, StoreCorrupt
from ...storage import LEFT_S, Storage
from ..basics import PATIENCE_S, changing
from ..scanning import scan_of
from .rounds import CHUNK_EVENTS, exporting, lake_storage, on_spark
from .tables import has_table
from .writing import write_chunk

FANOUT_BITS: Final = 3
FANOUT: Final = 1 << FANOUT_BITS  # files of about one size that become one of the next
FULL_BYTES: Final = 268_435_456  # a file of this size is not merged, however few events it has

Run = tuple[LakeFile, ...]


@dataclass(frozen=True)
class Compacted:
    """The result of a compaction: how many files of events the lake had, and has."""

    before: int
    after: int


def compact(spark: SparkSession, folder: str, *, chunk: int = CHUNK_EVENTS, retain_s: float = RETAIN_S) -> Compacted:
    """Merge the small files of the lake into files of about `chunk` events, as an export does.

    The files that they replace stay for `retain_s` seconds, for readers that still use them. If an export is running,
    wait for it, for at most a minute.
    """
    target = lake_storage(folder)
    existing_manifest(target)

    def work() -> Compacted:
        manifest = tidy_up(target, existing_manifest(target), retain_s=retain_s)
        after = compacted(spark, target, manifest, chunk=chunk, retain_s=retain_s)
        return Compacted(len(manifest.files), len(after.files))

    return changing(partial(exporting, target), work, PATIENCE_S)


def tidy_up(lake: Storage, manifest: LakeManifest, *, retain_s: float) -> LakeManifest:
    """Remove what a killed export or compaction has left, and replaced files whose time is over.

    Returns the manifest, which is written again in an object store before anything is removed there.
    """
    if retain_s < 0:
        raise InvalidInput("retain_s", f"at least 0 seconds are needed, not {retain_s}")
    left = strays(lake, manifest, before_s=left_before(retain_s))
    return _removed(lake, manifest, left, retain_s=retain_s)


def left_before(retain_s: float = RETAIN_S) -> float:
    """When a file in an object store must have been written to count as left by a killed process."""
    return time.time() - min(retain_s, LEFT_S)


def _removed(lake: Storage, manifest: LakeManifest, left: Sequence[str], *, retain_s: float) -> LakeManifest:
    """Remove the files that were left, and replaced files whose time is over."""
    over = replaced(lake, manifest.paths(), retain_s=retain_s, now_s=time.time())
    if (left or over) and not lake.is_locked:
        manifest = write_lake_manifest(lake, manifest)
    for path in left:
        lake.delete(path)
    remove(lake, over)
    return manifest


def compacted(
    spark: SparkSession, folder: Storage, manifest: LakeManifest, *, chunk: int, retain_s: float
) -> LakeManifest:
    """The manifest after its runs of small files were merged, some at a time; the caller holds the lake's lock."""
    if has_table(folder):
        return manifest
    todo = iter(runs(manifest.files, chunk))
    before = manifest
    while round := list(islice(todo, os.cpu_count() or 1)):
        written = on_spark(spark, round, partial(_merged, folder))
        merged = dict(zip((run[0].after for run in round), written, strict=True))
        replaced = {file.path: run for run in round for file in run}
        files: list[LakeFile] = []
        for file in manifest.files:
            if file.path not in replaced:
                files.append(file)
            elif file is replaced[file.path][0]:
                files.append(merged[file.after])
        _check(round, merged)
        following = msgspec.structs.replace(manifest, files=tuple(files))
        retire(folder, manifest.paths() - following.paths(), now_s=time.time())
        manifest = write_lake_manifest(folder, following)
    if manifest is not before and retain_s == 0:
        manifest = _removed(folder, manifest, (), retain_s=0)
    return manifest


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


def _merged(folder: Storage, run: Run) -> LakeFile:
    """Write the file that replaces a run; in a worker. A damaged file is refused: it must not get a new checksum."""
    for file in run:
        problem = problem_of(folder, file)
        if problem:
            raise StoreCorrupt(f"{folder.name(file.path)}: {problem}; the lake was not compacted")
    own = Address(LAKE, f"lake:{folder.name()}", folder.name())
    return write_chunk(scan_of(own), folder, run[0].after, run[-1].upto)


def _check(round: Sequence[Run], merged: dict[int, LakeFile]) -> None:
    """The new files must hold what the old ones hold."""
    for run in round:
        new = merged[run[0].after]
        assert (new.after, new.upto) == (run[0].after, run[-1].upto), new
        assert (new.first, new.last) == (run[0].first, run[-1].last), new
        assert new.rows == sum(file.rows for file in run), new
        old_appends = sum(file.appends.rows for file in run if file.appends)
        assert (new.appends.rows if new.appends else 0) == old_appends, new
