"""What lakes and views ask of a table format: which files a commit has, and one commit that adds and removes files.

Each commit has properties, among them the position up to which the table then covers the log. So a table can be read
as it was at a position, and a commit that is repeated is recognised by its position.

A commit follows on the state of the table that the caller has read. It fails if the table has another state by then, so
of two processes that read the same state only one commits, with or without a lock (tests/spark/test_formats.py).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import msgspec
import pyarrow as pa

from ...errors import InvalidInput, StoreUnavailable
from ...redaction import scrubbed

POSITION: Final = "fencepost.position"  # the property of a commit that holds the position
_IDENTIFIER: Final = re.compile(r"\w+(?:\.\w+)+", re.ASCII)


class TableChanged(StoreUnavailable):
    """Another process has changed the table since its state was read. Nothing was committed; trying again helps."""


@dataclass(frozen=True)
class DataFile:
    """A Parquet file that was written for the table."""

    name: str  # in the folder of the table's files
    rows: int
    bytes: int
    first: int | None = None  # the smallest position in the file, if it is sorted by position
    last: int | None = None

    @property
    def statistics(self) -> str:
        """The statistics by which a reader of a Delta table can skip the file."""
        found: dict[str, object] = {"numRecords": self.rows}
        if self.first is not None:
            found |= {"minValues": {"position": self.first}, "maxValues": {"position": self.last}}
            found["nullCount"] = {"position": 0}
        return msgspec.json.encode(found).decode()


@dataclass(frozen=True)
class Commit:
    """A commit of this package: `version` is the version of the Delta table or the id of the Iceberg snapshot."""

    version: int
    properties: Mapping[str, str]

    @property
    def position(self) -> int:
        return int(self.properties[POSITION])


@dataclass(frozen=True)
class Change:
    """What a commit does to a table, which then covers the log up to `position`."""

    add: Sequence[DataFile]
    remove: Collection[str]  # by name
    position: int
    properties: Mapping[str, str]
    rewritten: bool = False  # whether the rows stay the same


@dataclass(frozen=True)
class State:
    """A table as a process has read it, which its next commit follows on."""

    commits: tuple[Commit, ...] = ()  # of this package, oldest first
    files: frozenset[str] = frozenset()  # by name
    loaded: Any = None  # the table of the format's library; None if there is no table yet


@dataclass(frozen=True)
class CatalogName:
    """A catalog of pyiceberg's configuration, and the table in it, such as `sales.wallet`, if the user names one."""

    name: str
    table: str | None = None
    field: str = "catalog"  # the parameter that names the catalog

    @classmethod
    def of(cls, name: str | None, table: str | None, *, fields: tuple[str, str]) -> CatalogName | None:
        """The catalog that a user has named; `fields` are the names of the two parameters."""
        if name is None:
            if table is not None:
                raise InvalidInput(fields[1], f"it names a table of a catalog, and {fields[0]} is missing")
            return None
        if not isinstance(name, str) or not name:
            raise InvalidInput(fields[0], f"the name of a catalog is needed, not {name!r:.80}")
        if table is not None and (not isinstance(table, str) or not _IDENTIFIER.fullmatch(table)):
            raise InvalidInput(fields[1], f"NAMESPACE.TABLE of letters, digits and _ is needed, not {table!r:.80}")
        return cls(name, table, fields[0])


class FileTable(Protocol):
    """A table of Parquet files, which are all in one folder. The table knows a file by its name in that folder."""

    def state(self) -> State:
        """The table as it is now."""

    def files(self, version: int) -> dict[str, int]:
        """The files of the table at a version, with their sizes in bytes."""

    def commit(self, state: State, change: Change) -> None:
        """Add and remove files in one commit, which creates the table if the state has none.

        Raises `TableChanged` if the table is in another state by now.
        """

    def forget(self, kept: Sequence[Commit]) -> None:
        """Drop the other commits from the table's history, if the format needs that before their files are deleted."""


def commit_at(commits: Sequence[Commit], position: int) -> Commit:
    """The commit with the smallest position that is not below this one. Of several with that position, the newest."""
    covering = [commit for commit in commits if commit.position >= position]
    if not covering:
        covered = commits[-1].position if commits else 0
        raise InvalidInput("position", f"{position} is above the table's position, {covered}")
    return min(reversed(covering), key=lambda commit: commit.position)


def nullable(schema: pa.Schema) -> pa.Schema:
    """The schema with nullable columns: a table with those accepts files whose columns are not."""
    return pa.schema([field.with_nullable(True) for field in schema])


def said(error: Exception) -> str:
    """The first line of an error, without the secrets of addresses in it."""
    return scrubbed(str(error).partition("\n")[0])
