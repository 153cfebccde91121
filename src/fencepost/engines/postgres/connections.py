"""The connections of one store: lent to one caller at a time, made when needed, dropped when broken.

Whoever needs a connection makes it, in their own thread, so a server that comes back is used at once
and an error reaches the one whom it concerns. Before a connection is lent again it is asked, without
a round trip, whether the server has closed it meanwhile: after a restart of the server no append is sent
into a dead connection, where its fate would be unknown.

No connection relies on anything that it did before: no settings, no locks of a session. So they may go
through a pooler such as PgBouncer in transaction mode.
"""

from __future__ import annotations

import os
import select
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeAlias

import psycopg
from psycopg.adapt import Loader
from psycopg.pq import Format

from ...errors import StoreClosed, StoreUnavailable
from .faults import Unreachable, translated

Connection: TypeAlias = psycopg.Connection[tuple[Any, ...]]

# What libpq does not do by itself: give up on a server that has gone silent.
DEFAULTS: Final = {"connect_timeout": 10, "tcp_user_timeout": 30_000, "application_name": "fencepost"}
POSTGRES_EPOCH_US: Final = 946_684_800_000_000  # 2000-01-01, from which PostgreSQL counts its microseconds
_unpack_moment = struct.Struct("!q").unpack


class MomentLoader(Loader):
    """A timestamp as microseconds since 1970, which `SequencedEvent` decodes when asked."""

    format = Format.BINARY

    def load(self, data: bytes | bytearray | memoryview) -> int:
        return int(_unpack_moment(data)[0]) + POSTGRES_EPOCH_US


class IdLoader(Loader):
    """A uuid as its 16 bytes, for the same reason."""

    format = Format.BINARY

    def load(self, data: bytes | bytearray | memoryview) -> bytes:
        return bytes(data)


class Connections:
    def __init__(self, url: str, *, most: int, patience_s: float) -> None:
        self._url = url
        self._patience_s = patience_s
        self._free = threading.BoundedSemaphore(most)
        self._most = most
        self._lock = threading.Lock()
        self._idle: list[Connection] = []
        self._process = os.getpid()
        self._closed = False

    @contextmanager
    def lend(self) -> Iterator[Connection]:
        """A connection in autocommit mode. What fails inside comes out as one of our errors."""
        if not self._free.acquire(timeout=self._patience_s):
            raise StoreUnavailable(
                f"all {self._most} connections of this store are in use for {self._patience_s} s: "
                "open it with more connections, or read and append less at once"
            )
        try:
            connection = self._take_idle() or self.connect()
            try:
                with translated():
                    yield connection
            except BaseException:
                self._keep_if_sound(connection)
                raise
            self._keep_if_sound(connection)
        finally:
            self._free.release()

    def connect(self) -> Connection:
        """A new connection, which is the caller's own."""
        if self._closed:
            raise StoreClosed("the store is closed")
        try:
            # psycopg prepares nothing by itself: calls.py does it, where it pays.
            connection = psycopg.connect(self._url, autocommit=True, prepare_threshold=None, **self._defaults())
        except psycopg.OperationalError as error:
            raise Unreachable(f"PostgreSQL cannot be reached: {str(error).strip()}") from error
        connection.adapters.register_loader("timestamptz", MomentLoader)
        connection.adapters.register_loader("uuid", IdLoader)
        return connection

    def close(self) -> None:
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _defaults(self) -> dict[str, Any]:
        given = psycopg.conninfo.conninfo_to_dict(self._url)
        return {name: value for name, value in DEFAULTS.items() if name not in given}

    def _take_idle(self) -> Connection | None:
        while True:
            with self._lock:
                if not self._idle:
                    return None
                connection = self._idle.pop()
            if _is_quiet(connection):
                return connection
            connection.close()

    def _keep_if_sound(self, connection: Connection) -> None:
        """An interrupted or failed connection is not worth finding out what state it is in."""
        sound = not connection.closed and connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
        with self._lock:
            if sound and not self._closed:
                self._idle.append(connection)
                return
        connection.close()


def _is_quiet(connection: Connection) -> bool:
    """Whether the server has said nothing since it was last used: what it says unasked is good-bye."""
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    return not poll.poll(0)
