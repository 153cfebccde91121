"""Connections as this engine needs them: settings, transactions, and SQLite's errors as ours.

All access to SQLite goes through apsw. Two SQLite libraries that have one file open in one process drop each other's
locks, so neither this package nor the user's program may open the file through another library.
"""

from __future__ import annotations

import errno
import os
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final

import apsw

from ...errors import FormatUnsupported, StoreCorrupt, StoreError, StoreUnavailable
from .forks import Connection
from .page_checksums import WHAT_TO_DO, check_pages, damage, is_damage, name_damage

# Statements that insert 1 to 64 rows stay prepared, besides the few dozen others.
STATEMENTS_KEPT: Final = 160

# For a connection that one thread at a time uses, with all of its cursors. Then SQLite needs no mutex, which it would
# lock for every column of every row: a fifth of the time of a scan.
ONE_THREAD_AT_A_TIME: Final = apsw.SQLITE_OPEN_NOMUTEX


class storage_errors:  # a class because a generator is slower, and every call uses it
    """Translates the errors of SQLite into errors of Fencepost. `connection` is asked which pages are damaged."""

    __slots__ = ("_path", "connection")

    def __init__(self, path: str, connection: apsw.Connection | None = None) -> None:
        self._path = path
        self.connection = connection

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, (apsw.Error, UnicodeDecodeError)):
            raise translated(error, self._path, self.connection) from error


def translated(
    error: apsw.Error | UnicodeDecodeError, path: str, connection: apsw.Connection | None = None
) -> StoreError:
    if is_damage(error):
        return damage(path, connection)
    message = f"{path}: {error}"
    if isinstance(error, UnicodeDecodeError):
        return StoreCorrupt(f"{path}: a stored text is not UTF-8: {error}; {WHAT_TO_DO}")
    if isinstance(error, apsw.FullError):
        return StoreUnavailable(f"{message}: the disk is full; nothing was written, make room and try again")
    if isinstance(error, (apsw.BusyError, apsw.LockedError)):
        return StoreUnavailable(f"{message}: another process holds the write lock; try again")
    if isinstance(error, apsw.CantOpenError) and no_file_left():
        return StoreUnavailable(f"{message}: this process has too many files open; close some or raise its limit")
    if isinstance(error, (apsw.CantOpenError, apsw.ReadOnlyError, apsw.PermissionsError)):
        return StoreUnavailable(f"{message}: may this user write to the file and its folder?")
    if isinstance(error, apsw.NotADBError):
        return FormatUnsupported(f"{path}: not an SQLite database, so not a Fencepost store")
    if isinstance(error, apsw.CorruptError):
        return StoreCorrupt(f"{message}; {WHAT_TO_DO}")
    return StoreError(message)


def no_file_left() -> bool:
    """Whether this process, or the machine, cannot open another file."""
    try:
        os.close(os.open(os.devnull, os.O_RDONLY))
    except OSError as error:
        return error.errno in (errno.EMFILE, errno.ENFILE)
    return False


def connect(path: str, *, timeout_s: float, cache_kib: int, vfs: str | None = None, flags: int = 0) -> Connection:
    """A configured connection for writing, to an existing file."""
    flags |= apsw.SQLITE_OPEN_READWRITE
    connection = Connection(path, flags=flags, vfs=vfs, statementcachesize=STATEMENTS_KEPT)
    try:
        configure(connection, timeout_s=timeout_s, cache_kib=cache_kib)
        run(connection, "PRAGMA synchronous = FULL")  # an acknowledged append survives a power loss
        with name_damage(path, connection):
            value(connection, "PRAGMA schema_version")  # reads the header, which says whether pages have checksums
        check_pages(connection, path)
    except BaseException:
        connection.close()
        raise
    return connection


def configure(connection: Connection, *, timeout_s: float, cache_kib: int) -> None:
    connection.set_busy_timeout(int(timeout_s * 1000))
    # The schema of a file from elsewhere must not run functions or corrupt the database.
    connection.config(apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0)
    connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
    # Plans must not depend on bound values: SQLite would prepare the statement again for each value, which takes
    # longer than running it.
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
    run(connection, f"PRAGMA cache_size = -{cache_kib}")
    run(connection, "PRAGMA temp_store = MEMORY")


def run(connection: apsw.Connection, sql: str, bindings: Any = None) -> list[Any]:
    """Execute to the end: apsw steps a statement only as far as its rows are taken."""
    return connection.execute(sql, bindings).fetchall()


def value(connection: apsw.Connection, sql: str, bindings: Any = None) -> Any:
    """The first column of the first row, None without one."""
    return connection.execute(sql, bindings).get


class transaction:
    """Commits what is done in the block, or rolls all of it back.

    A class rather than a generator: an interrupt can leave a generator suspended, and it would roll back a later
    transaction when it is garbage-collected.
    """

    def __init__(self, connection: apsw.Connection, begin: str = "BEGIN IMMEDIATE") -> None:
        self._connection = connection
        self._begin = begin

    def __enter__(self) -> None:
        try:
            run(self._connection, self._begin)
        except BaseException:  # an interrupt while BEGIN waits for the lock is raised after it has begun
            roll_back(self._connection)
            raise

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        try:
            if kind is None:
                run(self._connection, "COMMIT")
        finally:
            roll_back(self._connection)


def roll_back(connection: apsw.Connection) -> None:
    """Roll back the open transaction, if any."""
    if connection.in_transaction:
        run(connection, "ROLLBACK")


def snapshot(connection: apsw.Connection) -> AbstractContextManager[None]:
    """A read transaction for several reads of one state; uses the open transaction, if any."""
    return nullcontext() if connection.in_transaction else transaction(connection, "BEGIN")
