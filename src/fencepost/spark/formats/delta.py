"""A Delta table over files that lakes and views have written.

A commit carries an application transaction whose version is the position (`txnAppId`, `txnVersion`), so Delta's own
writers recognise it, too. A commit that finds another one made since the table was read fails: files are never
removed on the strength of an old list.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa

from ...errors import StoreUnavailable
from .table import POSITION, Commit, DataFile, nullable

try:
    from deltalake import DeltaTable
    from deltalake.exceptions import CommitFailedError
    from deltalake.transaction import AddAction, CommitProperties, RemoveAction, Transaction
except ImportError as error:
    raise ImportError(f"{error}; a Delta table needs its library: pip install 'fencepost[lake]'") from error

APPLICATION: Final = "fencepost"  # the id of the application transactions
LARGEST_VERSION: Final = 2**63 - 1  # of an application transaction; positions of FoundationDB are larger


class DeltaFiles:
    """The Delta table in a folder; its files are in the same folder."""

    def __init__(self, folder: Path, schema: pa.Schema, name: str) -> None:
        self.folder = folder
        self._schema = schema
        self._name = name

    def commits(self) -> list[Commit]:
        if not self._exists():
            return []
        found = [entry for entry in self._table().history() if POSITION in entry]
        return [
            Commit(int(entry["version"]), {name: str(value) for name, value in entry.items() if "." in name})
            for entry in reversed(found)
        ]

    def paths(self, version: int | None = None) -> set[Path]:
        if not self._exists():
            return set()
        table = DeltaTable(str(self.folder), version=version)
        return {self.folder / Path(uri).name for uri in table.file_uris()}

    def commit(
        self,
        add: Sequence[DataFile],
        remove: Collection[Path],
        *,
        position: int,
        properties: Mapping[str, str],
        rewritten: bool = False,
    ) -> None:
        if not self._exists():
            DeltaTable.create(str(self.folder), nullable(self._schema), name=self._name, mode="ignore")
        table = self._table()
        now = int(time.time() * 1000)
        actions: list[AddAction | RemoveAction] = [
            RemoveAction(path.name, not rewritten, now, None, {}) for path in sorted(remove)
        ]
        actions += [AddAction(file.path.name, file.bytes, {}, now, not rewritten, file.statistics) for file in add]
        said = CommitProperties(
            custom_metadata={**properties, POSITION: str(position)},
            max_commit_retries=0,
            app_transactions=[Transaction(APPLICATION, position)] if position <= LARGEST_VERSION else None,
        )
        try:
            table.create_write_transaction(actions, mode="append", schema=table.schema(), commit_properties=said)
        except CommitFailedError as error:
            raise StoreUnavailable(
                f"{self.folder}: another process has changed the table ({error}); try again"
            ) from None

    def forget(self, kept: Sequence[Commit]) -> None:
        """Nothing: a Delta table keeps its history as long as its own settings say, with or without the files."""

    def _exists(self) -> bool:
        return DeltaTable.is_deltatable(str(self.folder))

    def _table(self) -> DeltaTable:
        return DeltaTable(str(self.folder))
