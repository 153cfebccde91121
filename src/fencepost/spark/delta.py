"""A Delta table whose Parquet files we write: what it holds, commits to it, and its files.

A folder and a prefix of an object store are used in the same way, through `deltalake`. A commit adds and removes files
and carries the position of the log up to which the table then goes. It fails if the table has changed since it was
read, so of two processes that work on one version only one commits; the other begins again. No lock is needed: a commit
is a file that must not exist yet, which file systems and object stores decide; an object store must support the header
If-None-Match for that, as S3, Google Cloud Storage and Azure do.

A file is complete, durable and under its final name before a commit lists it, and never changes. What a killed process
leaves is a file that no version lists; `unused` finds it an hour later. Credentials and the endpoint of an object store
come from the environment of each process. tests/spark/test_delta.py checks this, on folders and on a mock of S3.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from secrets import token_hex
from tempfile import TemporaryDirectory
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

import msgspec
import pyarrow as pa
import pyarrow.fs as pa_fs
import pyarrow.parquet as pq

from ..engine import pause, scrubbed, sync
from ..errors import AccessDenied, FencepostError, InvalidInput, StoreCorrupt, StoreUnavailable
from .location import object_url

try:
    from deltalake import DeltaTable
    from deltalake._internal import DeltaFileSystemHandler
    from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
    from deltalake.fs import DeltaStorageHandler
    from deltalake.transaction import AddAction, CommitProperties, RemoveAction
except ImportError as error:
    raise ImportError(f"{error}; lakes and views are Delta tables: pip install 'fencepost[lake]'") from error

POSITION: Final = "fencepost.position"  # the property of a commit that holds the position
DIGEST: Final = "fencepost.digest"  # of the event at that position, by which the log is recognised
NUMBER: Final = "fencepost.version"  # of the table's version that the commit makes
COMMIT: Final = "fencepost.commit"  # random, so that a process recognises its own commit after a lost answer
ENDPOINTS: Final = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
LEFT_HOURS: Final = 1  # until a file that no version lists counts as left by a killed process
PART_BYTES: Final = 16_777_216  # of a file that is uploaded
BATCH_ROWS: Final = 16_384
BATCH_BYTES: Final = 16_777_216  # of a batch, if its rows are of average size for their row group
LOOKED_BACK: Final = 16  # commits of other programs, such as a vacuum, that may follow on the newest one of ours
PATIENCE_S: Final = 60.0
PAUSE_S: Final = 0.25
_DENIED: Final = ("forbidden", "accessdenied", "unauthorized", "unauthenticated", "permission")

Result = TypeVar("Result")


class TableChanged(StoreUnavailable):
    """Another process has changed the table since it was read. Nothing was committed; trying again helps."""


class DataFile(msgspec.Struct, frozen=True, kw_only=True):
    """A Parquet file of the table."""

    path: str  # relative to the table
    rows: int
    bytes: int

    @property
    def statistics(self) -> str:
        """The number of rows and nothing else.

        With the smallest and largest value of some columns, deltalake's pyarrow dataset finds no row for a filter on
        the others, or on a column that is null everywhere. tests/spark/test_lake.py checks this.
        """
        return msgspec.json.encode({"numRecords": self.rows}).decode()


@dataclass(frozen=True)
class Version:
    """A commit of ours: the number of the table's version, and the properties of the commit."""

    number: int
    properties: Mapping[str, str]

    @property
    def position(self) -> int:
        return int(self.properties[POSITION])

    @property
    def digest(self) -> str:
        return self.properties[DIGEST]


@dataclass(frozen=True)
class State:
    """The table as a process has read it, which its next commit follows on."""

    number: int
    files: dict[str, DataFile]  # by path
    loaded: Any = field(repr=False, compare=False)  # the table of deltalake

    def versions(self, limit: int | None = None) -> list[Version]:
        """The commits of ours, newest first: `limit` of all commits, or as many as the table's log still has."""
        # The history may already have commits that were made after the table was loaded, and deltalake then numbers
        # all of them wrongly. So our commits have their number as a property.
        found = [
            Version(int(entry[NUMBER]), {name: str(value) for name, value in entry.items() if "." in name})
            for entry in self.loaded.history(limit)
            if NUMBER in entry
        ]
        return [version for version in found if version.number <= self.number]

    @cached_property
    def newest(self) -> Version:
        found = self.versions(LOOKED_BACK) or self.versions()
        if not found:
            raise StoreCorrupt("the table has no commit of Fencepost")
        return found[0]


@dataclass(frozen=True)
class Change:
    """What a commit does to a table, which then covers the log up to `position`."""

    add: Sequence[DataFile]
    remove: Collection[str]  # by path
    position: int
    digest: str
    properties: Mapping[str, str] = field(default_factory=dict)
    rewritten: bool = False  # whether the rows stay the same
    schema: pa.Schema | None = None  # replaces the columns and all files


@dataclass(frozen=True)
class FileTable:
    """The Delta table at a location: an absolute path, or the URL of a prefix in an object store. Can be pickled."""

    location: str
    argument: str = "folder"  # that callers name the table by
    repair: str = "run `fencepost lake verify`"  # what to do about a damaged file

    @property
    def is_local(self) -> bool:
        return object_url(self.location, self.argument) is None

    def name(self, path: str) -> str:
        """A file of the table as a user names it."""
        return f"{self.location}/{path}"

    def state(self, number: int | None = None) -> State | None:
        """The table as it is now, or was at a version; None if there is no table."""
        try:
            with self._reporting():
                table = DeltaTable(self.location, version=number, storage_options=self._options)
                found = pa.table(table.get_add_actions(flatten=True)).to_pylist()
        except TableNotFoundError:
            return None
        files = [DataFile(path=row["path"], rows=row["num_records"] or 0, bytes=row["size_bytes"]) for row in found]
        return State(table.version(), {file.path: file for file in files}, table)

    def create(self, schema: pa.Schema, name: str, properties: Mapping[str, str]) -> State:
        """A new table without files at position 0; `TableChanged` if another process has created it meanwhile.

        Its columns are nullable: a table with those accepts files whose columns are not.
        """
        columns = pa.schema([field.with_nullable(True) for field in schema])
        recorded = self._recorded(Change([], (), 0, "", properties), 0, token_hex(16))
        with self._reporting():
            try:
                DeltaTable.create(
                    self.location,
                    columns,
                    name=name,
                    mode="error",
                    storage_options=self._options,
                    commit_properties=recorded,
                )
            except DeltaError as error:
                if isinstance(error, CommitFailedError) or "already exists" in str(error):
                    raise self._changed(error) from None
                raise
        self._sync(0)
        created = self.state()
        assert created is not None
        return created

    def commit(self, state: State, change: Change) -> State:
        """Add and remove files in one commit; raises `TableChanged` if the table is in another state by now."""
        now = int(time.time() * 1000)
        actions: list[AddAction | RemoveAction] = []
        if change.schema is None:
            actions += [RemoveAction(path, not change.rewritten, now, None, {}) for path in sorted(change.remove)]
        actions += [
            AddAction(file.path, file.bytes, {}, now, not change.rewritten, file.statistics) for file in change.add
        ]
        token = token_hex(16)
        recorded = self._recorded(change, state.number + 1, token)
        schema = state.loaded.schema() if change.schema is None else change.schema
        try:
            with self._reporting():
                state.loaded.create_write_transaction(
                    actions,
                    mode="append" if change.schema is None else "overwrite",
                    schema=schema,
                    commit_properties=recorded,
                )
        except CommitFailedError as error:
            found = self.state()
            if found is None or not any(version.properties[COMMIT] == token for version in found.versions(LOOKED_BACK)):
                raise self._changed(error) from None
        self._sync(state.number + 1)
        committed = self.state()
        assert committed is not None
        return committed

    def unused(self, state: State, *, retain_hours: int, keep: Collection[int] = ()) -> list[str]:
        """Files to delete: removed from the table that long ago, or left by a process that was killed.

        Files of the versions in `keep` stay. A file that no version lists may belong to a process that is about to
        commit it, so it stays for an hour.
        """

        def listed(hours: int, *, full: bool = False) -> set[str]:
            options = {"dry_run": True, "enforce_retention_duration": False}
            return set(state.loaded.vacuum(hours, full=full, keep_versions=list(keep), **options))

        with self._reporting():
            left = listed(LEFT_HOURS, full=True) - listed(LEFT_HOURS)
            return sorted(listed(retain_hours) | left)

    @contextmanager
    def draft(self, folder: str) -> Iterator[Path]:
        """Yield the path of a file to write, which `put` then makes a file of the table."""
        inside = None
        if self.is_local:
            inside = Path(self.location, folder)
            inside.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=".draft-", dir=inside) as made:
            yield Path(made, "draft.parquet")

    def put(self, draft: Path, path: str) -> None:
        """Make the draft a file of the table, under a name that no other process uses, durably."""
        if self.is_local:
            target = Path(self.location, path)
            sync(draft)
            os.rename(draft, target)
            sync(target.parent)
            return
        # pyarrow's file over this stream hands it buffers, and it takes bytes.
        with self._reporting(), draft.open("rb") as content:
            upload: Any = DeltaFileSystemHandler(self.location, self._options).open_output_stream(path)
            while part := content.read(PART_BYTES):
                upload.write(part)
            upload.close()

    @contextmanager
    def source(self, path: str) -> Iterator[Any]:
        """What pyarrow reads the file from; FileNotFoundError if there is none."""
        if self.is_local:
            with pa.OSFile(self.name(path), "rb") as file:
                yield file
            return
        with self._reporting(), self._files.open_input_file(path) as file:
            yield file

    def batches(
        self,
        path: str,
        columns: Sequence[str],
        may_hold: Callable[[pq.RowGroupMetaData], bool] = lambda group: True,
    ) -> Iterator[pa.RecordBatch]:
        """The batches of a file's chosen row groups; raises `StoreCorrupt` for a wrong checksum or missing rows.

        A page's header has no checksum, and the reader skips a page that claims to be of another kind: hence the count
        of rows.
        """
        try:
            # In an object store each read is a request, so the pages of a row group are read together.
            with (
                self.source(path) as source,
                pq.ParquetFile(source, page_checksum_verification=True, pre_buffer=not self.is_local) as parquet,
            ):
                missing = 0
                for number in range(parquet.num_row_groups):
                    group = parquet.metadata.row_group(number)
                    if not may_hold(group):
                        continue
                    missing += group.num_rows
                    rows = max(1, min(BATCH_ROWS, BATCH_BYTES * group.num_rows // max(group.total_byte_size, 1)))
                    for batch in parquet.iter_batches(rows, row_groups=[number], columns=list(columns)):
                        batch.validate(full=True)
                        missing -= batch.num_rows
                        yield batch
                if missing:
                    raise pa.ArrowInvalid(f"{missing} rows fewer than its own footer says")
        except (OSError, pa.ArrowException) as error:
            reason = getattr(error, "strerror", None) or error
            raise StoreCorrupt(f"{self.name(path)}: {reason}; {self.repair}") from None

    def listed(self, folder: str) -> list[str]:
        """The paths of all files in a folder of the table."""
        with self._reporting():
            found = self._files.get_file_info(pa_fs.FileSelector(folder, allow_not_found=True, recursive=True))
        return sorted(info.path for info in found if info.type == pa_fs.FileType.File)

    def delete(self, paths: Collection[str]) -> None:
        """Delete the files. Missing ones are ignored."""
        for path in paths:
            with suppress(FileNotFoundError), self._reporting():
                self._files.delete_file(path)
            if "/.draft-" in path and self.is_local:
                with suppress(OSError):
                    Path(self.location, path).parent.rmdir()

    @cached_property
    def _options(self) -> dict[str, str] | None:
        """What deltalake does not take from the environment of the process; None for a folder."""
        if self.is_local:
            return None
        # Clients refuse an endpoint without encryption unless they are told that the user has chosen one.
        plain = any(urlsplit(os.environ.get(name, "")).scheme == "http" for name in ENDPOINTS)
        return {"allow_http": str(plain).lower(), "aws_conditional_put": "etag"}

    @cached_property
    def _files(self) -> pa_fs.FileSystem:
        if self.is_local:
            return pa_fs.SubTreeFileSystem(self.location, pa_fs.LocalFileSystem())
        return pa_fs.PyFileSystem(DeltaStorageHandler(self.location, self._options))

    def __reduce__(self) -> tuple[type[FileTable], tuple[str, str, str]]:
        return FileTable, (self.location, self.argument, self.repair)  # without the client, which holds credentials

    def _recorded(self, change: Change, number: int, token: str) -> CommitProperties:
        properties = {POSITION: str(change.position), DIGEST: change.digest, NUMBER: str(number), COMMIT: token}
        return CommitProperties(custom_metadata={**change.properties, **properties}, max_commit_retries=0)

    def _sync(self, number: int) -> None:
        """Make the commit durable: deltalake writes it to a file system and does not sync it."""
        if self.is_local:
            log = Path(self.location, "_delta_log")
            sync(log / f"{number:020d}.json")
            sync(log)

    def _changed(self, error: Exception) -> TableChanged:
        return TableChanged(f"{self.location}: another process has changed this table ({first_line(error)}); try again")

    @contextmanager
    def _reporting(self) -> Iterator[None]:
        """Turn errors of deltalake into ours, but for those that callers of this module handle."""
        try:
            yield
        except (FencepostError, FileNotFoundError, TableNotFoundError, CommitFailedError):
            raise
        except (OSError, DeltaError, ValueError) as error:
            said = first_line(error)
            if isinstance(error, OSError) and self.is_local:
                raise
            if isinstance(error, ValueError):
                raise InvalidInput(self.argument, f"{self.location}: {said}") from None
            if isinstance(error, OSError) or "object store" in said.lower():
                denied = any(word in str(error).lower() for word in _DENIED)
                raise (AccessDenied if denied else StoreUnavailable)(f"{self.location}: {said}") from None
            raise StoreCorrupt(f"{self.location}: its Delta log cannot be read: {said}") from None


def changing(work: Callable[[], Result], patience_s: float) -> Result:
    """Run `work`, and run it again if another process has changed the table meanwhile, for `patience_s` seconds."""
    end: float | None = None
    while True:
        try:
            return work()
        except TableChanged:
            end = time.monotonic() + patience_s if end is None else end
            if time.monotonic() >= end:
                raise
        pause(PAUSE_S)


def first_line(error: Exception) -> str:
    """The first line of an error: what follows may quote requests, and with them credentials."""
    if isinstance(error, OSError) and error.errno == errno.ENOENT and error.strerror:
        return error.strerror
    return scrubbed(str(error).partition("\n")[0].partition("<")[0].strip(" :-"))
