"""A Delta table over files that lakes and views have written, in a folder or an object store.

A commit carries an application transaction whose version is the position (`txnAppId`, `txnVersion`), so Delta's own
writers recognise it, too. A commit that finds another one made since the table was read fails: files are never
removed on the strength of an old list. In an object store this rests on puts that fail if the object exists
(If-None-Match); a store that ignores that header is refused when a table is created.
tests/spark/test_formats.py and tests/spark/slow/test_object_tables.py hold this.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Final

import pyarrow as pa

from ...errors import StoreError, StoreUnavailable
from ...storage import Storage
from .table import POSITION, Change, Commit, State, TableChanged, nullable, said

try:
    from deltalake import DeltaTable
    from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
    from deltalake.transaction import AddAction, CommitProperties, RemoveAction, Transaction
except ImportError as error:
    raise ImportError(f"{error}; a Delta table needs its library: pip install 'fencepost[lake]'") from error

APPLICATION: Final = "fencepost"  # the id of the application transactions
LARGEST_VERSION: Final = 2**63 - 1  # of an application transaction; positions of FoundationDB are larger
FIRST_COMMIT: Final = f"_delta_log/{0:020d}.json"


class DeltaFiles:
    """The Delta table in a folder of a storage; its files are in the same folder."""

    def __init__(self, storage: Storage, folder: str, schema: pa.Schema, name: str) -> None:
        self._storage = storage
        self._folder = folder
        self._at = storage.name(folder)
        self._options = _options(storage)
        self._schema = schema
        self._name = name

    def state(self) -> State:
        table = self._loaded(None)
        if table is None:
            return State()
        # The history may already have commits that were made after the table was loaded.
        found = [entry for entry in table.history() if POSITION in entry and entry["version"] <= table.version()]
        commits = tuple(
            Commit(int(entry["version"]), {name: str(value) for name, value in entry.items() if "." in name})
            for entry in reversed(found)
        )
        return State(commits, frozenset(_sizes(table)), table)

    def files(self, version: int) -> dict[str, int]:
        table = self._loaded(version)
        return {} if table is None else _sizes(table)

    def commit(self, state: State, change: Change) -> None:
        table = state.loaded if state.loaded is not None else self._created()
        now = int(time.time() * 1000)
        actions: list[AddAction | RemoveAction] = [
            RemoveAction(name, not change.rewritten, now, None, {}) for name in sorted(change.remove)
        ]
        actions += [
            AddAction(file.name, file.bytes, {}, now, not change.rewritten, file.statistics) for file in change.add
        ]
        fits = change.position <= LARGEST_VERSION
        recorded = CommitProperties(
            custom_metadata={**change.properties, POSITION: str(change.position)},
            max_commit_retries=0,
            app_transactions=[Transaction(APPLICATION, change.position)] if fits else None,
        )
        try:
            table.create_write_transaction(actions, mode="append", schema=table.schema(), commit_properties=recorded)
        except CommitFailedError as error:
            raise self._changed(error) from None
        except OSError as error:
            raise self._unavailable(error) from None

    def forget(self, kept: Sequence[Commit]) -> None:
        """Nothing: a Delta table keeps its history as long as its own settings say, with or without the files."""

    def _loaded(self, version: int | None) -> DeltaTable | None:
        try:
            return DeltaTable(self._at, version=version, storage_options=self._options)
        except TableNotFoundError:
            return None
        except OSError as error:
            raise self._unavailable(error) from None

    def _created(self) -> DeltaTable:
        """A new table; `TableChanged` if another process has created it meanwhile."""
        try:
            DeltaTable.create(
                self._at, nullable(self._schema), name=self._name, mode="error", storage_options=self._options
            )
        except DeltaError as error:
            raise self._changed(error) from None
        except OSError as error:
            raise self._unavailable(error) from None
        self._check_conditions()
        created = self._loaded(0)
        assert created is not None
        return created

    def _check_conditions(self) -> None:
        """Refuse an object store that ignores the condition of a put; for a table just created."""
        from ...storage.objects import Objects  # it needs obstore, which a table in a folder does not

        if not isinstance(self._storage, Objects):
            return
        first = f"{self._folder}/{FIRST_COMMIT}" if self._folder else FIRST_COMMIT
        if self._storage.overwrites(first):
            self._storage.delete(first)
            raise StoreError(
                f"{self._at}: this object store ignores the header If-None-Match, so two commits of a Delta table "
                "could overwrite each other; use a store that supports conditional writes, or a folder"
            )

    def _changed(self, error: Exception) -> TableChanged:
        return TableChanged(f"{self._at}: another process has changed the table ({error}); try again")

    def _unavailable(self, error: OSError) -> Exception:
        if self._options is None:
            return error
        return StoreUnavailable(f"{self._at}: {said(error)}")


def _options(storage: Storage) -> dict[str, str] | None:
    """What deltalake does not take from the environment of the process; None for a folder."""
    if storage.is_locked:
        return None
    from ...storage.objects import allows_http

    return {"allow_http": str(allows_http()).lower(), "aws_conditional_put": "etag"}


def _sizes(table: DeltaTable) -> dict[str, int]:
    """The sizes of the table's files, by name."""
    found = pa.table(table.get_add_actions()).select(["path", "size_bytes"]).to_pylist()
    return {PurePosixPath(row["path"]).name: row["size_bytes"] for row in found}
