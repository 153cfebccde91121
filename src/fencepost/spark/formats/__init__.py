"""Tables of Parquet files that other engines read: Delta and Iceberg, by their own libraries.

    table       what lakes and views ask of a table: its state, and a commit on it that adds and removes files
    delta       a Delta table; the position is the version of an application transaction
    iceberg     an Iceberg table; the position is a property of the snapshot
    catalogs    which Iceberg catalog has the table: one in a SQLite file, or one that the user has configured

Lakes and views write the files, in a folder or an object store. A table format only says which of them belong to the
table, in one atomic commit, together with the position of the log. tests/spark/test_formats.py holds this.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from ...errors import InvalidInput
from ...storage import Storage
from .table import CatalogName, Change, Commit, DataFile, FileTable, State, TableChanged, commit_at

__all__ = [
    "DELTA",
    "FORMATS",
    "ICEBERG",
    "CatalogName",
    "Change",
    "Commit",
    "DataFile",
    "FileTable",
    "State",
    "TableChanged",
    "commit_at",
    "table_of",
]

DELTA: Final = "delta"
ICEBERG: Final = "iceberg"
FORMATS: Final = (DELTA, ICEBERG)


def table_of(
    kind: str,
    storage: Storage,
    *,
    data: str,
    home: str,
    schema: pa.Schema,
    name: str,
    catalog: CatalogName | None = None,
) -> FileTable:
    """The table of that kind over the files in the folder `data` of the storage.

    Its first commit creates it, with the columns of the schema. An Iceberg table has its metadata in the folder `home`
    and is in the catalog that is named, or in one of its own. A Delta table has its log beside the files.
    """
    if kind == DELTA:
        from .delta import DeltaFiles

        return DeltaFiles(storage, data, schema, name)
    if kind == ICEBERG:
        from .iceberg import IcebergFiles

        return IcebergFiles(storage, home, data, schema, name, catalog)
    raise InvalidInput("table", f"one of {', '.join(FORMATS)} is needed, not {kind!r:.80}")
