"""Connections for reading, shared by all threads of a store.

A thread borrows a connection for the length of a `with` block, and no other thread uses it meanwhile. When the block
ends normally, every cursor of the connection has been read to its end. After an error that is not certain: a traceback
can hold a cursor that is in the middle of its rows. So a connection is closed after an error, with its cursors, instead
of being lent again. tests/sqlite/test_readers.py holds this.
"""

from __future__ import annotations

import threading
from typing import Final

import apsw

from ...errors import StoreClosed, StoreCorrupt
from ...processes import Owner
from .connections import ONE_THREAD_AT_A_TIME, connect, translated
from .forks import Connection
from .readonly import ImmutableConnection, connect_to_read

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
        self._closed = False

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
        if error is None:
            self._readers.give_back(connection)
        else:
            connection.close(force=True)
        if isinstance(connection, ImmutableConnection) and (error is None or isinstance(error, DAMAGE)):
            connection.check()  # a file that was changed meanwhile must not be taken for a damaged one
        if error is not None and isinstance(error, SQLITE_ERRORS):
            raise translated(error, self._readers.path) from error
