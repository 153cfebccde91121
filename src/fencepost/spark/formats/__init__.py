"""Tables of Parquet files that other engines read: Delta and Iceberg, by their own libraries.

    table       what lakes and views ask of a table: its commits, their files, a commit that adds and removes
    delta       a Delta table; the position is the version of an application transaction
    iceberg     an Iceberg table in a catalog of its own; the position is a property of the snapshot

Lakes and views write the files. A table format only says which of them belong to the table, in one atomic commit,
together with the position of the log. tests/spark/test_formats.py holds this.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from ...errors import InvalidInput
from .table import POSITION, Commit, DataFile, FileTable, commit_at

__all__ = ["POSITION", "Commit", "DataFile", "FileTable", "commit_at", "table_of"]

FORMATS = ("delta", "iceberg")


def table_of(kind: str, root: Path, *, schema: pa.Schema, name: str) -> FileTable:
    """The table of that kind in the folder. It is created by its first commit, with the columns of the schema."""
    if kind == "delta":
        from .delta import DeltaFiles

        return DeltaFiles(root, schema, name)
    if kind == "iceberg":
        from .iceberg import IcebergFiles

        return IcebergFiles(root, schema, name)
    raise InvalidInput("table", f"one of {', '.join(FORMATS)} is needed, not {kind!r:.80}")
