"""A forked child shares its parent's sockets: it must neither use them nor end the session on the server."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable

import pytest
from tests.postgres.conftest import with_option

import fencepost
from fencepost import Event, StoreClosed
from fencepost.engine import engine_of
from fencepost.engines.postgres import PostgresEngine


def in_a_child(call: Callable[[], object]) -> str:
    """The result of the call in a forked child: its value or its error."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            said = str(call())
        except BaseException as error:
            said = f"{type(error).__name__}: {error}"
        gc.collect()
        os.write(writing, said.encode())
        os._exit(0)
    os.close(writing)
    os.waitpid(child, 0)
    with open(reading, "rb") as answer:
        return answer.read().decode()


@pytest.fixture
def url(database_url: str, new_schema: Callable[[], str]) -> str:
    return with_option(database_url, "schema", new_schema())


def test_a_child_is_refused_and_the_connections_of_its_parent_live_on(url: str) -> None:
    with fencepost.open(url, create=True, connections=1) as store:
        store.append([Event("A")] * 3_000)
        reading = store.read()
        next(reading)
        subscription = store.subscribe()
        next(subscription)
        engine = engine_of(store)
        assert isinstance(engine, PostgresEngine)
        (session,) = engine.pool._idle
        server_process = session.connection.info.backend_pid
        for use in (
            store.head,
            lambda: list(reading),
            lambda: list(subscription),
            engine.head,
            lambda: next(engine.scan(fencepost.Query.all(), after=0, up_to=1)),
        ):
            said = in_a_child(use)
            assert said.startswith("StoreClosed")
            assert "'spawn' or 'forkserver'" in said
        for leave in (store.close, engine.close, engine.pool._idle.clear, subscription.stop):
            assert in_a_child(leave) == "None"
        assert store.append([Event("B")]).first == 3_001
        (session,) = engine.pool._idle
        assert session.connection.info.backend_pid == server_process, "the connection is still the same"
        assert len(list(reading)) == 2_999


def test_a_child_may_open_the_store_for_itself(url: str) -> None:
    with fencepost.open(url, create=True) as store:
        store.append([Event("A")])

        def append() -> int:
            with fencepost.open(url) as own:
                return own.append([Event("B")]).first

        assert in_a_child(append) == "2"
        assert store.append([Event("C")]).first == 3


def test_a_closed_store_is_closed_wherever(url: str) -> None:
    store = fencepost.open(url, create=True)
    store.close()
    with pytest.raises(StoreClosed):
        store.head()
    assert in_a_child(store.head).startswith("StoreClosed")
