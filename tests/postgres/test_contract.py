"""The contract, kept by the PostgreSQL engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psycopg
import pytest
from tests.postgres.conftest import with_option

import fencepost
from fencepost import EventStore
from fencepost.engines.postgres.connections import Connections, Session
from fencepost.testing import Awaitable, DurableEventStoreContract, RestoringContract, SharedRecordingContract
from fencepost.testing.faults import once
from fencepost.testing.stores import Store


class TestPostgres(DurableEventStoreContract):
    @pytest.fixture(autouse=True)
    def place(self, database_url: str, new_schema: Callable[[], str]) -> None:
        self.database_url = database_url
        self.new_schema = new_schema

    def open_store(self) -> Store:
        self.url = with_option(self.database_url, "schema", self.new_schema())
        return fencepost.open(self.url, create=True)

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
        engine = fencepost.opening.open_engine(self.url)
        engine._connections = Interposed(engine._connections, once(rival))  # type: ignore[attr-defined]
        yield self.store_over(engine)
        engine.close()


class Interposed:
    """Connections whose next loan is one transaction, in which something happens before it commits."""

    def __init__(self, connections: Connections, action: Callable[[], None]) -> None:
        self.close = connections.close
        self._connections = connections
        self._action = action

    @contextmanager
    def session(self) -> Iterator[Session]:
        with self._connections.session() as session, session.connection.transaction():
            yield session
            self._action()

    def take_idle(self) -> None:
        """None is at hand, so what would be sent on the event loop is left to a thread."""


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
