"""The contract, kept by the PostgreSQL engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psycopg
import pytest
from tests.postgres.conftest import with_option

import fencepost
from fencepost import EventStore
from fencepost.core.address import open_engine
from fencepost.engines.postgres import PostgresEngine
from fencepost.engines.postgres.connection_pool import ConnectionPool, PooledConnection
from fencepost.testing import Awaitable, DurableEventStoreContract, RestoringContract, SharedRecordingContract
from fencepost.testing.faults import once
from fencepost.testing.stores import Store


class TestPostgres(DurableEventStoreContract):
    @pytest.fixture(autouse=True)
    def place(self, database_url: str, new_url: Callable[[], tuple[str, bool]]) -> None:
        self.database_url = database_url
        self.new_url = new_url

    def open_store(self) -> Store:
        self.url, create = self.new_url()
        return fencepost.open(self.url, create=create)

    def open_again(self) -> Store:
        return fencepost.open(self.url)

    @contextmanager
    def older_transaction(self) -> Iterator[None]:
        with psycopg.connect(self.database_url) as connection:
            connection.execute("CREATE TABLE IF NOT EXISTS elsewhere (number integer)")
            connection.commit()
            connection.execute("INSERT INTO elsewhere VALUES (1)")
            yield

    @contextmanager
    def overtaken(self, store: Store, rival: Callable[[], None]) -> Iterator[Store]:
        """Between check and commit: the function has judged and written, and the transaction is open."""
        engine = open_engine(self.url)
        assert isinstance(engine, PostgresEngine)
        run_before_commit(engine.pool, once(rival))
        yield self.store_over(engine)
        engine.close()


def run_before_commit(pool: ConnectionPool, action: Callable[[], None]) -> None:
    """Make each loan of a connection one transaction, and run the action before the transaction commits."""
    lend = pool.borrow

    @contextmanager
    def borrow() -> Iterator[PooledConnection]:
        with lend() as pooled, pooled.connection.transaction():
            yield pooled
            action()

    pool.borrow = borrow  # type: ignore[assignment]
    pool.take_idle = lambda: None  # type: ignore[method-assign]  # so that tasks commit in a thread


class TestPostgresAwaitable(Awaitable, TestPostgres):
    """The same through `fencepost.aio`."""

    examples = 10


class TestPostgresThatRecords(SharedRecordingContract):
    @pytest.fixture(autouse=True)
    def place(self, database_url: str, new_schema: Callable[[], str]) -> None:
        self.url = with_option(database_url, "schema", new_schema())

    def open_recording(self) -> EventStore:
        return fencepost.open(self.url, create=True, record_conditions=True)

    def open_silent(self) -> EventStore:
        return fencepost.open(self.url)


class TestPostgresThatIsRestored(RestoringContract):
    @pytest.fixture(autouse=True)
    def place(self, database_url: str, new_schema: Callable[[], str]) -> None:
        self.new_url = lambda: with_option(database_url, "schema", new_schema())

    def open_store(self) -> EventStore:
        return fencepost.open(self.new_url(), create=True)
