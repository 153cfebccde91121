"""Opening a Fencepost file: connections, the format's version, and errors in our own words.

All of SQLite goes through apsw. Two SQLite libraries on one file in one process would drop each
other's locks, so nothing else in this package, and nothing in the user's process, may open it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from importlib.resources import files
from time import monotonic, sleep
from typing import Any, Final

import apsw

from ...errors import FormatUnsupported, StoreClosed, StoreCorrupt, StoreError, StoreUnavailable

APPLICATION: Final = 0x46504F53  # "FPOS"
FORMAT: Final = 1

USE_WAL: Final = "PRAGMA journal_mode = WAL"

# Statements that insert 1 to 64 rows stay prepared, besides the few dozen others.
STATEMENTS_KEPT: Final = 160


class storage_errors:  # used as a function, and a class because it is on every path
    """What SQLite raises, as what we raise. A storage error is never a refusal."""

    __slots__ = ("_path",)

    def __init__(self, path: str) -> None:
        self._path = path

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, apsw.Error):
            raise _translated(error, self._path) from error


def _translated(error: apsw.Error, path: str) -> StoreError:
    message = f"{path}: {error}"
    if isinstance(error, apsw.FullError):
        return StoreUnavailable(f"{message}: the disk is full; nothing was written, make room and try again")
    if isinstance(error, (apsw.BusyError, apsw.LockedError)):
        return StoreUnavailable(f"{message}: another process holds the write lock; try again")
    if isinstance(error, (apsw.CantOpenError, apsw.ReadOnlyError, apsw.PermissionsError)):
        return StoreUnavailable(f"{message}: is the folder there, and may this user write to it?")
    if isinstance(error, apsw.NotADBError):
        return FormatUnsupported(f"{message}: this is no Fencepost store")
    if isinstance(error, apsw.CorruptError):
        return StoreCorrupt(f"{message}: run `fencepost verify`, restore from a backup if it agrees")
    return StoreError(message)


def connect(path: str, *, timeout_s: float, cache_kib: int, vfs: str | None = None) -> apsw.Connection:
    """A connection as this engine needs it, to a file that is there."""
    flags = apsw.SQLITE_OPEN_READWRITE
    connection = apsw.Connection(path, flags=flags, vfs=vfs, statementcachesize=STATEMENTS_KEPT)
    connection.set_busy_timeout(int(timeout_s * 1000))
    # Nothing in the file may run code of its own, and nothing is trusted that it does not need.
    connection.config(apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0)
    connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
    # A plan must not depend on the values that are bound: SQLite would make it anew for each of them,
    # which takes longer than what we ask.
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
    run(connection, "PRAGMA synchronous = FULL")  # an acknowledged append survives a power loss
    run(connection, f"PRAGMA cache_size = -{cache_kib}")
    run(connection, "PRAGMA temp_store = MEMORY")
    return connection


def run(connection: apsw.Connection, sql: str, bindings: Any = None) -> list[Any]:
    """Execute to the end: apsw steps a statement only as far as its rows are taken."""
    return connection.execute(sql, bindings).fetchall()


def value(connection: apsw.Connection, sql: str, bindings: Any = None) -> Any:
    """The first column of the first row, None without one."""
    return connection.execute(sql, bindings).get


class transaction:
    """Commits what is done in the block, or rolls all of it back.

    A class rather than a generator: a generator that an interrupt has left suspended would roll back whatever is
    under way when it is collected at last.
    """

    def __init__(self, connection: apsw.Connection, begin: str = "BEGIN IMMEDIATE") -> None:
        self._connection = connection
        self._begin = begin

    def __enter__(self) -> None:
        try:
            run(self._connection, self._begin)
        except BaseException:  # an interrupt that came while it waited for the lock is raised when it has begun
            roll_back(self._connection)
            raise

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        try:
            if kind is None:
                run(self._connection, "COMMIT")
        finally:
            roll_back(self._connection)


def roll_back(connection: apsw.Connection) -> None:
    """What has not been committed, if there is a transaction."""
    if connection.in_transaction:
        run(connection, "ROLLBACK")


def snapshot(connection: apsw.Connection) -> AbstractContextManager[None]:
    """Several reads of one state of the file, within a transaction that may have begun already."""
    return nullcontext() if connection.in_transaction else transaction(connection, "BEGIN")


def prepare_file(path: str, *, create: bool, timeout_s: float, vfs: str | None = None) -> None:
    """Make the file if it may be made; refuse it unless it is ours and we know its format."""
    if not create and not os.path.exists(path):
        raise StoreUnavailable(f"{path}: there is no such store")
    flags = apsw.SQLITE_OPEN_READWRITE | (apsw.SQLITE_OPEN_CREATE if create else 0)
    connection = apsw.Connection(path, flags=flags, vfs=vfs)
    try:
        connection.set_busy_timeout(int(timeout_s * 1000))
        with snapshot(connection):  # or another process could make the store between the two questions
            ours = _is_ours(connection, path)
            theirs = not ours and value(connection, "SELECT count(*) FROM sqlite_schema") > 0
        if theirs:
            raise FormatUnsupported(f"{path}: this is an SQLite file, but no Fencepost store")
        if ours:
            if value(connection, "PRAGMA journal_mode") != "wal":  # a backup is one file, until it is opened
                _when_free(lambda: run(connection, USE_WAL), timeout_s)
            # A process that was killed between its write and its sync leaves a transaction that this first
            # read has just recovered. Checkpointing syncs the write-ahead log: nobody may see what a power
            # loss could still take back.
            _when_free(lambda: connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE), timeout_s)
        else:
            _when_free(lambda: run(connection, USE_WAL), timeout_s)
            with transaction(connection):
                if not _is_ours(connection, path):  # another process may have been first
                    run(connection, files(__package__).joinpath("schema.sql").read_text())
                    run(connection, f"PRAGMA application_id = {APPLICATION}")
                    run(connection, f"PRAGMA user_version = {FORMAT}")
    finally:
        # If nobody else has the file open, this also copies the log into it. After a crash that matters: the
        # log may hold an append whose sync failed, readable until the power goes, and nothing may be
        # built on that before it has been written once more.
        connection.close()


def _is_ours(connection: apsw.Connection, path: str) -> bool:
    if value(connection, "PRAGMA application_id") != APPLICATION:
        return False
    version = value(connection, "PRAGMA user_version")
    if version > FORMAT:
        raise FormatUnsupported(
            f"{path}: written in format {version}; this version of Fencepost reads up to {FORMAT}: upgrade Fencepost"
        )
    return True


def _when_free(action: Callable[[], object], timeout_s: float) -> None:
    """For what SQLite does not wait for a lock: changing the journal's mode, and checkpointing."""
    deadline = monotonic() + timeout_s
    while True:
        try:
            action()
            return
        except apsw.BusyError:
            if monotonic() > deadline:
                raise
            sleep(0.005)


class Readers:
    """Connections for reading: as many as there are concurrent readers, kept for the next one."""

    def __init__(self, path: str, *, timeout_s: float, vfs: str | None = None) -> None:
        self.path = path
        self._timeout_s = timeout_s
        self._vfs = vfs
        self._lock = threading.Lock()
        self._idle: list[apsw.Connection] = []
        self._closed = False

    def lend(self) -> Lent:
        """A connection for the length of a `with`, whose errors are ours."""
        return Lent(self)

    def take(self) -> apsw.Connection:
        try:
            return self._idle.pop()
        except IndexError:
            if self._closed:
                raise StoreClosed("the store is closed") from None
            connection = connect(self.path, timeout_s=self._timeout_s, cache_kib=16_384, vfs=self._vfs)
            # The last connection to close copies the log into the file, which is the writer's decision.
            connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
            return connection

    def give_back(self, connection: apsw.Connection) -> None:
        with self._lock:
            if (
                self._closed or connection.in_transaction
            ):  # which an interrupt has left open, and would stay in the past
                connection.close()
            else:
                self._idle.append(connection)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()


class Lent:
    """A connection on loan: a class rather than a generator, because every read takes two."""

    __slots__ = ("_connection", "_readers")

    def __init__(self, readers: Readers) -> None:
        self._readers = readers

    def __enter__(self) -> apsw.Connection:
        with storage_errors(self._readers.path):
            self._connection = self._readers.take()
        return self._connection

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        self._readers.give_back(self._connection)
        if isinstance(error, apsw.Error):
            raise _translated(error, self._readers.path) from error
