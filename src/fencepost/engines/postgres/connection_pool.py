"""The connections of one store: lent to one caller at a time, opened when needed, closed when broken.

The thread that needs a connection opens it. So a server that becomes available again is used at once, and a
connection error is raised in the caller that it concerns. Before a connection is lent again, a poll of its socket
shows, without a round trip, whether the server has closed it. Therefore, after a restart of the server, no append is
sent on a dead connection, where its outcome would be unknown. tests/postgres/test_faults.py checks this.

A connection belongs to the process that opened it. After a fork the child shares the socket with its parent. The
child neither uses nor closes the connection, because closing it would end the parent's pooled
(tests/postgres/test_fork.py).

No connection relies on session state: no settings, no session locks. So connections may go through a pooler such as
PgBouncer in transaction mode.
"""

from __future__ import annotations

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

from ...core.interrupts import Waiters, interruptibly, pause
from ...core.owner import Owner
from ...core.redaction import redacted
from ...errors import InvalidInput, StoreClosed, StoreUnavailable
from .addresses import parameters_of
from .error_mapping import Lost, Unreachable, translate

Connection: TypeAlias = psycopg.Connection[tuple[Any, ...]]

# By default libpq waits for a silent server without a limit.
DEFAULTS: Final = {"connect_timeout": 10, "tcp_user_timeout": 30_000, "application_name": "fencepost"}
RETRY_S: Final = 0.1
POSTGRES_EPOCH_US: Final = 946_684_800_000_000  # 2000-01-01, from which PostgreSQL counts its microseconds


class PooledConnection:
    """A connection of the store, with its prepared statements and the converters of its results."""

    __slots__ = ("_poll", "connection", "pgconn", "prepared", "transformer")

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.pgconn = connection.pgconn
        self.transformer = Transformer(connection)  # caches the loaders for the columns of our calls
        self.prepared: set[bytes] = set()
        self._poll = select.poll()
        self._poll.register(connection.fileno(), select.POLLIN)

    def is_quiet(self) -> bool:
        """Whether the server has sent nothing since the last use. If it has, it is about to close the connection."""
        return not self._poll.poll(0)

    def is_sound(self) -> bool:
        """Whether it can be lent again, which is not the case after an interrupted or failed exchange."""
        return self.pgconn.transaction_status == psycopg.pq.TransactionStatus.IDLE


Lent = TypeVar("Lent", bound=PooledConnection | None)
Result = TypeVar("Result")


class Loan(Generic[Lent]):
    """A connection for one `with` block, in which an error of psycopg is raised as one of Fencepost's errors.

    A class, because a generator-based context manager would take longer than the work inside.
    """

    __slots__ = ("_pool", "_pooled", "_take")

    def __init__(self, pool: ConnectionPool, take: Callable[[], Lent]) -> None:
        self._pool = pool
        self._take = take

    def __enter__(self) -> Lent:
        self._pooled = self._take()
        return self._pooled

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        pooled = self._pooled
        fault = translate(error) if isinstance(error, psycopg.Error) else None
        if pooled is not None:
            if isinstance(fault, Lost):
                pooled.connection.close()  # even if libpq considers it usable
            self._pool.give_back(pooled)
        if fault is not None:
            raise fault from error


class ConnectionPool:
    """At most `limit` connections to the address. A caller waits up to `patience_s` for one, or for the server."""

    def __init__(self, url: str, *, limit: int, patience_s: float) -> None:
        self._url = url
        given = parameters_of(url)
        self._defaults: dict[str, Any] = {name: value for name, value in DEFAULTS.items() if name not in given}
        self.patience_s = patience_s
        self._limit = limit
        self._lent = 0
        self.waiting = 0  # threads that wait for a connection to be given back
        self._idle: list[PooledConnection] = []  # a stack: the server process that was used last has warm caches
        self._lock = threading.Lock()
        self._returned = Waiters()
        self.owner = Owner()
        self.on_connect: Callable[[Connection], None] | None = None  # checks a new connection
        self._closed = False

    def borrow(self) -> Loan[PooledConnection]:
        """A connection for one `with` block. Waits for one if all are in use."""
        return Loan(self, self.take)

    def borrow_idle(self) -> Loan[PooledConnection | None]:
        """A connection for one `with` block of a task; None where `take_idle` returns None."""
        return Loan(self, self.take_idle)

    @contextmanager
    def connection(self) -> Iterator[Connection]:
        """As `borrow`, for statements that go through psycopg. The connection is in autocommit mode."""
        with self.borrow() as pooled:
            yield pooled.connection

    def retry(self, call: Callable[[], Result]) -> Result:
        """Repeat a call that may run twice, for `patience_s` or until `close`, while the server cannot be reached."""
        deadline = monotonic() + self.patience_s
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

    def take(self) -> PooledConnection:
        """A connection that no other caller uses until `give_back`."""
        self.owner.check()  # before the lock is taken, which another thread may have held at the moment of the fork
        if not self._reserve():
            self._wait()
        try:
            return self._pop_idle() or PooledConnection(self.connect())
        except BaseException:
            self._release(None)
            raise

    def take_idle(self) -> PooledConnection | None:
        """As `take`, for a task, which must not block: None if no connection is idle or if a thread waits for one."""
        self.owner.check()
        with self._lock:
            if self._closed or self.waiting or self._lent >= self._limit or not self._idle:
                return None
            self._lent += 1
        pooled = self._pop_idle()
        if pooled is None:
            self._release(None)
        return pooled

    def give_back(self, pooled: PooledConnection) -> None:
        """End a loan. The connection is closed unless it is idle."""
        if pooled.is_sound() and not self._closed:
            self._release(pooled)
        else:
            pooled.connection.close()
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
        if self.on_connect is not None:
            try:
                self.on_connect(connection)
            except psycopg.Error as error:
                connection.close()
                fault = translate(error)  # nothing of the caller has been sent
                raise Unreachable(str(fault)) if isinstance(fault, Lost) else fault from error
            except BaseException:
                connection.close()
                raise
        return connection

    def _connect(self) -> Connection:
        # statement.py prepares the statements that are sent often; psycopg must not prepare any.
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
        for pooled in idle:
            pooled.connection.close()

    def _reserve(self) -> bool:
        """Count one more connection as lent, if the limit allows it."""
        with self._lock:
            if self._lent >= self._limit:
                return False
            self._lent += 1
            return True

    def _wait(self) -> None:
        """Wait until a connection is reserved for the caller."""
        with self._lock:
            self.waiting += 1
        try:
            if not self._returned.wait_for(self._reserve, self.patience_s):
                raise StoreUnavailable(
                    f"all {self._limit} connections of this store were in use for {self.patience_s} s: "
                    "open it with more connections, or make fewer calls at the same time"
                )
        finally:
            with self._lock:
                self.waiting -= 1

    def _pop_idle(self) -> PooledConnection | None:
        while True:
            with self._lock:
                if not self._idle:
                    return None
                pooled = self._idle.pop()
            if pooled.is_quiet():
                return pooled
            pooled.connection.close()

    def _release(self, pooled: PooledConnection | None) -> None:
        with self._lock:
            self._lent -= 1
            if pooled is not None:
                if self._closed:
                    pooled.connection.close()
                else:
                    self._idle.append(pooled)
        self._returned.notify_one()
