"""Delta and Iceberg tables over a lake's files.

The tables hold no events of their own: they refer to the lake's files. A sync adds the files that a table lacks and
removes those that the manifest no longer lists, in one commit of the table format, which also records the position.
So syncing again, or after a crash, changes nothing, and files that replace others are a commit that changes no row.

No lock keeps two exports into an object store apart. There a sync reads the table before it reads the manifest, and
its commit fails if the table has changed since. So no commit takes the table back to an older manifest.
tests/spark/test_lake_tables.py and tests/spark/slow/test_object_tables.py read the tables with their own libraries.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ...engines.lake.columns import SCHEMA
from ...engines.lake.files import EVENTS, LakeManifest, existing_manifest
from ...errors import InvalidInput
from ...storage import ManifestChanged, Storage
from ..formats import DELTA, ICEBERG, CatalogName, Change, DataFile, FileTable, TableChanged, commit_at, table_of
from .rounds import lake_storage

TABLE: Final = "events"
HOME: Final = "iceberg"  # the folder of the Iceberg table's metadata
LOG: Final = f"{EVENTS}/_delta_log"


def chosen_tables(
    storage: Storage, *, delta: bool, iceberg: bool, iceberg_catalog: str | None, iceberg_table: str | None
) -> list[FileTable]:
    """The tables that the options of an export name, checked before the export writes anything."""
    catalog = CatalogName.of(iceberg_catalog, iceberg_table, fields=("iceberg_catalog", "iceberg_table"))
    if catalog is not None and not iceberg:
        raise InvalidInput("iceberg_catalog", "it is for an Iceberg table, and iceberg is False; set it to True")
    if iceberg and catalog is None and not storage.is_locked:
        raise InvalidInput(
            "iceberg_catalog",
            f"missing; {storage.name()} is in an object store, which has no Iceberg catalog: name one of "
            "pyiceberg's configuration",
        )
    kinds = [kind for kind, wanted in ((DELTA, delta), (ICEBERG, iceberg)) if wanted]
    tables = [lake_table(storage, kind, catalog) for kind in kinds]  # reports a missing library
    if catalog is not None:
        tables[-1].state()  # reports an unknown catalog
    return tables


def sync(tables: Sequence[FileTable], storage: Storage, manifest: LakeManifest) -> None:
    """Bring the tables in step with the lake, whose manifest is this one or, in an object store, a later one."""
    for table in tables:
        _sync(table, storage, manifest)


def table_version(
    folder: str, position: int, *, table: str, iceberg_catalog: str | None = None, iceberg_table: str | None = None
) -> int:
    """The version of the Delta table, or the id of the Iceberg snapshot, that first covered the position.

    `table` is `delta` or `iceberg`. Read the table at that version, where `position` is at most the position, to see
    the log as it was. An Iceberg table is found in the catalog that the export has named.
    """
    catalog = CatalogName.of(iceberg_catalog, iceberg_table, fields=("iceberg_catalog", "iceberg_table"))
    storage = lake_storage(folder)
    if table == ICEBERG and catalog is None and not storage.is_locked:
        raise InvalidInput("iceberg_catalog", f"missing; {storage.name()} is in an object store: name its catalog")
    return commit_at(lake_table(storage, table, catalog).state().commits, position).version


def lake_table(storage: Storage, kind: str, catalog: CatalogName | None = None) -> FileTable:
    return table_of(kind, storage, data=EVENTS, home=HOME, schema=SCHEMA, name=TABLE, catalog=catalog)


def has_table(storage: Storage) -> bool:
    """Whether a Delta or Iceberg table refers to the files. Older versions of the table need them for time travel."""
    return bool(storage.listed(LOG) or storage.listed(HOME))


def _sync(table: FileTable, storage: Storage, manifest: LakeManifest) -> None:
    state = table.state()
    if not storage.is_locked:
        manifest = existing_manifest(storage)
    wanted = {
        name: DataFile(name, file.rows, file.bytes, file.first, file.last)
        for file in manifest.files
        for name in [file.path.removeprefix(f"{EVENTS}/")]
    }
    covered = state.commits[-1].position if state.commits else None
    if state.files == wanted.keys() and covered == manifest.upto:
        return
    missing = [file for name, file in wanted.items() if name not in state.files]
    rewritten = covered == manifest.upto  # by a compaction
    try:
        table.commit(state, Change(missing, state.files - wanted.keys(), manifest.upto, {}, rewritten))
    except TableChanged as error:
        if storage.is_locked:
            raise
        raise ManifestChanged(str(error)) from None  # the export begins again
