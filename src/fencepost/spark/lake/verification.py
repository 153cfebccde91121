"""Verifying a lake: every file against the size, SHA-256, positions and rows that the table's log has."""

from __future__ import annotations

from itertools import islice

import msgspec
from pyspark.sql import SparkSession

from ...errors import StoreCorrupt
from ..basics import parallelism
from ..lake_engine.files import lake_at, problem_of
from ..location import absolute_location
from .writer import on_spark


def verify(spark: SparkSession, folder: str) -> list[str]:
    """The problems of the lake, a sentence for each file; empty if every file is as the table's log says."""
    try:
        lake = lake_at(absolute_location(folder, "folder"))
    except StoreCorrupt as error:
        return [str(error)]
    table, problems = lake.table, list[str]()
    todo = iter(lake.files)
    while round := list(islice(todo, 4 * parallelism(spark))):
        # A task returns each file with its problem in place of the checksum.
        found = on_spark(spark, round, lambda file: msgspec.structs.replace(file, sha256=problem_of(table, file)))
        problems += [f"{file.path}: {file.sha256}" for file in found if file.sha256]
    return problems
