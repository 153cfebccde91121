"""An Iceberg table over files that lakes and views have written, in a folder or an object store.

    <folder>/catalog.db                 the catalog, unless the user names one: a SQLite file with `fencepost.<name>`
    <folder>/fencepost/<name>/          the table's metadata; engines without the catalog read its newest file
    <folder>/metadata/                  the table's metadata, if the user names a catalog

The position is a property of each snapshot. A commit is refused by the catalog if another one was made since the table
was read. tests/spark/test_formats.py and tests/spark/slow/test_object_tables.py hold this.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

from ...errors import InvalidInput, StoreUnavailable
from ...storage import Folder, Storage
from .catalogs import identifier, opened
from .table import POSITION, CatalogName, Change, Commit, State, TableChanged, nullable

try:
    from pyiceberg.catalog import Catalog
    from pyiceberg.exceptions import (
        CommitFailedException,
        CommitStateUnknownException,
        TableAlreadyExistsError,
        ValidationException,
    )
    from pyiceberg.io.pyarrow import parquet_files_to_data_files
    from pyiceberg.manifest import DataFile as IcebergFile
    from pyiceberg.table import Table, TableProperties
except ImportError as error:
    raise ImportError(f"{error}; an Iceberg table needs its library: pip install 'fencepost[lake]'") from error

# It warns for every column without statistics; our files have statistics only for the columns that are filtered by.
logging.getLogger("pyiceberg.io.pyarrow").setLevel(logging.ERROR)


class IcebergFiles:
    """The Iceberg table of a catalog, with its metadata in the folder `home` of a storage and its files in `data`."""

    def __init__(
        self, storage: Storage, home: str, data: str, schema: pa.Schema, name: str, catalog: CatalogName | None
    ) -> None:
        self._at = storage.name(home)
        self._home = Path(self._at) if isinstance(storage, Folder) else None
        if self._home is None and catalog is None:
            raise InvalidInput("catalog", f"{self._at} is in an object store, which has no Iceberg catalog; name one")
        self._data = storage.name(data) + "/"
        self._schema = schema
        self._catalog_name = catalog
        self._name = identifier(storage, name, catalog)

    def state(self) -> State:
        with self._existing() as table:
            if table is None:
                return State()
            found = [(each, each.summary) for each in table.snapshots()]
            commits = tuple(
                Commit(snapshot.snapshot_id, dict(summary.additional_properties))
                for snapshot, summary in found
                if summary is not None and POSITION in summary.additional_properties
            )
            return State(commits, frozenset(self._entries(table, None)), table)

    def files(self, version: int) -> dict[str, int]:
        with self._existing() as table:
            entries = {} if table is None else self._entries(table, version)
            return {name: entry.file_size_in_bytes for name, entry in entries.items()}

    def commit(self, state: State, change: Change) -> None:
        with opened(self._home, self._catalog_name) as catalog:
            try:
                table = state.loaded if state.loaded is not None else self._created(catalog)
                table.catalog = catalog  # the one that loaded the table is closed
                _prepare(table)
                there = self._entries(table, None)
                said = {**change.properties, POSITION: str(change.position)}
                with (
                    table.transaction() as transaction,
                    transaction.update_snapshot(snapshot_properties=said).overwrite() as update,
                ):
                    paths = iter([self._data + file.name for file in change.add])
                    for file in parquet_files_to_data_files(table.io, transaction.table_metadata, paths):
                        update.append_data_file(file)
                    for name in change.remove:
                        update.delete_data_file(there[name])
            except (CommitFailedException, ValidationException, TableAlreadyExistsError) as error:
                raise TableChanged(f"{self._at}: another process has changed the table ({error}); try again") from None
            except CommitStateUnknownException as error:
                raise StoreUnavailable(
                    f"{self._at}: the catalog did not say whether it has committed ({error}); try again"
                ) from None

    def forget(self, kept: Sequence[Commit]) -> None:
        names = {commit.version for commit in kept}
        with self._existing() as table:
            old = [each.snapshot_id for each in table.snapshots() if each.snapshot_id not in names] if table else []
            if table is not None and old:
                table.maintenance.expire_snapshots().by_ids(old).commit()

    def _entries(self, table: Table, version: int | None) -> dict[str, IcebergFile]:
        """The entries of the table's files, by name. A file that is not in our folder goes by its whole path."""
        if version is None and table.current_snapshot() is None:
            return {}
        scan = table.scan(snapshot_id=version)
        tasks = ((task.file.file_path.removeprefix("file://"), task.file) for task in scan.plan_files())
        return {path.removeprefix(self._data): file for path, file in tasks}

    def _created(self, catalog: Catalog) -> Table:
        catalog.create_namespace_if_not_exists(self._name.rpartition(".")[0])
        # In a catalog that the user names, the metadata is with the files: the table needs no warehouse of the catalog.
        at = self._at if self._home is None else f"file://{self._home}"
        location = None if self._catalog_name is None else at
        return catalog.create_table(self._name, schema=nullable(self._schema), location=location)

    @contextmanager
    def _existing(self) -> Iterator[Table | None]:
        if self._catalog_name is None and self._home is not None and not (self._home / "catalog.db").exists():
            yield None
            return
        with opened(self._home, self._catalog_name) as catalog:
            yield catalog.load_table(self._name) if catalog.table_exists(self._name) else None


def _prepare(table: Table) -> None:
    """Let the table take files by the names of their columns, and let a commit that loses fail.

    pyiceberg would apply a losing commit again, on top of a table that this process has not seen.
    """
    if table.properties.get(TableProperties.COMMIT_NUM_RETRIES) == "0":
        return
    before = table.current_snapshot()
    mapping = table.schema().name_mapping.model_dump_json()
    with table.transaction() as transaction:
        transaction.set_properties(
            {TableProperties.DEFAULT_NAME_MAPPING: mapping, TableProperties.COMMIT_NUM_RETRIES: "0"}
        )
    # This commit has loaded the table again, perhaps with commits that this process has not read.
    if table.current_snapshot() != before:
        raise CommitFailedException("a snapshot was added")
