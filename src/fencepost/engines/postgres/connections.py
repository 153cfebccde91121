"""The connections of one store: lent to one caller at a time, opened when needed, closed when broken.

The thread that needs a connection opens it. So a server that becomes available again is used at once, and a
connection error is raised in the caller that it concerns. Before a connection is lent again, a poll of its socket
shows, without a round trip, whether the server has closed it. Therefore, after a restart of the server, no append is
sent on a dead connection, where its outcome would be unknown. tests/postgres/test_faults.py checks this.

A connection belongs to the process that opened it. After a fork the child shares the socket with its parent. The
child neither uses nor closes the connection, because closing it would end the parent's session
(tests/postgres/test_fork.py).

No connection relies on session state: no settings, no session locks. So connections may go through a pooler such as
PgBouncer in transaction mode.
"""

from __future__ import annotations

import asyncio
import select
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from time import monotonic
from typing import Any, Final, Generic, TypeAlias, TypeVar

import psycopg
from psycopg.adapt import Transformer
from psycopg.types.numeric import Int8BinaryLoader
from psycopg.types.string import ByteaBinaryLoader

from ...errors import InvalidInput, StoreClosed, StoreUnavailable
from ...interrupts import Waiters, interruptibly, pause
from ...processes import Owner
from ...redaction import redacted
from .addresses import parameters_of
from .faults import Lost, Unreachable, translate

Connection: TypeAlias = psycopg.Connection[tuple[Any, ...]]

# By default libpq waits for a silent server without a limit.
DEFAULTS: Final = {"connect_timeout": 10, "tcp_user_timeout": 30_000, "application_name": "fencepost"}
RETRY_S: Final = 0.1
POSTGRES_EPOCH_US: Final = 946_684_800_000_000  # 2000-01-01, from which PostgreSQL counts its microseconds


class Session:
    """A connection of the store, with its prepared statements and the converters of its results."""

    __slots__ = ("_poll", "connection", "pgconn", "prepared", "reclaimed", "transformer")

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.pgconn = connection.pgconn
        self.transformer = Transformer(connection)  # caches the loaders for the columns of our calls
        self.prepared: set[bytes] = set()
        self.reclaimed = False
        self._poll = select.poll()
        self._poll.register(connection.fileno(), select.POLLIN)

    def is_quiet(self) -> bool:
        """Whether the server has sent nothing since the last use. If it has, it is about to close the connection."""
        return not self._poll.poll(0)

    def is_sound(self) -> bool:
        """Whether it can be lent again, which is not the case after an interrupted or failed exchange."""
        return self.pgconn.transaction_status == psycopg.pq.TransactionStatus.IDLE


Lent = TypeVar("Lent", bound=Session | None)
Result = TypeVar("Result")


class Loan(Generic[Lent]):
    """A session for one `with` block, in which an error of psycopg is raised as one of Fencepost's errors.

    A class, because a generator-based context manager would take longer than the work inside.
    """

    __slots__ = ("_connections", "_session", "_take")

    def __init__(self, connections: Connections, take: Callable[[], Lent]) -> None:
        self._connections = connections
        self._take = take

    def __enter__(self) -> Lent:
        self._session = self._take()
        return self._session

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        session = self._session
        fault = translate(error) if isinstance(error, psycopg.Error) else None
        if session is not None:
            if isinstance(fault, Lost):
                session.connection.close()  # even if libpq considers it usable
            self._connections.give_back(session)
        if fault is not None:
            raise fault from error


class Connections:
    """At most `limit` connections to the address. A caller waits up to `patience_s` for one, or for the server."""

    def __init__(self, url: str, *, limit: int, patience_s: float) -> None:
        self._url = url
        given = parameters_of(url)
        self._defaults: dict[str, Any] = {name: value for name, value in DEFAULTS.items() if name not in given}
        self._patience_s = patience_s
        self._limit = limit
        self._lent = 0
        self.waiting = 0  # threads that wait for a session to be given back
        self._idle: list[Session] = []  # a stack: the server process that was used last has warm caches
        self._lock = threading.Lock()
        self._returned = Waiters()
        self.owner = Owner()
        self._closed = False
        self._on_loops: dict[Session, asyncio.AbstractEventLoop] = {}  # the sessions lent to tasks

    def session(self) -> Loan[Session]:
        """A session for one `with` block. Waits for one if all are in use."""
        return Loan(self, self.take)

    def idle_session(self) -> Loan[Session | None]:
        """A session for one `with` block of a task; None where `take_idle` returns None."""
        return Loan(self, self.take_idle)

    @contextmanager
    def connection(self) -> Iterator[Connection]:
        """As `session`, for statements that go through psycopg. The connection is in autocommit mode."""
        with self.session() as session:
            yield session.connection

    def retry(self, call: Callable[[], Result]) -> Result:
        """Repeat a call that may run twice, for `patience_s` or until `close`, while the server cannot be reached."""
        deadline = monotonic() + self._patience_s
        while True:
            try:
                return call()
            except (Lost, Unreachable):
                if monotonic() >= deadline or self._closed:
                    raise
                pause(RETRY_S)

    def rows(self, statement: bytes, arguments: Sequence[Any]) -> list[tuple[Any, ...]]:
        """The rows of a statement that only reads. Tries again as `retry` does."""

        def read() -> list[tuple[Any, ...]]:
            with self.connection() as connection:
                return connection.execute(statement, arguments).fetchall()

        return self.retry(read)

    def take(self) -> Session:
        """A session that no other caller uses until `give_back`."""
        self.owner.check()  # before the lock is taken, which another thread may have held at the moment of the fork
        if not self._reserve():
            self._wait()
        try:
            return self._pop_idle() or Session(self.connect())
        except BaseException:
            self._release(None)
            raise

    def take_idle(self) -> Session | None:
        """As `take`, for a task, which must not block: None if no connection is idle or if a thread waits for one."""
        self.owner.check()
        with self._lock:
            if self._closed or self.waiting or self._lent >= self._limit or not self._idle:
                return None
            self._lent += 1
        session = self._pop_idle()
        if session is None:
            self._release(None)
        else:
            self._on_loops[session] = asyncio.get_running_loop()
        return session

    def give_back(self, session: Session) -> None:
        """End a loan. The connection is closed unless it is idle."""
        with self._lock:
            if session.reclaimed:
                return
            self._on_loops.pop(session, None)
        if session.is_sound() and not self._closed:
            self._release(session)
        else:
            session.connection.close()
            self._release(None)

    def connect(self) -> Connection:
        """A new connection, which does not count towards the limit and which the caller must close."""
        self.owner.check()
        if self._closed:
            raise StoreClosed("the store is closed")
        try:
            connection = interruptibly(self._connect)
        except psycopg.OperationalError as error:
            raise Unreachable(f"PostgreSQL cannot be reached: {str(error).strip()}") from error
        except psycopg.ProgrammingError as error:
            raise InvalidInput("address", f"{redacted(self._url)}: {str(error).strip()}") from error
        # Events keep their times and ids as the server sends them. psycopg loads these two types in C.
        connection.adapters.register_loader("timestamptz", Int8BinaryLoader)  # in microseconds since 2000
        connection.adapters.register_loader("uuid", ByteaBinaryLoader)
        return connection

    def _connect(self) -> Connection:
        # calls.py prepares the statements that are sent often; psycopg must not prepare any.
        # Texts are sent and received in UTF-8, even if the address, the role or the environment names another encoding.
        return psycopg.connect(
            self._url, autocommit=True, prepare_threshold=None, client_encoding="UTF8", **self._defaults
        )

    def close(self) -> None:
        if not self.owner.is_this_process:  # closing would send a message to the server on the parent's socket
            return
        with self._lock:
            self.abandon()

    def abandon(self) -> None:
        """As `close`, without the lock: the garbage collector may call this while the same thread holds the lock."""
        self._closed = True
        idle, self._idle = self._idle, []
        for session in idle:
            session.connection.close()

    def _reserve(self) -> bool:
        """Count one more connection as lent, if the limit allows it."""
        with self._lock:
            if self._lent >= self._limit:
                self._reclaim()
            if self._lent >= self._limit:
                return False
            self._lent += 1
            return True

    def _reclaim(self) -> None:
        """Close the connections of tasks whose event loop was closed, since those tasks never give them back.

        Called under the lock.
        """
        for session, loop in list(self._on_loops.items()):
            if loop.is_closed():
                del self._on_loops[session]
                session.reclaimed = True
                session.connection.close()
                self._lent -= 1

    def _wait(self) -> None:
        """Wait until a connection is reserved for the caller."""
        with self._lock:
            self.waiting += 1
        try:
            if not self._returned.wait_for(self._reserve, self._patience_s):
                raise StoreUnavailable(
                    f"all {self._limit} connections of this store were in use for {self._patience_s} s: "
                    "open it with more connections, or make fewer calls at the same time"
                )
        finally:
            with self._lock:
                self.waiting -= 1

    def _pop_idle(self) -> Session | None:
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
        self._returned.notify_one()
