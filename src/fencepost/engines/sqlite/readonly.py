"""Reading a file that must not, or cannot, be written.

A file with a write-ahead log is read with SQLite's own locks, like any other; SQLite needs no permission to write
for that, as long as the log's index, `-shm`, is there or can be made. A file without a log, or with an empty one, is
opened as *immutable*: SQLite then takes no locks, makes no files, and trusts that no process writes. This module does
not trust that. It compares the state of the file before and after every use of such a connection. A writer has to
fill the log before it may change the file, and every change shows in the file's modification time.
tests/sqlite/test_readonly.py checks this.
"""

from __future__ import annotations

import os
from time import time_ns
from typing import Final, NamedTuple
from urllib.parse import quote

import apsw

from ...core.interrupts import pause
from ...errors import StoreError, StoreReadOnly, StoreUnavailable
from .connections import ONE_THREAD_AT_A_TIME, configure, no_file_left, run, translated
from .files import check_format, empty, look_at, size_of
from .forks import Connection, Identity
from .page_checksums import check_pages, name_damage

READ_BY_URI: Final = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
CACHE_KIB: Final = 65_536

TRIES: Final = 5  # a writer may come or go between looking at a file and opening it

# Two changes within one tick of the clock have the same time. The kernel's tick is at most 10 ms; some file systems
# count in whole seconds, FAT in two of them.
TICK_NS: Final = 20_000_000
COARSE_TICK_NS: Final = 2_100_000_000

SHARED_MEMORY: Final = {
    apsw.SQLITE_IOERR_SHMOPEN,
    apsw.SQLITE_IOERR_SHMSIZE,
    apsw.SQLITE_IOERR_SHMMAP,
    apsw.SQLITE_IOERR_SHMLOCK,
}


class State(NamedTuple):
    """The state of a file as seen without opening it."""

    identity: Identity
    size: int
    modified_ns: int
    journal_bytes: int
    log_bytes: int

    @property
    def at_rest(self) -> bool:
        """Whether everything is in the file itself."""
        return not self.log_bytes and not self.journal_bytes

    @property
    def may_hide_a_change(self) -> bool:
        """Whether the file could be changed right now without a change of its modification time."""
        tick_ns = TICK_NS if self.modified_ns % 1_000_000_000 else COARSE_TICK_NS
        return 0 <= time_ns() - self.modified_ns < tick_ns


class FileChanged(StoreUnavailable):
    """Another process began to write to a file that was read without locks."""


class ImmutableConnection(Connection):
    """A connection that takes no locks, with the state of the file when it was opened."""

    state: State

    def is_current(self) -> bool:
        """Whether the file is as it was, and no process has begun to write."""
        return state_of(self.path) == self.state

    def check(self) -> None:
        """Raise StoreUnavailable if the file has changed. A log that has begun to grow has not changed the file yet."""
        if state_of(self.path)[:-1] != self.state[:-1]:
            raise self.changed()

    def changed(self) -> FileChanged:
        return FileChanged(f"{self.path}: another process began to write while the file was read; read again")


def state_of(path: str) -> State:
    try:
        status = os.stat(path)
        name = os.path.realpath(path)  # SQLite puts the log beside the file, wherever a link to it may be
        return State(
            (status.st_dev, status.st_ino),
            status.st_size,
            status.st_mtime_ns,
            size_of(f"{name}-journal"),
            size_of(f"{name}-wal"),
        )
    except OSError as error:
        raise StoreUnavailable(f"{path}: {error.strerror}") from error


def connect_to_read(path: str, *, timeout_s: float, cache_kib: int, vfs: str | None = None) -> Connection:
    """A connection that cannot write, to an existing store."""
    look_at(path, create=False)
    for attempt in range(1, TRIES + 1):
        state = state_of(path)
        try:
            while state.at_rest and state.may_hide_a_change:
                pause(TICK_NS / 1e9 / 4)
                state = state_of(path)
            if not state.at_rest:  # perhaps only since the pause
                return _open_with_log(path, timeout_s, cache_kib, vfs)
            immutable = _open(ImmutableConnection, path, "immutable=1", timeout_s, cache_kib, vfs)
            assert isinstance(immutable, ImmutableConnection)
            immutable.state = state
            if immutable.is_current():
                return immutable
            immutable.close()
        except apsw.CantOpenError as error:
            if no_file_left():
                raise
            if attempt == TRIES:
                raise StoreUnavailable(
                    f"{path}: its write-ahead log, {path}-wal, holds events, and cannot be read without creating a "
                    "file beside it: let this user write to the folder, or copy both files to a folder of your own"
                ) from error
    raise StoreUnavailable(f"{path}: other processes open and close the file again and again; try again")


def connect_unchanged(path: str, *, read_only: bool, timeout_s: float) -> Connection:
    """A connection that leaves the file as it is: it does not copy the write-ahead log into it."""
    if read_only:
        return connect_to_read(path, timeout_s=timeout_s, cache_kib=CACHE_KIB)
    has_log = size_of(f"{path}-wal") > 0
    connection = Connection(path, flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        if connection.readonly("main") and not has_log:
            # Reading would leave a log that belongs to this user, and that the writer perhaps could not write.
            raise apsw.ReadOnlyError("the file cannot be written")
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, int(has_log))
        configure(connection, timeout_s=timeout_s, cache_kib=CACHE_KIB)
        run(connection, "PRAGMA schema_version")
        return connection
    except (apsw.CantOpenError, apsw.ReadOnlyError):
        connection.close()
        if has_log:
            raise
    except BaseException:
        connection.close()
        raise
    # There is no write-ahead log, and none can be created: all of the store is in the file.
    connection = ImmutableConnection(path, uri=_uri(path, "immutable=1"), flags=READ_BY_URI)
    configure(connection, timeout_s=timeout_s, cache_kib=CACHE_KIB)
    return connection


def cannot_write(error: apsw.Error) -> bool:
    """Whether the error means that the file cannot be written now, although it may be readable."""
    if isinstance(error, apsw.CantOpenError) and no_file_left():
        return False
    if isinstance(error, apsw.IOError):
        return error.extendedresult in SHARED_MEMORY  # type: ignore[attr-defined]
    return isinstance(error, (apsw.ReadOnlyError, apsw.PermissionsError, apsw.CantOpenError, apsw.FullError))


def refusal(path: str, error: apsw.Error) -> StoreError:
    """The error for an append when the file cannot be written."""
    if isinstance(error, apsw.IOError):
        return StoreUnavailable(
            f"{path}: {error}: the log's index, {path}-shm, cannot be created; nothing was written. "
            "If the disk is full, make room and try again"
        )
    if isinstance(error, apsw.FullError):
        return translated(error, path)
    return StoreReadOnly(
        f"{path}: the store can be read but not written ({error}): "
        "let this user write to the file and its folder, or append where the store is not read-only"
    )


def _open_with_log(path: str, timeout_s: float, cache_kib: int, vfs: str | None) -> Connection:
    try:
        return _open(Connection, path, "mode=ro", timeout_s, cache_kib, vfs)
    except (apsw.FullError, apsw.IOError) as error:
        if not cannot_write(error):
            raise
        # On a full disk there is no room for the log's index: then SQLite keeps one in memory.
        return _open(Connection, path, "mode=ro&readonly_shm=1", timeout_s, cache_kib, vfs)


def _uri(path: str, how: str) -> str:
    return f"file:{quote(os.path.abspath(path))}?{how}"


def _open(kind: type[Connection], path: str, how: str, timeout_s: float, cache_kib: int, vfs: str | None) -> Connection:
    connection = kind(path, uri=_uri(path, how), flags=READ_BY_URI | ONE_THREAD_AT_A_TIME, vfs=vfs)
    try:
        configure(connection, timeout_s=timeout_s, cache_kib=cache_kib)
        with name_damage(path, connection):
            if not check_format(connection, path):  # this reads, so it shows whether the log can be read
                raise empty(path)
        check_pages(connection, path)
    except BaseException:
        connection.close()
        raise
    return connection
