"""The connections of one store: lent to one caller at a time, made when needed, dropped when broken.

Whoever needs a connection makes it, in their own thread, so a server that comes back is used at once
and an error reaches the one whom it concerns. Before a connection is lent again it is asked, without
a round trip, whether the server has closed it meanwhile: after a restart of the server no append is sent
into a dead connection, where its fate would be unknown.

No connection relies on anything that it did before: no settings, no locks of a session. So they may go
through a pooler such as PgBouncer in transaction mode.
"""

from __future__ import annotations

import select
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeAlias

import psycopg
from psycopg.adapt import Loader, Transformer
from psycopg.pq import Format

from ...errors import StoreClosed, StoreUnavailable
from .faults import Unreachable, translate

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


class Session:
    """A connection of the store, with what is kept for each so that a call takes little time."""

    __slots__ = ("_poll", "connection", "pgconn", "prepared", "transformer")

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.pgconn = connection.pgconn
        self.transformer = Transformer(connection)  # it remembers how the columns of our calls are loaded
        self.prepared: set[bytes] = set()
        self._poll = select.poll()
        self._poll.register(connection.fileno(), select.POLLIN)

    def is_quiet(self) -> bool:
        """Whether the server has said nothing since it was last used: what it says unasked is good-bye."""
        return not self._poll.poll(0)

    def is_sound(self) -> bool:
        """An interrupted or failed connection is not worth finding out what state it is in."""
        return self.pgconn.transaction_status == psycopg.pq.TransactionStatus.IDLE


class Lent:
    """Written as a class, since a generator would take longer than what it is around."""

    __slots__ = ("_connections", "_session")

    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    def __enter__(self) -> Session:
        self._session = self._connections.take()
        return self._session

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._connections.give_back(self._session)
        if isinstance(error, psycopg.Error):
            raise translate(error) from error


class Connections:
    def __init__(self, url: str, *, most: int, patience_s: float) -> None:
        self._url = url
        self._patience_s = patience_s
        self._most = most
        self._lent = 0
        self._waiting = 0
        self._idle: list[Session] = []  # the last one used is used next: the server's memory is warm there
        self._lock = threading.Lock()
        self._returned = threading.Condition(self._lock)
        self._closed = False

    def session(self) -> Lent:
        """A session for one `with`. What fails inside comes out as one of our errors."""
        return Lent(self)

    @contextmanager
    def lend(self) -> Iterator[Connection]:
        """Likewise a connection, in autocommit mode."""
        with self.session() as session:
            yield session.connection

    def take(self) -> Session:
        """One that nobody else uses until it is given back."""
        with self._lock:
            if self._lent >= self._most:
                self._wait()
            self._lent += 1
        try:
            return self._idle_one() or Session(self.connect())
        except BaseException:
            self._release(None)
            raise

    def take_idle(self) -> Session | None:
        """Likewise, but only one that is there already, and that nobody waits for."""
        with self._lock:
            if self._closed or self._waiting or self._lent >= self._most or not self._idle:
                return None
            self._lent += 1
        session = self._idle_one()
        if session is None:
            self._release(None)
        return session

    @property
    def wanted(self) -> bool:
        """Whether somebody waits for one to be given back."""
        return self._waiting > 0

    def give_back(self, session: Session) -> None:
        if session.is_sound() and not self._closed:
            self._release(session)
        else:
            session.connection.close()
            self._release(None)

    def connect(self) -> Connection:
        """A new connection, which is the caller's own."""
        if self._closed:
            raise StoreClosed("the store is closed")
        try:
            # psycopg prepares nothing by itself: calls.py does it, where it pays.
            # We write and read UTF-8, whatever the address, the role or the environment says.
            connection = psycopg.connect(
                self._url, autocommit=True, prepare_threshold=None, client_encoding="UTF8", **self._defaults()
            )
        except psycopg.OperationalError as error:
            raise Unreachable(f"PostgreSQL cannot be reached: {str(error).strip()}") from error
        connection.adapters.register_loader("timestamptz", MomentLoader)
        connection.adapters.register_loader("uuid", IdLoader)
        return connection

    def close(self) -> None:
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for session in idle:
            session.connection.close()

    def _defaults(self) -> dict[str, Any]:
        given = psycopg.conninfo.conninfo_to_dict(self._url)
        return {name: value for name, value in DEFAULTS.items() if name not in given}

    def _wait(self) -> None:
        """Until another one may be lent. Called under the lock."""
        self._waiting += 1
        try:
            if not self._returned.wait_for(lambda: self._lent < self._most, self._patience_s):
                raise StoreUnavailable(
                    f"all {self._most} connections of this store are in use for {self._patience_s} s: "
                    "open it with more connections, or read and append less at once"
                )
        finally:
            self._waiting -= 1

    def _idle_one(self) -> Session | None:
        while True:
            with self._lock:
                if not self._idle:
                    return None
                session = self._idle.pop()
            if session.is_quiet():
                return session
            session.connection.close()

    def _release(self, session: Session | None) -> None:
        with self._lock:
            self._lent -= 1
            if session is not None:
                if self._closed:
                    session.connection.close()
                else:
                    self._idle.append(session)
            if self._waiting:
                self._returned.notify()
