"""The awaitable twin, where it differs from the store: tasks, threads and loops."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

import fencepost.aio
from fencepost import Query, ReadingNotFinished, StoreClosed
from fencepost.aio import AsyncEventStore
from fencepost.engines.memory import MemoryEngine
from fencepost.testing.contract.base import events, tagged
from fencepost.testing.faults import PATIENCE_S, FaultyEngine, Gate, once


@pytest_asyncio.fixture
async def store() -> AsyncIterator[AsyncEventStore]:
    async with await fencepost.aio.open("memory:") as store:
        yield store


async def test_a_store_is_opened_used_and_closed(tmp_path: Path) -> None:
    async with await fencepost.aio.open(tmp_path / "store.db") as store:
        placed = await store.append(events("A", count=3))
        assert await store.head() == placed.last
    async with await fencepost.aio.open(tmp_path / "store.db") as store:
        assert [event.type async for event in store.read()] == ["A"] * 3


async def test_everything_after_closing_says_that_the_store_is_closed(store: AsyncEventStore) -> None:
    await store.close()
    await store.close()
    for verb in (store.head, lambda: store.checkpoint("name"), lambda: store.append(events("A"))):
        with pytest.raises(StoreClosed):
            await verb()
    for iteration in (store.read, store.subscribe):
        with pytest.raises(StoreClosed):
            iteration()


async def test_the_loop_is_free_while_an_append_commits() -> None:
    engine, gate = FaultyEngine(MemoryEngine()), Gate()
    engine.before = once(gate)
    async with AsyncEventStore(engine) as store:
        append = asyncio.create_task(store.append(events("A")))
        await asyncio.to_thread(gate.wait_until_reached)
        assert not append.done()
        gate.open()
        assert (await append).first == 1


async def test_the_appends_of_many_tasks_are_few_batches() -> None:
    engine, gate = FaultyEngine(MemoryEngine()), Gate()
    batches = 0

    def count() -> None:
        nonlocal batches
        batches += 1

    engine.before = once(gate)
    engine.after = count
    async with AsyncEventStore(engine) as store:
        appends = [asyncio.create_task(store.append(events("A"))) for _ in range(500)]
        await asyncio.to_thread(gate.wait_until_reached)
        gate.open()
        await asyncio.gather(*appends)
    assert batches <= 3


async def test_a_live_subscription_takes_no_thread(store: AsyncEventStore) -> None:
    await store.append(events("Past", "x"))
    waiting = []
    for _ in range(20):
        subscription = store.subscribe(tagged("x"), timeout=PATIENCE_S)
        assert (await anext(subscription)).type == "Past"
        waiting.append(asyncio.create_task(_next_type(subscription)))
    await asyncio.sleep(0.02)
    busy = [thread for thread in threading.enumerate() if thread.name.startswith("fencepost-aio")]
    assert len(busy) <= fencepost.aio.THREADS
    await store.append(events("Live", "x"))
    assert await asyncio.gather(*waiting) == ["Live"] * 20


async def test_a_reading_that_has_not_begun_has_no_head(store: AsyncEventStore) -> None:
    reading = store.read()
    with pytest.raises(ReadingNotFinished):
        _ = reading.head
    assert (await reading).head == 0


async def test_a_subscription_ends_with_its_async_with_block(store: AsyncEventStore) -> None:
    await store.append(events("A", count=2))
    async with store.subscribe() as subscription:
        assert (await anext(subscription)).type == "A"
    assert [event async for event in subscription] == []


async def test_with_no_patience_the_past_is_delivered_whole(store: AsyncEventStore) -> None:
    await store.append(events("A", count=2_500))
    assert len([event async for event in store.subscribe(timeout=0)]) == 2_500


async def test_a_silence_ends_the_iteration_and_it_can_be_taken_up_again(store: AsyncEventStore) -> None:
    subscription = store.subscribe(Query.all(), timeout=0.01)
    assert [event async for event in subscription] == []
    await store.append(events("A"))
    received: list[str] = []
    while not received:
        received += [event.type async for event in subscription]
    assert received == ["A"]
    subscription.stop()


async def test_closing_ends_the_subscribers_that_wait(store: AsyncEventStore) -> None:
    subscriptions = [store.subscribe() for _ in range(5)]
    waiting = [asyncio.create_task(_all_of(subscription)) for subscription in subscriptions]
    await asyncio.sleep(0.02)
    await store.close()
    async with asyncio.timeout(PATIENCE_S):
        assert await asyncio.gather(*waiting) == [[]] * 5


def test_a_loop_that_ended_without_closing_its_store_disturbs_nobody() -> None:
    engine = MemoryEngine()

    async def leave_behind() -> AsyncEventStore:
        store = AsyncEventStore(engine)
        await store.append(events("A"))
        assert (await anext(store.subscribe())).type == "A"
        return store

    left = asyncio.run(leave_behind())

    async def go_on() -> list[str]:
        async with AsyncEventStore(engine) as store:
            await store.append(events("B"))
            return [event.type async for event in store.subscribe(timeout=0)]

    assert asyncio.run(go_on()) == ["A", "B"]
    left._store.close()


async def _next_type(subscription: fencepost.aio.AsyncSubscription) -> str:
    return (await anext(subscription)).type


async def _all_of(subscription: fencepost.aio.AsyncSubscription) -> list[str]:
    return [event.type async for event in subscription]


async def test_who_leaves_a_reading_in_the_middle_of_a_page_comes_back_for_the_rest(store: AsyncEventStore) -> None:
    await store.append(events("A", count=10))
    reading = store.read()
    async for event in reading:
        if event.position == 4:
            break
    assert [event.position async for event in reading] == [5, 6, 7, 8, 9, 10]
