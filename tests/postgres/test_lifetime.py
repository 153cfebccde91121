"""The resources of a store: released when the store is dropped, and untouched in a forked child."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from tests.postgres.conftest import with_option

import fencepost
import fencepost.aio
from fencepost import Event, EventStore, FormatUnsupported, Placed, StoreClosed
from fencepost.core.owner import FORKED
from fencepost.core.verdicts import Append
from fencepost.engine import engine_of
from fencepost.engines.postgres import PostgresEngine
from fencepost.testing.contract.base import events, positions, take
from fencepost.testing.faults import PATIENCE_S


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def listeners() -> int:
    return sum(thread.name == "fencepost-listener" for thread in threading.enumerate())


def wait_until(holds: Callable[[], bool], problem: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, problem
        time.sleep(0.005)


def use(url: str) -> None:
    """Open a store, use it so that its thread listens and several connections are open, and drop it."""
    store = fencepost.open(url)
    store.append(events("A"))
    subscription = store.subscribe(timeout_s=PATIENCE_S)
    take(subscription, 1)
    subscription.stop()
    store.append(events("A", count=2))


async def use_awaiting(url: str) -> None:
    store = await fencepost.aio.open(url)
    await asyncio.gather(*(store.append(events("A")) for _ in range(5)))
    async with store.subscribe(timeout_s=PATIENCE_S) as subscription:
        await anext(subscription)
    assert [event async for event in store.read()] != []


@pytest.mark.parametrize("awaiting", [False, True])
def test_a_store_that_is_dropped_releases_connections_pipe_and_thread(url: str, awaiting: bool) -> None:
    before = open_files()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(3):
            if awaiting:
                asyncio.run(use_awaiting(url))
            else:
                use(url)

        def is_released() -> bool:
            gc.collect()
            return listeners() == 0 and open_files() <= before

        wait_until(is_released, f"{open_files() - before} files and {listeners()} threads are left")
    assert [str(each.message) for each in caught if each.category is ResourceWarning and "schema" in str(each.message)]


def test_a_store_that_was_closed_is_dropped_in_silence(url: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        store = fencepost.open(url)
        store.append(events("A"))
        store.close()
        del store
        gc.collect()


def test_a_store_that_is_refused_leaves_no_connection(database_url: str, schema: str) -> None:
    before = open_files()
    with pytest.raises(FormatUnsupported) as refused:
        fencepost.open(database_url, schema=schema)
    assert open_files() == before
    assert refused.traceback  # which keeps what was being opened


def test_the_end_of_the_interpreter_does_not_wait_for_a_dropped_store(url: str) -> None:
    program = f"""
import fencepost
store = fencepost.open({url!r})
kept = store.subscribe(timeout_s=10)
store.append([fencepost.Event("A")])
next(kept)
other = fencepost.open({url!r})
other.append([fencepost.Event("A")])
del other
print("ended")
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE_S, check=True
    )
    assert done.stdout == "ended\n"
    assert "Exception" not in done.stderr


class Child:
    """A forked child that uses the objects that it has inherited and reports the results."""

    def __init__(self, act: Callable[[], list[str]]) -> None:
        read, write = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            try:
                os.write(write, "\n".join(act()).encode())
                os._exit(0)
            except BaseException as error:
                os.write(write, f"{type(error).__name__}: {error}".encode())
                os._exit(1)
        os.close(write)
        with open(read) as reports:
            self.report = reports.read().splitlines()
        _, status = os.waitpid(self._pid, 0)
        assert status == 0, self.report


async def call_at_once(call: Callable[..., Any], *arguments: Any) -> Any:
    return call(*arguments)


def refusal(act: Callable[[], object]) -> str:
    try:
        return f"returned {act()!r:.80}"
    except StoreClosed as error:
        return str(error)


@pytest.fixture
def forking(url: str) -> Iterator[EventStore]:
    """A store whose thread listens, with one connection besides."""
    with fencepost.open(with_option(url, "connections", "1")) as store:
        store.append([Event("A", data=bytes(100))] * 3_000)
        take(subscription := store.subscribe(timeout_s=PATIENCE_S), 1)
        subscription.stop()
        yield store


def backend(store: Any) -> Any:
    with engine_of(store).pool.connection() as connection:
        return connection.execute("SELECT pg_backend_pid()").fetchone()


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_is_refused_and_leaves_the_parents_connections_alone(forking: EventStore) -> None:
    engine: Any = engine_of(forking)
    assert isinstance(engine, PostgresEngine)
    reading = iter(forking.read())
    next(reading)
    before = backend(forking)

    def act() -> list[str]:
        acts: list[Callable[[], object]] = [
            lambda: forking.append(events("A")),
            lambda: forking.head(),
            lambda: forking.checkpoint("c"),
            lambda: list(forking.read()),
            lambda: list(reading),
            lambda: engine.head(),
            lambda: engine.record("records/c"),
            lambda: engine.commit([Append((Event("A"),))]),
            lambda: engine.wait(0, 0.1),
            lambda: list(engine.recorded(after=0, up_to=1)),
            lambda: asyncio.run(engine.commit_async([Append((Event("A"),))], in_thread=call_at_once)),
        ]
        refusals = [refusal(each) for each in acts]
        forking.close()
        engine.close()
        return refusals

    assert set(Child(act).report) == {FORKED}
    assert len(list(reading)) == 2_999
    assert forking.append(events("B")) == Placed(3_001, 3_001)
    assert backend(forking) == before


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_store_that_is_collected_in_a_forked_child_goes_on_in_the_parent(url: str) -> None:
    """The child sends nothing on the connections, and does not wake the thread that listens."""
    stores = [fencepost.open(with_option(url, "connections", "1"))]
    stores[0].append(events("A"))
    engine_of(stores[0]).wait(1, 0)  # which starts the thread that listens
    before = backend(stores[0])

    def act() -> list[str]:
        engine = weakref.ref(engine_of(stores[0]))
        stores.clear()
        gc.collect()
        return ["kept" if engine() else "collected"]

    assert Child(act).report == ["collected"]
    (store,) = stores
    assert backend(store) == before
    assert not engine_of(store).listener._closed  # type: ignore[attr-defined]
    with fencepost.open(url) as other:
        other.append(events("B"))
    assert positions(take(store.subscribe(timeout_s=PATIENCE_S), 2)) == [1, 2]
    store.close()


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_child_that_opens_the_store_again_can_use_it(forking: EventStore, url: str) -> None:
    def act() -> list[str]:
        with fencepost.open(url) as own:
            return [str(own.append(events("B")).first)]

    assert Child(act).report == ["3001"]
    assert forking.head() == 3_001


def test_the_library_of_postgresql_does_not_end_a_parents_session(url: str) -> None:
    """What the engine relies on: psycopg closes no connection of another process when it is collected."""
    connection = psycopg.connect(url.partition("?schema")[0] if "?schema" in url else url.partition("&schema")[0])
    held = [connection]
    del connection

    def act() -> list[str]:
        held.clear()
        gc.collect()
        return ["collected"]

    assert Child(act).report == ["collected"]
    assert held[0].execute("SELECT 1").fetchone() == (1,)
    held[0].close()
