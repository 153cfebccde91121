"""Verifying a lake: every file against the size, SHA-256, positions and rows that the manifest lists."""

from __future__ import annotations

from functools import partial
from itertools import islice

import msgspec
from pyspark.sql import SparkSession

from ...engines.lake.files import LakeFile, existing_manifest, problem_of, strays
from ...errors import StoreCorrupt, StoreUnavailable
from ...storage import Storage
from ..basics import parallelism
from .compacting import left_before
from .rounds import exporting, lake_storage, on_spark


def verify(spark: SparkSession, folder: str) -> list[str]:
    """The problems of the lake, a sentence for each file; empty if every file is as the manifest says."""
    target = lake_storage(folder)
    try:
        manifest = existing_manifest(target)
    except StoreCorrupt as error:
        return [str(error)]
    problems = _left_over(target)
    todo = iter(manifest.files)
    while round := list(islice(todo, 4 * parallelism(spark))):
        found = on_spark(spark, round, partial(_verify, target))
        problems += [f"{file.path}: {file.sha256}" for file in found if file.sha256]
    return problems


def _left_over(folder: Storage) -> list[str]:
    """A sentence for each file that the manifest does not list; none while an export runs, which may write them.

    In an object store, only files that are so old that the next export removes them.
    """
    try:
        with exporting(folder):
            left = strays(folder, existing_manifest(folder), before_s=left_before())
    except (StoreUnavailable, OSError):  # the lock cannot be taken in a folder that is read-only
        return []
    return [f"{path}: the manifest does not list it; the next export removes it" for path in left]


def _verify(folder: Storage, file: LakeFile) -> LakeFile:
    """The file's entry with its problem in place of the checksum; in a worker."""
    return msgspec.structs.replace(file, sha256=problem_of(folder, file))
