"""The awaitable twin, where it differs from the store: tasks, threads and loops."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from tests.support.loops import loop_to_abandon

import fencepost.aio
from fencepost import Placed, Query, ReadingNotFinished, SequencedEvent, StoreClosed, StoreError
from fencepost.aio import THREADS, AsyncEventStore
from fencepost.core.engine import Capability, InThread
from fencepost.core.group_commit import BATCH_EVENTS
from fencepost.core.interrupts import pause
from fencepost.core.verdicts import Append, Verdict
from fencepost.engines.memory import MemoryEngine
from fencepost.testing.contract.base import events, tagged
from fencepost.testing.faults import PATIENCE_S, FaultyEngine, Gate, once


@pytest_asyncio.fixture
async def store() -> AsyncIterator[AsyncEventStore]:
    async with fencepost.aio.open("memory:") as store:
        yield store


async def test_a_store_is_opened_used_and_closed(tmp_path: Path) -> None:
    async with fencepost.aio.open(tmp_path / "store.db") as store:
        placed = await store.append(events("A", count=3))
        assert await store.head() == placed.last
    async with fencepost.aio.open(tmp_path / "store.db") as store:
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


class OneAtATime(MemoryEngine):
    """Counts how many threads or tasks commit at the same moment."""

    def __init__(self) -> None:
        super().__init__()
        self.committing, self.most = 0, 0

    def commit(self, appends: Sequence[Append]) -> Sequence[Verdict]:
        self.committing += 1
        self.most = max(self.most, self.committing)
        pause(0.001)  # so that another committer would overlap
        verdicts = super().commit(appends)
        self.committing -= 1
        return verdicts


async def test_the_blocking_face_joins_the_group_commit_of_the_tasks() -> None:
    engine = OneAtATime()
    async with AsyncEventStore(engine) as store:

        def append_in_thread() -> None:
            for _ in range(20):
                store.blocking.append(events("A"))

        threads = [asyncio.to_thread(append_in_thread) for _ in range(3)]
        await asyncio.gather(*threads, *[store.append(events("A")) for _ in range(60)])
        assert engine.most == 1
        assert await store.head() == 120
    with pytest.raises(StoreClosed):
        store.blocking.append(events("A"))


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
        subscription = store.subscribe(tagged("x"), timeout_s=PATIENCE_S)
        assert (await anext(subscription)).type == "Past"
        waiting.append(asyncio.create_task(_next_type(subscription)))
    await asyncio.sleep(0.02)
    busy = [thread for thread in threading.enumerate() if thread.name.startswith("fencepost-aio")]
    assert len(busy) <= THREADS
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


async def test_events_taken_without_waiting_count_for_the_position(store: AsyncEventStore) -> None:
    await store.append(events("A", count=4))
    subscription = store.subscribe(timeout_s=PATIENCE_S)
    assert (await anext(subscription)).position == 1
    assert [event.position for event in subscription.ready(2)] == [2, 3]
    assert subscription.position == 3
    subscription.stop()


async def test_with_no_patience_the_past_is_delivered_whole(store: AsyncEventStore) -> None:
    await store.append(events("A", count=2_500))
    assert len([event async for event in store.subscribe(timeout_s=0)]) == 2_500


async def test_a_silence_ends_the_iteration_and_it_can_be_taken_up_again(store: AsyncEventStore) -> None:
    subscription = store.subscribe(Query.all(), timeout_s=0.01)
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


def test_a_loop_that_ended_without_closing_its_store_does_not_disturb_other_loops() -> None:
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
            return [event.type async for event in store.subscribe(timeout_s=0)]

    assert asyncio.run(go_on()) == ["A", "B"]
    left.blocking.close()


async def _next_type(subscription: fencepost.aio.AsyncSubscription) -> str:
    return (await anext(subscription)).type


async def _all_of(subscription: fencepost.aio.AsyncSubscription) -> list[str]:
    return [event.type async for event in subscription]


async def test_a_reading_that_is_left_in_the_middle_of_a_page_can_be_continued(store: AsyncEventStore) -> None:
    await store.append(events("A", count=10))
    reading = store.read()
    async for event in reading:
        if event.position == 4:
            break
    assert [event.position async for event in reading] == [5, 6, 7, 8, 9, 10]


async def test_a_page_that_arrives_after_a_cancellation_is_returned_by_the_next_call() -> None:
    engine = MemoryEngine()
    gate = Gate()
    scan = engine.scan

    def scan_slowly(*args: Any, **bounds: Any) -> Iterator[Sequence[SequencedEvent]]:
        for number, page in enumerate(scan(*args, **bounds)):
            if number == 1:
                gate()
            yield page

    async with AsyncEventStore(engine) as store:
        await store.append(events("A", count=3_000))
        engine.scan = scan_slowly  # type: ignore[method-assign]
        reading = await store.read()
        found: list[int] = []

        async def take() -> None:
            async for event in reading:
                found.append(event.position)  # noqa: PERF401  what was taken before a cancellation stays

        taking = asyncio.create_task(take())
        await asyncio.to_thread(gate.wait_until_reached)
        taking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await taking
        gate.open()
        await take()
        assert found == list(range(1, 3_001))


class OnTheLoop(MemoryEngine):
    """Commits on the event loop, after a turn of it; not at all while it is held up."""

    capabilities = MemoryEngine.capabilities | Capability.ASYNC_COMMIT  # type: ignore[assignment,misc]

    def __init__(self, *, takes_a_thread: bool = False) -> None:
        super().__init__()
        self.free = asyncio.Event()
        self.begun = asyncio.Event()
        self.pending: asyncio.Task[Placed] | None = None
        self._takes_a_thread = takes_a_thread

    async def commit_async(self, appends: Sequence[Append], in_thread: InThread) -> Sequence[Verdict]:
        self.begun.set()
        await self.free.wait()
        return await in_thread(self.commit, appends) if self._takes_a_thread else self.commit(appends)


async def test_a_leader_that_is_cancelled_before_its_first_step_passes_the_lead_on() -> None:
    engine = OnTheLoop()
    engine.free.set()
    async with AsyncEventStore(engine) as store:
        begun = asyncio.create_task(store.append(events("A")))
        await asyncio.sleep(0)
        others = asyncio.all_tasks() - {asyncio.current_task()}
        assert len(others) == 2, "the caller and the task that will lead"
        for task in others:
            task.cancel()
        await asyncio.wait(others)
        assert begun.cancelled()
        async with asyncio.timeout(PATIENCE_S):
            assert (await store.append(events("B"))).first == 1


async def test_a_leader_that_is_cancelled_leaves_its_callers_an_answer() -> None:
    engine = OnTheLoop()
    async with AsyncEventStore(engine) as store:
        known = asyncio.all_tasks()
        begun = asyncio.create_task(store.append(events("A")))
        await engine.begun.wait()
        (leading,) = asyncio.all_tasks() - known - {begun}
        leading.cancel()
        engine.free.set()
        with pytest.raises(StoreError, match="interrupted"):
            await begun
        async with asyncio.timeout(PATIENCE_S):
            assert (await store.append(events("B"))).first == 1


@pytest.mark.parametrize("takes_a_thread", [True, False])
async def test_closing_while_more_than_a_batch_waits_answers_every_caller(takes_a_thread: bool) -> None:
    engine = OnTheLoop(takes_a_thread=takes_a_thread)
    store = AsyncEventStore(engine)
    appends = [asyncio.create_task(store.append(events("A")))]
    await engine.begun.wait()
    appends += [asyncio.create_task(store.append(events("A", count=BATCH_EVENTS - 1))) for _ in range(3)]
    await asyncio.sleep(0)
    await store.close()
    engine.free.set()
    async with asyncio.timeout(PATIENCE_S):
        answers = await asyncio.gather(*appends, return_exceptions=True)
    assert {type(answer) for answer in answers} == {StoreClosed if takes_a_thread else Placed}


async def test_a_store_is_opened_and_closed_by_async_with(tmp_path: Path) -> None:
    async with fencepost.aio.open(tmp_path / "store.db") as store:
        await store.append(events("A"))
    with pytest.raises(StoreClosed):
        await store.head()


def test_another_loop_is_told_that_the_store_is_not_its_own() -> None:
    async def open_store() -> AsyncEventStore:
        return await fencepost.aio.open("memory:")

    store = asyncio.run(open_store())

    async def use(verb: Callable[[], Any]) -> None:
        with pytest.raises(StoreClosed, match="opened on another event loop"):
            await verb()

    for verb in (
        lambda: store.append(events("A")),
        lambda: store.head(),
        lambda: store.checkpoint("name"),
        lambda: store.read(),
        lambda: anext(store.subscribe()),
    ):
        asyncio.run(use(verb))
    assert store.blocking.head() == 0, "threads may use it, whatever their loop"
    asyncio.run(store.close())


def test_a_reading_belongs_to_the_loop_of_its_store() -> None:
    async def begin() -> tuple[AsyncEventStore, fencepost.aio.AsyncReading]:
        store = await fencepost.aio.open("memory:")
        return store, store.read()

    store, reading = asyncio.run(begin())

    async def go_on() -> None:
        with pytest.raises(StoreClosed, match="another event loop"):
            await reading

    asyncio.run(go_on())
    store.blocking.close()


def test_an_append_whose_loop_has_ended_does_not_delay_the_blocking_face() -> None:
    engine, gate = FaultyEngine(MemoryEngine()), Gate()
    engine.before = once(gate)

    async def give_up() -> AsyncEventStore:
        store = AsyncEventStore(engine)
        with suppress(TimeoutError):
            async with asyncio.timeout(0.1):
                await store.append(events("A"))
        return store

    store = asyncio.run(give_up())
    gate.open()
    assert store.blocking.append(events("B")).last == 2
    store.blocking.close()


def test_loops_that_are_stopped_with_an_append_pending_hold_up_no_other_store() -> None:
    engine, gate = OnTheLoop(), []
    loops = [loop_to_abandon() for _ in range(8)]

    async def leave_pending() -> None:
        inner = OnTheLoop()
        store = AsyncEventStore(inner)
        gate.append((store, asyncio.ensure_future(store.append(events("A")))))
        await inner.begun.wait()

    for loop in loops:
        loop.run_until_complete(leave_pending())  # stopped, not closed

    async def go_on() -> int:
        engine.free.set()
        async with AsyncEventStore(engine) as store:
            return (await store.append(events("B"))).first

    assert asyncio.run(asyncio.wait_for(go_on(), PATIENCE_S)) == 1
    for loop in loops:
        loop.close()


async def test_the_blocking_face_is_refused_on_the_loop_while_a_task_commits() -> None:
    engine = OnTheLoop()
    async with AsyncEventStore(engine) as store:
        append = asyncio.create_task(store.append(events("A")))
        await engine.begun.wait()
        with pytest.raises(StoreError, match="nothing was stored"):
            store.blocking.append(events("B"))
        engine.free.set()
        assert (await append).first == 1
