"""Delta and Iceberg tables over a lake's files.

The tables hold no events of their own: they refer to the lake's files. A sync adds the files that a table lacks and
removes those that the manifest no longer lists, in one commit of the table format, which also records the position.
So syncing again, or after a crash, changes nothing, and files that replace others are a commit that changes no row.
tests/spark/test_lake_tables.py reads the tables with their own libraries.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from ...engines.lake.columns import SCHEMA
from ...engines.lake.files import EVENTS, LakeManifest
from ..basics import local_path
from ..formats import DataFile, FileTable, commit_at, table_of

TABLE: Final = "events"
DELTA: Final = "delta"
ICEBERG: Final = "iceberg"


def sync_delta(folder: Path, manifest: LakeManifest) -> None:
    """`<folder>/events` as a Delta table with exactly the manifest's files."""
    _sync(lake_table(folder, DELTA), folder, manifest)


def sync_iceberg(folder: Path, manifest: LakeManifest) -> None:
    """The Iceberg table `fencepost.events` of the catalog in `<folder>/iceberg`, with exactly the manifest's files."""
    _sync(lake_table(folder, ICEBERG), folder, manifest)


def table_version(folder: str, position: int, *, table: str) -> int:
    """The version of the Delta table, or the id of the Iceberg snapshot, that first covered the position.

    `table` is `delta` or `iceberg`. Read the table at that version, where `position` is at most the position, to see
    the log as it was.
    """
    return commit_at(lake_table(Path(local_path(folder, "folder")).absolute(), table).commits(), position).version


def lake_table(folder: Path, kind: str) -> FileTable:
    return table_of(kind, folder / ("iceberg" if kind == ICEBERG else EVENTS), schema=SCHEMA, name=TABLE)


def _sync(table: FileTable, folder: Path, manifest: LakeManifest) -> None:
    wanted = {
        folder / file.path: DataFile(folder / file.path, file.rows, file.bytes, file.first, file.last)
        for file in manifest.files
    }
    there, commits = table.paths(), table.commits()
    covered = commits[-1].position if commits else None
    if there == wanted.keys() and covered == manifest.upto:
        return
    missing = [file for path, file in wanted.items() if path not in there]
    rewritten = covered == manifest.upto  # by a compaction
    table.commit(missing, there - wanted.keys(), position=manifest.upto, properties={}, rewritten=rewritten)
