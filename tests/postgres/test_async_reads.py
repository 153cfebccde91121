"""Reads on the event loop, which need no thread, and the cases in which a thread takes over."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
from tests.postgres.stepping import hand

import fencepost
import fencepost.aio
from fencepost import Event, Query
from fencepost.aio import AsyncEventStore
from fencepost.core.verdicts import Append
from fencepost.engine import engine_of
from fencepost.engines.postgres.read_pipeline import PIPELINES
from fencepost.testing.contract.base import tagged
from fencepost.testing.faults import PATIENCE_S

WALLETS = 40
EAGER: Any = getattr(asyncio, "eager_task_factory", None)


@pytest.fixture
def filled(url: str) -> str:
    with fencepost.open(url) as store:
        for number in range(WALLETS):
            store.append([Event("Opened", data=b"%d" % number, tags={f"wallet:{number}"}) for _ in range(3)])
        store.append([Event("Noted", tags={"busy"}) for _ in range(1_500)])
    return url


async def data_of(store: AsyncEventStore, number: int) -> list[bytes]:
    return [event.data async for event in store.read(tagged(f"wallet:{number}"))]


def no_thread(*_: object) -> Any:
    raise AssertionError("this must happen on the event loop")


def run(url: str, act: Callable[[AsyncEventStore], Any], **options: Any) -> None:
    async def opened() -> None:
        async with fencepost.aio.open(url, **options) as store:
            await data_of(store, 0)  # which connects and prepares, in a thread
            await act(store)

    asyncio.run(opened())


def test_a_small_reading_takes_no_thread(filled: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def act(store: AsyncEventStore) -> None:
        monkeypatch.setattr(ThreadPoolExecutor, "submit", no_thread)
        assert await data_of(store, 7) == [b"7"] * 3
        reading = await store.read(Query.of(types={"Opened"}, tags={"wallet:8"}), limit=2, backwards=True)
        assert [event.data async for event in reading] == [b"8"] * 2
        assert reading.head == WALLETS * 3 + 1_500
        monkeypatch.undo()

    run(filled, act)


def test_a_long_reading_goes_on_in_a_thread(filled: str) -> None:
    async def act(store: AsyncEventStore) -> None:
        assert len([event async for event in store.read(tagged("busy"))]) == 1_500

    run(filled, act)


def test_many_at_once_each_get_their_own_answer(filled: str) -> None:
    async def act(store: AsyncEventStore) -> None:
        for _ in range(5):
            found = await asyncio.gather(*(data_of(store, number) for number in range(WALLETS)))
            assert found == [[b"%d" % number] * 3 for number in range(WALLETS)]

    run(filled, act, connections=3)


def test_a_cancelled_reading_leaves_no_answer_to_another_one(filled: str) -> None:
    async def act(store: AsyncEventStore) -> None:
        for number in range(WALLETS):
            left = asyncio.ensure_future(data_of(store, number))
            await asyncio.sleep(0.0002 * (number % 5))
            left.cancel()
            other = (number + 1) % WALLETS
            assert await data_of(store, other) == [b"%d" % other] * 3

    run(filled, act, connections=1)


def test_a_lost_connection_is_made_up_for(filled: str, connection: psycopg.Connection[Any]) -> None:
    async def act(store: AsyncEventStore) -> None:
        readings = [asyncio.ensure_future(data_of(store, number)) for number in range(WALLETS)]
        await asyncio.sleep(0)
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE application_name = 'fencepost' AND datname = current_database() AND pid <> pg_backend_pid()"
        )
        assert await asyncio.gather(*readings) == [[b"%d" % number] * 3 for number in range(WALLETS)]

    run(filled, act)


def test_readings_leave_the_only_connection_to_a_thread_that_waits_for_it(filled: str) -> None:
    async def act(store: AsyncEventStore) -> None:
        done = False

        async def keep_reading(number: int) -> None:
            while not done:
                assert await data_of(store, number) == [b"%d" % number] * 3

        readers = [asyncio.ensure_future(keep_reading(number)) for number in range(WALLETS)]
        await asyncio.sleep(0.05)
        try:
            for number in range(3):
                placed = await store.append([Event("Noted", tags={"beside"})])
                assert placed.last == WALLETS * 3 + 1_500 + number + 1
        finally:
            done = True
            await asyncio.gather(*readers)

    run(filled, act, connections=1)


@pytest.mark.skipif(EAGER is None, reason="tasks start eagerly from Python 3.12 on")
def test_tasks_that_start_eagerly_do_not_stand_in_the_way(filled: str) -> None:
    """A task that finds all connections busy ends before `create_task` returns."""

    async def act(store: AsyncEventStore) -> None:
        engine: Any = engine_of(store)
        asyncio.get_running_loop().set_task_factory(EAGER)
        with engine.pool.borrow():
            for _ in range(PIPELINES + 1):
                assert await asyncio.wait_for(engine._pipeline.rows((None,) * 6), PATIENCE_S) is None
        assert await data_of(store, 7) == [b"7"] * 3

    run(filled, act, connections=1)


def test_stopped_loops_with_appends_pending_hold_up_no_other_store(filled: str, database_url: str, schema: str) -> None:
    """Each loop has a store of its own, and the server finishes an append without its client."""
    loops = [asyncio.new_event_loop() for _ in range(8)]
    stores = [loop.run_until_complete(fencepost.aio.open(filled, connections=1)) for loop in loops]
    with hand(database_url, schema) as other:  # which has the lock of the store, so that no append can finish
        other.append(Append((Event("Before"),)))
        pending = [
            loop.create_task(store.append([Event("Pending")])) for loop, store in zip(loops, stores, strict=True)
        ]
        for loop in loops:
            loop.run_until_complete(asyncio.sleep(0.01))
    with fencepost.open(filled, connections=1) as store:
        later = store.append([Event("Later")]).last
        assert len(list(store.read(Query.of(tags={"wallet:7"})))) == 3
    placed = [loop.run_until_complete(append).last for loop, append in zip(loops, pending, strict=True)]
    assert len({later, *placed}) == 9
    for loop, store in zip(loops, stores, strict=True):
        loop.run_until_complete(store.close())
        loop.close()
