"""An Iceberg table over files that lakes and views have written, in a catalog of its own.

    <folder>/catalog.db                 the catalog: a SQLite file, with the table `fencepost.<name>`
    <folder>/fencepost/<name>/          the table's metadata; engines without the catalog read its newest file

The position is a property of each snapshot. A commit is refused if another one was made since the table was read.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pyarrow as pa

from ...errors import StoreUnavailable
from .table import POSITION, Commit, DataFile, nullable

try:
    from pyiceberg.catalog.sql import SqlCatalog
    from pyiceberg.exceptions import CommitFailedException, ValidationException
    from pyiceberg.io.pyarrow import parquet_files_to_data_files
    from pyiceberg.manifest import DataFile as IcebergFile
    from pyiceberg.table import Table, TableProperties
except ImportError as error:
    raise ImportError(f"{error}; an Iceberg table needs its library: pip install 'fencepost[lake]'") from error

NAMESPACE: Final = "fencepost"

# It warns for every column without statistics; our files have statistics only for the columns that are filtered by.
logging.getLogger("pyiceberg.io.pyarrow").setLevel(logging.ERROR)


class IcebergFiles:
    """The Iceberg table `fencepost.<name>` of the catalog in a folder."""

    def __init__(self, home: Path, schema: pa.Schema, name: str) -> None:
        self.folder = home / "data"
        self._home = home
        self._schema = schema
        self._name = f"{NAMESPACE}.{name}"

    def commits(self) -> list[Commit]:
        with self._existing() as table:
            found = [] if table is None else [(each, each.summary) for each in table.snapshots()]
            return [
                Commit(snapshot.snapshot_id, dict(summary.additional_properties))
                for snapshot, summary in found
                if summary is not None and POSITION in summary.additional_properties
            ]

    def paths(self, version: int | None = None) -> set[Path]:
        with self._existing() as table:
            return set() if table is None else set(_files(table, version))

    def commit(
        self,
        add: Sequence[DataFile],
        remove: Collection[Path],
        *,
        position: int,
        properties: Mapping[str, str],
        rewritten: bool = False,
    ) -> None:
        with self._catalog() as catalog:
            catalog.create_namespace_if_not_exists(NAMESPACE)
            table = catalog.create_table_if_not_exists(self._name, schema=nullable(self._schema))
            if table.properties.get(TableProperties.COMMIT_NUM_RETRIES) != "0":
                _prepare(table)
            there = _files(table, None)
            said = {**properties, POSITION: str(position)}
            try:
                with (
                    table.transaction() as transaction,
                    transaction.update_snapshot(snapshot_properties=said).overwrite() as update,
                ):
                    paths = iter([str(file.path) for file in add])
                    for file in parquet_files_to_data_files(table.io, transaction.table_metadata, paths):
                        update.append_data_file(file)
                    for path in remove:
                        update.delete_data_file(there[path])
            except (CommitFailedException, ValidationException) as error:
                raise StoreUnavailable(
                    f"{self._home}: another process has changed the table ({error}); try again"
                ) from None

    def forget(self, kept: Sequence[Commit]) -> None:
        names = {commit.version for commit in kept}
        with self._existing() as table:
            old = [each.snapshot_id for each in table.snapshots() if each.snapshot_id not in names] if table else []
            if table is not None and old:
                table.maintenance.expire_snapshots().by_ids(old).commit()

    @contextmanager
    def _existing(self) -> Iterator[Table | None]:
        if not (self._home / "catalog.db").exists():
            yield None
            return
        with self._catalog() as catalog:
            yield catalog.load_table(self._name) if catalog.table_exists(self._name) else None

    @contextmanager
    def _catalog(self) -> Iterator[SqlCatalog]:
        self._home.mkdir(parents=True, exist_ok=True)
        catalog = SqlCatalog(NAMESPACE, uri=f"sqlite:///{self._home}/catalog.db", warehouse=f"file://{self._home}")
        try:
            yield catalog
        finally:
            catalog.close()


def _prepare(table: Table) -> None:
    """Let the table take files by the names of their columns, and let a commit that loses fail.

    pyiceberg would apply a losing commit again, on top of a table that this process has not seen.
    """
    mapping = table.schema().name_mapping.model_dump_json()
    with table.transaction() as transaction:
        transaction.set_properties(
            {TableProperties.DEFAULT_NAME_MAPPING: mapping, TableProperties.COMMIT_NUM_RETRIES: "0"}
        )


def _files(table: Table, version: int | None) -> dict[Path, IcebergFile]:
    """The entries of the table's files, by path."""
    if version is None and table.current_snapshot() is None:
        return {}
    scan = table.scan(snapshot_id=version)
    return {Path(task.file.file_path.removeprefix("file://")): task.file for task in scan.plan_files()}
