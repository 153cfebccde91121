"""The awaitable twin under the same contract: mixed into a bound contract, it runs all of its tests."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import uuid4

import pytest

from ...core.engine import Capability, Engine
from ...errors import StoreClosed
from ...model import Event
from ..faults import PATIENCE_S, FaultyEngine, Gate, once
from ..stores import BlockingStore, Store, engine_beneath
from .base import Contract, events, positions, types


class Awaitable(Contract):
    """`class TestMineAwaitable(Awaitable, TestMine): ...`"""

    def open_store(self) -> Store:
        return self.store_over(engine_beneath(super().open_store()))

    def open_again(self) -> Store:
        again = super().open_again()
        return again if isinstance(again, BlockingStore) else self.store_over(engine_beneath(again))

    def store_over(self, engine: Engine) -> BlockingStore:
        return BlockingStore(engine)

    def faulty_with_gate(self, store: Store) -> tuple[FaultyEngine, BlockingStore, Gate]:
        engine, held = self.faulty(store)
        assert isinstance(held, BlockingStore)
        return engine, held, Gate()

    def test_an_append_cancelled_before_a_batch_took_it_is_never_stored(self, store: Store) -> None:
        engine, held, gate = self.faulty_with_gate(store)
        engine.before = once(gate)

        async def append() -> None:
            first = asyncio.create_task(held.awaitable.append(events("First")))
            await asyncio.to_thread(gate.wait_until_reached)
            second = asyncio.create_task(held.awaitable.append(events("Cancelled")))
            third = asyncio.create_task(held.awaitable.append(events("Third")))
            await asyncio.sleep(0)
            await _cancel(second)
            gate.open()
            await asyncio.gather(first, third)

        if Capability.GROUP_COMMIT in engine.capabilities:
            held.run(append())
            assert types(store.read()) == ["First", "Third"]

    def test_an_append_cancelled_after_a_batch_took_it_is_stored_whole_and_its_ids_tell(self, store: Store) -> None:
        engine, held, gate = self.faulty_with_gate(store)
        engine.before = once(gate)
        cancelled = [Event("Cancelled", id=uuid4()), Event("Cancelled", id=uuid4())]

        async def append() -> None:
            task = asyncio.create_task(held.awaitable.append(cancelled))
            await asyncio.to_thread(gate.wait_until_reached)
            await _cancel(task)
            gate.open()

        held.run(append())
        placed = held.append(cancelled)
        assert positions(store.read()) == [placed.first, placed.last]
        assert [event.id for event in store.read()] == [event.id for event in cancelled]

    def test_many_tasks_append_and_each_is_stored_once(self, store: BlockingStore) -> None:
        async def append_all() -> list[int]:
            placed = await asyncio.gather(*[store.awaitable.append(events("A", f"task:{n}")) for n in range(200)])
            return [one.first for one in placed]

        assert sorted(store.run(append_all())) == positions(store.read())

    def test_cancelled_tasks_leave_no_others_waiting(self, store: BlockingStore) -> None:
        async def append_some() -> tuple[int, int]:
            tasks = [asyncio.create_task(store.awaitable.append(events("A", f"task:{n}"))) for n in range(200)]
            await asyncio.sleep(0)
            for task in tasks[::3]:
                task.cancel()
            async with asyncio.timeout(PATIENCE_S):
                await asyncio.wait(tasks)
            return sum(not task.cancelled() for task in tasks), len(tasks)

        acknowledged, all_of_them = store.run(append_some())
        assert acknowledged <= len(list(store.read())) <= all_of_them
        assert store.append(events("Last")).first == store.head()

    def test_a_subscriber_cancelled_while_it_reads_the_past_loses_nothing(self, store: Store) -> None:
        store.append(events("Past", count=10))
        engine, held, gate = self.faulty_with_gate(store)
        engine.before_scan = once(gate)

        async def follow() -> list[int]:
            subscription = held.awaitable.subscribe(timeout_s=PATIENCE_S)
            task = asyncio.ensure_future(anext(subscription))
            await asyncio.to_thread(gate.wait_until_reached)
            await _cancel(task)
            gate.open()
            received = [(await anext(subscription)).position for _ in range(10)]
            subscription.stop()
            return received

        assert held.run(follow()) == positions(store.read())

    def test_a_subscriber_cancelled_while_it_waits_loses_nothing(self, store: BlockingStore) -> None:
        async def follow() -> list[str]:
            subscription = store.awaitable.subscribe(timeout_s=PATIENCE_S)
            received = []
            for number in range(5):
                task = asyncio.ensure_future(anext(subscription))
                await asyncio.sleep(0.005)
                await _cancel(task)
                await store.awaitable.append(events(f"Type{number}"))
                received.append((await anext(subscription)).type)
            subscription.stop()
            return received

        assert store.run(follow()) == [f"Type{number}" for number in range(5)]

    def test_a_reading_begins_when_it_is_awaited(self, store: BlockingStore) -> None:
        async def read() -> tuple[int, list[str]]:
            await store.awaitable.append(events("Before"))
            reading = await store.awaitable.read()
            head = reading.head
            await store.awaitable.append(events("After"))
            return head, [event.type async for event in reading]

        head, found = store.run(read())
        assert (positions(store.read(up_to=head))[-1], found) == (head, ["Before"])

    def test_a_closed_store_says_so_to_what_was_begun_before(self, store: BlockingStore) -> None:
        async def read() -> None:
            reading = store.awaitable.read()
            await store.awaitable.close()
            with pytest.raises(StoreClosed):
                await reading

        store.run(read())


async def _cancel(task: asyncio.Future[Any]) -> None:
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
