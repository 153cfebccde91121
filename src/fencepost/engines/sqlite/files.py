"""The store's file: what is refused, how a new file is made, and the number of the format.

A file of another format is refused. tests/sqlite/test_format.py checks this.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from importlib.resources import files
from time import monotonic
from typing import Final

import apsw

from ...core.interrupts import pause
from ...errors import FormatUnsupported, InvalidInput, StoreCorrupt, StoreUnavailable
from . import sizes
from .connections import run, snapshot, transaction, value
from .forks import Connection
from .page_checksums import check_pages, checks_pages, name_damage, reserve_bytes

APPLICATION: Final = 0x46504F53  # "FPOS"
FORMAT: Final = 3

USE_WAL: Final = "PRAGMA journal_mode = WAL"


def resolved(path: str) -> str:
    """The path from the root, without links, so that it means the same file whatever directory the process is in."""
    try:
        return os.path.realpath(path)
    except ValueError as error:  # a NUL in the name
        raise InvalidInput("address", f"{path!r} is not a path: {error}") from None


def look_at(path: str, *, create: bool) -> None:
    """Raise an error if the path cannot be a store. Without `create`, an empty file is an error too.

    Uses `stat`, because opening and closing the file would drop SQLite's locks on it.
    """
    try:
        found = os.stat(path)
    except FileNotFoundError:
        if not create:
            raise StoreUnavailable(f"{path}: there is no such store") from None
        folder = os.path.dirname(os.path.realpath(path))
        if not os.path.isdir(folder):
            raise StoreUnavailable(f"{path}: the folder {folder} does not exist; make it first") from None
        if not _may(folder, os.W_OK | os.X_OK):
            raise StoreUnavailable(f"{path}: this user may not create files in the folder {folder}") from None
        return
    except NotADirectoryError:
        raise StoreUnavailable(f"{path}: a part of this path is a file and not a folder") from None
    except PermissionError:
        raise StoreUnavailable(f"{path}: this user may not enter one of the folders of this path") from None
    except ValueError as error:  # a NUL in the name
        raise InvalidInput("address", f"{path!r} is not a path: {error}") from None
    except OSError as error:
        raise StoreUnavailable(f"{path}: {error.strerror}") from error
    if found.st_nlink > 1 and stat.S_ISREG(found.st_mode):
        raise StoreUnavailable(
            f"{path}: the file has {found.st_nlink} names (hard links). Processes that open it by different names "
            "would each have a write-ahead log of their own and lose each other's events: remove the other names"
        )
    if stat.S_ISDIR(found.st_mode):
        raise StoreUnavailable(f"{path}: this is a folder, and a store is a file: name a file in it")
    if not stat.S_ISREG(found.st_mode):
        raise StoreUnavailable(f"{path}: this is not a regular file, so not a store")
    if not _may(path, os.R_OK):
        raise StoreUnavailable(
            f"{path}: this user, {os.geteuid()}, may not read the file, which belongs to user {found.st_uid}"
        )
    if found.st_size < sizes.PAGE_BYTES:
        log = f"{os.path.realpath(path)}-wal"
        if size_of(log):  # which SQLite would delete
            raise StoreCorrupt(
                f"{path}: the file is cut or empty, but its write-ahead log is not: another program has truncated "
                f"the file. Keep {log}, and restore the file from a backup"
            )
        if not create and not found.st_size:
            raise empty(path)


def size_of(path: str) -> int:
    """The size of a file, or of the log beside a store; 0 if there is no such file."""
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return 0


def _may(path: str, mode: int) -> bool:
    return os.access(path, mode, effective_ids=os.access in os.supports_effective_ids)


class EmptyFile(FormatUnsupported):
    """The file is empty: no store has been created in it yet."""


def empty(path: str) -> EmptyFile:
    return EmptyFile(
        f"{path}: the file is empty, so it is not a store; make it one with `fencepost init {path}`, "
        "or by opening it with create=True"
    )


def schema() -> str:
    """The statements that create the tables of a new store."""
    return files(__package__).joinpath("schema.sql").read_text()


def prepare_file(path: str, *, create: bool, timeout_s: float, vfs: str | None = None) -> None:
    """Create the store if `create` allows it; raise an error unless the file is a store of this format."""
    look_at(path, create=create)
    # A connection that was opened before another process wrote the first page does not know of checksums.
    for again in (True, True, False):
        if _prepare(path, create, timeout_s, vfs, again):
            return


def _prepare(path: str, create: bool, timeout_s: float, vfs: str | None, again: bool) -> bool:
    """False if the file has to be opened again, because this connection would not keep checksums."""
    flags = apsw.SQLITE_OPEN_READWRITE | (apsw.SQLITE_OPEN_CREATE if create else 0)
    connection = Connection(path, flags=flags, vfs=vfs)
    try:
        connection.set_busy_timeout(int(timeout_s * 1000))
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        if connection.readonly("main"):
            # SQLite has opened the file for reading. A read would create a log and its index. They would belong to this
            # user, so another user, who may write to the file, might not be able to write to them.
            raise apsw.ReadOnlyError("the file cannot be written")
        with name_damage(path, connection):
            is_store = check_format(connection, path)
        if not is_store:
            if not create:
                raise empty(path)
            reserve_bytes(connection)
            _when_free(lambda: run(connection, USE_WAL), timeout_s)
        if again and not checks_pages(connection):
            return False
        check_pages(connection, path)
        # If no other process has the file open, closing copies the log into it. After a crash the log may hold an
        # append whose sync failed. It must be written again before a decision can depend on it.
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0)
        if is_store:
            if value(connection, "PRAGMA journal_mode") != "wal":  # a backup has no log until it is opened
                _when_free(lambda: run(connection, USE_WAL), timeout_s)
            # A process that was killed between its write and its sync leaves a transaction that this first read
            # has recovered. A checkpoint syncs the log, so that readers see only what survives a power loss.
            _when_free(lambda: connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE), timeout_s)
            return True
        with transaction(connection):
            if not _is_ours(connection, path):  # another process may have been first
                run(connection, schema())
                run(connection, f"PRAGMA application_id = {APPLICATION}")
                run(connection, f"PRAGMA user_version = {FORMAT}")
        return True
    finally:
        connection.close()


def check_format(connection: apsw.Connection, path: str) -> bool:
    """Whether the file is a store; False if it is empty. Raises FormatUnsupported for another program's file."""
    with snapshot(connection):  # another process could create the store between the two queries
        if _is_ours(connection, path):
            return True
        used = value(connection, "PRAGMA application_id") or value(connection, "SELECT count(*) FROM sqlite_schema")
    if used:
        raise FormatUnsupported(f"{path}: this is an SQLite database, but not a Fencepost store")
    return False


def _is_ours(connection: apsw.Connection, path: str) -> bool:
    if value(connection, "PRAGMA application_id") != APPLICATION:
        return False
    version = value(connection, "PRAGMA user_version")
    if version != FORMAT:
        if version > FORMAT:
            remedy = "upgrade Fencepost"
        else:
            remedy = "export it with the version that wrote it, and import it into a new store"
        raise FormatUnsupported(f"{path}: written in format {version}; this version reads format {FORMAT}: {remedy}")
    return True


def _when_free(action: Callable[[], object], timeout_s: float) -> None:
    """Retry while the file is locked: SQLite's busy timeout does not cover journal modes and checkpoints."""
    deadline = monotonic() + timeout_s
    while True:
        try:
            action()
            return
        except apsw.BusyError:
            if monotonic() > deadline:
                raise
            pause(0.005)
