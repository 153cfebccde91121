"""Delta and Iceberg tables over a lake's files: the same bytes, under one more name.

Neither table holds events of its own. What is missing in the table's log is added in one of its
transactions, so syncing again after a crash, or twice, changes nothing.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa

from .lake_files import EVENTS, SCHEMA, LakeFile, Manifest

NAMESPACE: Final = "fencepost"
TABLE: Final = "events"


def sync_delta(folder: Path, manifest: Manifest) -> None:
    """`<folder>/events` as a Delta table with exactly the manifest's files."""
    try:
        from deltalake import DeltaTable
        from deltalake.transaction import AddAction
    except ImportError as error:
        raise ImportError(f"{error}; a Delta table needs its library: pip install 'fencepost[lake]'") from error

    root = folder / EVENTS
    if DeltaTable.is_deltatable(str(root)):
        table = DeltaTable(str(root))
    else:
        table = DeltaTable.create(str(root), _nullable(SCHEMA), name=TABLE)
    known = {Path(uri).name for uri in table.file_uris()}
    actions: list[Any] = [
        AddAction(
            path=Path(file.path).name,
            size=file.bytes,
            partition_values={},
            modification_time=int((folder / file.path).stat().st_mtime * 1000),
            data_change=True,
            stats=_statistics(file),
        )
        for file in manifest.files
        if Path(file.path).name not in known
    ]
    if actions:
        table.create_write_transaction(actions, mode="append", schema=table.schema())


def _statistics(file: LakeFile) -> str:
    """What lets a reader of the table pass over the file."""
    bounds = {"minValues": {"position": file.first}, "maxValues": {"position": file.last}}
    return msgspec.json.encode({"numRecords": file.rows, **bounds, "nullCount": {"position": 0}}).decode()


def sync_iceberg(folder: Path, manifest: Manifest) -> None:
    """The Iceberg table `fencepost.events` of the catalog in `<folder>/iceberg`, with exactly the manifest's files."""
    try:
        from pyiceberg.catalog.sql import SqlCatalog
    except ImportError as error:
        raise ImportError(f"{error}; an Iceberg table needs its library: pip install 'fencepost[lake]'") from error

    # It warns once for every column whose statistics a file leaves out, as ours do where they would help nobody.
    logging.getLogger("pyiceberg.io.pyarrow").setLevel(logging.ERROR)
    home = folder / "iceberg"
    home.mkdir(exist_ok=True)
    catalog = SqlCatalog(NAMESPACE, uri=f"sqlite:///{home / 'catalog.db'}", warehouse=f"file://{home}")
    try:
        catalog.create_namespace_if_not_exists(NAMESPACE)
        table = catalog.create_table_if_not_exists(f"{NAMESPACE}.{TABLE}", schema=_nullable(SCHEMA))
        known = {path.removeprefix("file://") for path in table.inspect.files().column("file_path").to_pylist()}
        missing = [str(folder / file.path) for file in manifest.files if str(folder / file.path) not in known]
        if missing:
            table.add_files(missing)
    finally:
        catalog.close()


def _nullable(schema: pa.Schema) -> pa.Schema:
    """Table formats check a file's columns against the table's; a column that may be null takes both."""
    return pa.schema([field.with_nullable(True) for field in schema])
