"""The targets of sqlite3, psycopg and SQLAlchemy, and which of them an `into` means.

apsw, which Fencepost stores use, and Python's sqlite3 each contain an SQLite of their own. Two of them on one file in
one process destroy each other's locks: closing a file descriptor releases every POSIX lock that the process holds on
that file. So a target that is the file of a store is refused, before the file is opened where that is possible.

None of these libraries is imported unless a target needs it.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from .. import EventStore
from ..engine import POSTGRES, SQLITE, Address, engine_of
from ..errors import InvalidInput
from .errors import TargetRefused
from .sql import TABLES, Rows, SqlTarget
from .targets import StoreTarget, Target

SQLITE_PATIENCE_S = 10.0


def files_of(stores: Iterable[EventStore]) -> list[str]:
    """The SQLite files of those stores that are one."""
    paths = (getattr(engine_of(store), "path", None) for store in stores)
    return [path for path in paths if path is not None]


def refuse_files(candidate: str, files: Iterable[str]) -> None:
    """Raise if the path is one of the stores' files. Opens nothing, since closing the file again would do the harm."""
    for file in files:
        try:
            same = os.path.samefile(candidate, file)
        except OSError:
            same = os.path.abspath(candidate) == os.path.abspath(file)
        if same:
            raise TargetRefused(
                f"{candidate}: a consumer cannot write into the file of the store itself: the two SQLite libraries in "
                "this process, apsw and sqlite3, would release each other's locks and damage the file; "
                "use another file, such as views.db beside it"
            )


class OneConnection(SqlTarget):
    """A target with one connection, which is closed if it is `owned`."""

    def __init__(self, connect: Callable[[], Any], *, owned: bool = True, connection: Any = None) -> None:
        self._connect = connect
        self._owned = owned
        self._connection = connection  # made by `connect` already

    def close(self) -> None:
        if self._owned and self._connection is not None:
            self._connection.close()
            self._connection = None

    def abandon(self) -> None:
        self.close()


class Sqlite3(OneConnection):
    """A connection of Python's sqlite3."""

    def __init__(self, connect: Callable[[], sqlite3.Connection], files: list[str], **options: Any) -> None:
        super().__init__(connect, **options)
        self._files = files

    def prepare(self, lease_s: float) -> None:
        if self._connection is None:
            self._connection = self._connect()
        connection = self._connection
        try:
            attached = connection.execute("PRAGMA database_list").fetchall()
        except sqlite3.ProgrammingError as error:
            if "thread" in str(error):
                raise TargetRefused(
                    "into: a consumer runs in a thread of its own, and this sqlite3 connection refuses other threads; "
                    "pass the path, or a function that connects, or connect with check_same_thread=False"
                ) from error
            raise
        for _, _, path in attached:
            if path:
                refuse_files(path, self._files)
        for statement in TABLES:
            connection.execute(statement)
        if connection.in_transaction:
            connection.commit()

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        connection: sqlite3.Connection = self._connection
        if not connection.in_transaction:
            # The write lock at once: a transaction that reads first could not write after another one has.
            connection.execute("BEGIN IMMEDIATE")
        try:
            yield connection
            if not connection.in_transaction:
                raise TargetRefused(
                    "a handler committed or rolled back the transaction of its batch, so effects and checkpoint are no "
                    "longer one; leave that to the consumer"
                )
            connection.commit()
        except BaseException:
            if connection.in_transaction:
                connection.rollback()
            raise

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        connection: sqlite3.Connection = self._connection
        connection.execute("BEGIN")
        try:
            yield connection
        finally:
            connection.rollback()

    def run(self, transaction: sqlite3.Connection, statement: str, values: tuple[Any, ...] = ()) -> tuple[int, Rows]:
        cursor = transaction.execute(statement.replace("%s", "?"), values)
        return cursor.rowcount, cursor.fetchall()

    def run_many(self, transaction: sqlite3.Connection, statement: str, rows: list[tuple[Any, ...]]) -> None:
        transaction.executemany(statement.replace("%s", "?"), rows)

    def abandon(self) -> None:
        if self._owned and self._connection is not None:
            self._connection.interrupt()
        super().abandon()


class Psycopg(OneConnection):
    """A connection of psycopg 3."""

    _idle_ms = 0

    def prepare(self, lease_s: float) -> None:
        if self._connection is None or (self._owned and self.broken()):
            self._connection = self._connect()
        self._idle_ms = max(1_000, int(lease_s * 1000))
        with self._connection.transaction():
            found = self._connection.execute("SELECT to_regclass('fencepost_read_model')").fetchone()
            if _row(found)[0] is None:
                # Two processes that create a table at once collide, in spite of IF NOT EXISTS.
                self._connection.execute("SELECT pg_advisory_xact_lock(7370212061)")
                for statement in TABLES:
                    self._connection.execute(statement)

    @contextmanager
    def transaction(self) -> Iterator[Any]:
        with self._connection.transaction():
            # If this process is suspended here, the server ends the transaction and releases its locks, so that
            # the next leader does not wait for them.
            self._connection.execute(f"SET LOCAL idle_in_transaction_session_timeout = {self._idle_ms}")
            yield self._connection

    def run(self, transaction: Any, statement: str, values: tuple[Any, ...] = ()) -> tuple[int, Rows]:
        cursor = transaction.execute(statement, values)
        return cursor.rowcount, [_row(row) for row in cursor] if cursor.description is not None else ()

    def run_many(self, transaction: Any, statement: str, rows: list[tuple[Any, ...]]) -> None:
        with transaction.cursor() as cursor:
            cursor.executemany(statement, rows)

    def broken(self) -> bool:
        return self._connection is None or bool(self._connection.closed or self._connection.broken)


def _row(row: Any) -> tuple[Any, ...]:
    """A row as a tuple, whatever row factory the connection has."""
    if isinstance(row, dict):
        return tuple(row.values())
    return tuple(row)


class SqlAlchemy(SqlTarget):
    """An engine of SQLAlchemy, which belongs to the program; handlers get its `Connection`."""

    def __init__(self, engine: Any, files: list[str]) -> None:
        self._engine = engine
        self._mark = {"qmark": "?", "format": "%s", "pyformat": "%s", "numeric_dollar": None}.get(
            engine.dialect.paramstyle
        )
        if self._mark is None:
            raise TargetRefused(f"into: SQLAlchemy's driver {engine.dialect.driver!r} is not supported")
        if engine.url.database:  # for other databases than SQLite this is a name, not a path
            refuse_files(engine.url.database, files)

    def prepare(self, lease_s: float) -> None:
        with self._engine.begin() as connection:
            for statement in TABLES:
                connection.exec_driver_sql(statement)

    def transaction(self) -> Any:
        return self._engine.begin()

    def run(self, transaction: Any, statement: str, values: tuple[Any, ...] = ()) -> tuple[int, Rows]:
        result = transaction.exec_driver_sql(statement.replace("%s", self._mark or "?"), values)
        return result.rowcount, [tuple(row) for row in result] if result.returns_rows else ()

    def run_many(self, transaction: Any, statement: str, rows: list[tuple[Any, ...]]) -> None:
        transaction.exec_driver_sql(statement.replace("%s", self._mark or "?"), rows)


def target_of(into: Any, store: EventStore | None, files: list[str]) -> Target:
    """The target that a consumer's `into` means. Opened for each lease, in the thread that works under it."""
    if into is None:
        assert store is not None, "a consumer without a target of its own reads a store"
        return StoreTarget(store)
    if isinstance(into, EventStore):
        return StoreTarget(into)
    if isinstance(into, (str, os.PathLike)):
        return _of_address(Address.parse(into), files)
    if isinstance(into, sqlite3.Connection):
        return Sqlite3(lambda: into, files, owned=False)
    if hasattr(into, "dialect") and hasattr(into, "begin"):
        return SqlAlchemy(into, files)
    if _is_psycopg(into):
        return Psycopg(lambda: into, owned=False)
    if callable(into):
        return _of_function(into, files)
    raise InvalidInput("into", f"a path, URL, connection, engine or store is needed, not {type(into).__name__}")


def is_connection(into: Any) -> bool:
    """Whether a consumer gets one connection, which it cannot open again."""
    return isinstance(into, sqlite3.Connection) or _is_psycopg(into)


def _of_address(address: Address, files: list[str]) -> Target:
    if address.kind is SQLITE:
        path = address.path
        refuse_files(path, files)
        return Sqlite3(lambda: connect_sqlite(path), files)
    if address.kind is POSTGRES:
        return Psycopg(lambda: connect_postgres(address))
    raise InvalidInput("into", f"a path or a URL of PostgreSQL is needed, not {address}")


def _of_function(connect: Callable[[], Any], files: list[str]) -> Target:
    connection = connect()
    if isinstance(connection, sqlite3.Connection):
        return Sqlite3(connect, files, connection=connection)
    if _is_psycopg(connection):
        return Psycopg(connect, connection=connection)
    raise InvalidInput(
        "into", f"the function must return a connection of sqlite3 or psycopg, not {type(connection).__name__}"
    )


def connect_sqlite(path: str) -> sqlite3.Connection:
    """A connection for effects. A crash of the machine may undo the last commits, but effects and checkpoint alike."""
    connection = sqlite3.connect(path, timeout=SQLITE_PATIENCE_S, isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")
    return connection


def connect_postgres(address: Address) -> Any:
    import psycopg

    connection = psycopg.connect(address.location, autocommit=True)
    schema = address.options.get("schema")
    if schema is not None:
        connection.execute("SELECT set_config('search_path', quote_ident(%s), false)", (schema,))
    return connection


def _is_psycopg(connection: object) -> bool:
    return type(connection).__module__.partition(".")[0] == "psycopg" and hasattr(connection, "transaction")
