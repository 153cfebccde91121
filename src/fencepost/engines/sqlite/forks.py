"""Connections that do not survive a fork.

SQLite keeps a table of the POSIX locks that its process holds. A fork copies the table but not the locks. If a child
opened a file that its parent has open, SQLite would take the file to be locked already. Another process could then
take itself for the last user of the file and delete the write-ahead log, while the child commits into the deleted log.
So every open file is remembered by device and inode, and a forked child refuses to open a file that it has inherited.

The child never closes an inherited connection, since closing can checkpoint and delete the log: `_inherit` leaks it.
If another thread was inside SQLite at the moment of the fork, the child has SQLite's mutexes locked, and no thread
unlocks them. Then the child opens no file at all. tests/sqlite/test_fork.py and tests/torture/forks.py check this.
"""

from __future__ import annotations

import ctypes
import os
import threading
from typing import Any, Final, TypeAlias
from weakref import WeakSet

import apsw

from ...errors import StoreClosed, StoreUnavailable
from .page_checksums import VFS, load

Identity: TypeAlias = tuple[int, int]

REMEDY: Final = (
    "start processes with multiprocessing's 'spawn' or 'forkserver' method, or fork before the first store is opened"
)

_opening = threading.RLock()  # held while a file is opened, and by a thread that forks
_connections: WeakSet[Connection] = WeakSet()
_inherited: set[Identity] = set()
_interrupted = False  # whether the fork came while another thread was inside SQLite


class Connection(apsw.Connection):
    """A connection that is registered under its file while it is open.

    It is in use while `lock` is held. A connection without a lock is in use while it is not `resting`.
    """

    lock: threading.Lock | None = None
    resting = False
    polled: tuple[int, int] | None = None  # the version of the data when `Head.poll` last read the head, and the head

    def __init__(self, path: str, *, uri: str | None = None, vfs: str | None = None, **options: Any) -> None:
        """`uri` is what SQLite opens, if it differs from the path. Every page that is read is checked."""
        load()
        with _opening:
            check_not_inherited(path)
            self.path = path
            self.identity: Identity | None = None
            _connections.add(self)
            try:
                super().__init__(uri or path, vfs=vfs or VFS, **options)
            except BaseException:
                _connections.discard(self)
                raise
            self.identity = identity_of(path)

    @property
    def in_use(self) -> bool:
        return not self.resting if self.lock is None else self.lock.locked()

    def close(self, force: bool = False) -> None:
        self.resting = False
        super().close(force)
        _connections.discard(self)


def is_lent(path: str) -> bool:
    """Whether a thread of this process uses a connection for reading the file."""
    return any(each.path == path and each.lock is None and not each.resting for each in list(_connections))


def identity_of(path: str) -> Identity | None:
    """Device and inode, the same for all names of the file; None if there is no file.

    Uses `stat`, because opening and closing the file would drop SQLite's locks on it.
    """
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def check_identity(path: str, connection: Connection, outcome: str) -> None:
    """Raise StoreUnavailable unless the path still leads to the file that the connection has open."""
    try:
        status = os.stat(path)
        found: Identity | None = status.st_dev, status.st_ino
    except PermissionError:
        return  # a process that has given up its privileges cannot look, and uses what it has open
    except OSError:
        found = None
    if found != connection.identity:
        raise StoreUnavailable(
            f"{path}: the file was renamed, replaced or deleted while the store was open; {outcome}. "
            "Open the store again"
        )


def check_not_inherited(path: str) -> None:
    if identity_of(path) in _inherited:
        raise StoreClosed(f"{path}: this process was forked from one that had the file open; {REMEDY}")
    if _interrupted:
        raise StoreClosed(f"{path}: this process was forked while a thread of its parent used SQLite; {REMEDY}")


def _inherit() -> None:
    """In a forked child: remember the inherited files, and keep their connections from being closed."""
    global _opening, _interrupted
    for connection in list(_connections):
        # Leak a reference, so that neither garbage collection nor the interpreter's exit closes the connection.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))
        identity = connection.identity or identity_of(connection.path)
        if identity is not None:
            _inherited.add(identity)
        _interrupted = _interrupted or connection.in_use
    _connections.clear()
    _opening = threading.RLock()


if hasattr(os, "register_at_fork"):  # where a process can fork
    os.register_at_fork(
        before=lambda: _opening.acquire(), after_in_parent=lambda: _opening.release(), after_in_child=_inherit
    )
