"""The contract of every store, on FoundationDB: simulated, or a real cluster if one is named."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import randrange

import pytest
from tests.support.simulated_fdb import SimulatedCluster

from fencepost import Event, InvalidInput, Query
from fencepost.engines.foundationdb.binding import Connection
from fencepost.engines.foundationdb.engine import FoundationDBEngine
from fencepost.testing import Awaitable, DurableEventStoreContract
from fencepost.testing.faults import once
from fencepost.testing.stores import Store

from .clusters import Hooked, connection, new_namespace


class TestFoundationDB(DurableEventStoreContract):
    gapless = False

    @pytest.fixture(autouse=True)
    def _namespaces(self) -> Iterator[None]:
        """A real cluster is left as it was found."""
        self._engines: list[FoundationDBEngine] = []
        yield
        for engine in self._engines:
            engine.clear()

    def open_store(self) -> Store:
        # As on a real cluster, the same verbs give other positions in each run.
        self._connection = connection(SimulatedCluster(1, first_version=2**43 + randrange(2**43)))
        self._namespace = new_namespace()
        return self.open_again()

    def open_again(self) -> Store:
        return self.store_over(self._engine(self._connection))

    def _engine(self, connection: Connection) -> FoundationDBEngine:
        # The suite appends thousands of events at a time, which are more than the defaults allow.
        engine = FoundationDBEngine(connection, namespace=self._namespace, partitions=8, transaction_bytes=10_000_000)
        self._engines.append(engine)
        return engine

    @contextmanager
    def older_transaction(self) -> Iterator[None]:
        transaction = self._connection.begin()
        transaction.get_read_version().wait()
        transaction.set(b"fencepost-test-older", b"")
        yield
        transaction.clear(b"fencepost-test-older")
        transaction.commit().wait()

    @contextmanager
    def overtaken(self, store: Store, rival: Callable[[], None]) -> Iterator[Store]:
        """Between check and commit: everything is judged and written when the rival comes."""
        calm = self._connection
        hooked = Connection(Hooked(calm.database, armed := Armed()), calm.error, calm.begin_range)
        engine = self._engine(hooked)
        armed.action = once(rival)
        yield self.store_over(engine)

    def test_22_seventy_thousand_events_in_one_append_are_stored_in_order(self, store: Store) -> None:
        """A gap: an append has at most 8,192 events here, and 10,000,000 bytes. A larger one is refused by name."""
        given = [Event("Many", data=b"%d" % number, tags={f"tag:{number % 7}"}) for number in range(70_000)]
        with pytest.raises(InvalidInput, match="events: 70000 events, the limit of a FoundationDB store"):
            store.append(given)
        assert store.head() == 0
        placed = store.append(given[:5_600])
        assert [event.data for event in store.read()] == [event.data for event in given[:5_600]]
        assert store.head() == placed.last
        assert len(list(store.read(Query.of(tags={"tag:6"})))) == 800


class Armed:
    """Does nothing until it is given an action, so that opening an engine does not set it off."""

    def __init__(self) -> None:
        self.action: Callable[[], None] = lambda: None

    def __call__(self) -> None:
        self.action()


class TestAwaitableFoundationDB(Awaitable, TestFoundationDB):
    """The same, awaited."""
