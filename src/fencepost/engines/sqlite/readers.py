"""Connections for reading, shared by all threads of a store.

A thread borrows a connection for the length of a `with` block, and no other thread uses it meanwhile. When the block
ends normally, every cursor of the connection has been read to its end. After an error that is not certain: a traceback
can hold a cursor that is in the middle of its rows. So a connection is closed after an error, with its cursors, instead
of being lent again. tests/sqlite/test_readers.py checks this.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final, TypeVar

import apsw

from ...core.interrupts import Waiters
from ...core.owner import Owner
from ...errors import StoreClosed, StoreCorrupt, StoreUnavailable
from .connections import ONE_THREAD_AT_A_TIME, connect, translated
from .forks import Connection, Identity, is_lent
from .readonly import TRIES, FileChanged, ImmutableConnection, connect_to_read

Result = TypeVar("Result")

CACHE_KIB: Final = 16_384
SQLITE_ERRORS: Final = (apsw.Error, UnicodeDecodeError)
DAMAGE: Final = (*SQLITE_ERRORS, StoreCorrupt)


class Readers:
    """As many connections as there are concurrent readers; idle ones are kept."""

    def __init__(self, path: str, *, timeout_s: float, vfs: str | None = None) -> None:
        self.path = path
        self.read_only = False
        self._timeout_s = timeout_s
        self._vfs = vfs
        self._owner = Owner()
        self._lock = threading.Lock()
        self._idle: list[Connection] = []
        self._returned = Waiters()
        self._identity: Identity | None = None  # of the file that the first connection has opened
        self._closed = False

    def run(self, read: Callable[[Connection], Result]) -> Result:
        """What `read` returns, read again if another process began to write to a file that was open without locks."""
        for _ in range(TRIES):
            with suppress(FileChanged), self.lend() as connection:
                return read(connection)
        with self.lend() as connection:
            return read(connection)

    def lend(self) -> Lent:
        """A connection for the length of a `with` block, which turns SQLite's errors into ours."""
        return Lent(self)

    def take(self) -> Connection:
        self._owner.check()
        while True:
            try:
                connection = self._idle.pop()
            except IndexError:
                break
            if not isinstance(connection, ImmutableConnection) or connection.is_current():
                connection.resting = False
                return connection
            connection.close()
        if self._closed:
            raise StoreClosed("the store is closed")
        try:
            connection = self._open()
        except (apsw.CantOpenError, StoreUnavailable):
            # A process that has given up its privileges cannot open the file again, but may use what it has open.
            others = bool(self._idle) or is_lent(self.path)
            if others and self._returned.wait_for(lambda: bool(self._idle), self._timeout_s):
                return self.take()
            raise
        if self._identity is None:
            self._identity = connection.identity
        elif connection.identity != self._identity:
            connection.close()
            raise StoreUnavailable(f"{self.path}: another file has taken its place; open the store again")
        return connection

    def _open(self) -> Connection:
        if self.read_only:
            return connect_to_read(self.path, timeout_s=self._timeout_s, cache_kib=CACHE_KIB, vfs=self._vfs)
        connection = connect(
            self.path, timeout_s=self._timeout_s, cache_kib=CACHE_KIB, vfs=self._vfs, flags=ONE_THREAD_AT_A_TIME
        )
        # The last connection that closes copies the log into the file. Only the writer decides about that.
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        return connection

    def give_back(self, connection: Connection) -> None:
        with self._lock:
            # An interrupt may have left a transaction open; reusing it would read an old snapshot.
            if self._closed or connection.in_transaction:
                connection.close()
            else:
                connection.resting = True
                self._idle.append(connection)
        self._returned.notify_one()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()


class Lent:
    """A borrowed connection. A class, which is faster than a generator: every read borrows twice."""

    __slots__ = ("_connection", "_readers")

    def __init__(self, readers: Readers) -> None:
        self._readers = readers

    def __enter__(self) -> Connection:
        try:
            self._connection = self._readers.take()
        except SQLITE_ERRORS as error:
            raise translated(error, self._readers.path) from error
        return self._connection

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        connection = self._connection
        shown = translated(error, self._readers.path, connection) if isinstance(error, SQLITE_ERRORS) else None
        if error is None:
            self._readers.give_back(connection)
        else:
            connection.close(force=True)
        if isinstance(connection, ImmutableConnection) and (error is None or isinstance(error, DAMAGE)):
            connection.check()  # a file that was changed meanwhile must not be taken for a damaged one
        if shown is not None:
            raise shown from error
