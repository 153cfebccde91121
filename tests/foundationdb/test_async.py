"""On an event loop no append and no read takes a thread: the client's network thread calls back."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest
from tests.support.simulated_fdb import Fault, NetworkThread, SimulatedCluster

from fencepost import AppendCondition, ConditionFailed, Event, EventStore, Query
from fencepost.aio import AsyncEventStore
from fencepost.engines.foundationdb.engine import FoundationDBEngine

from .clusters import engine_on, simulated
from .test_simulated_client import interrupted_wait

QUERY = Query.of(types={"A"}, tags={"x"})


@pytest.fixture
def network() -> Iterator[NetworkThread]:
    network = NetworkThread()
    yield network
    network.stop()


@pytest.fixture
def cluster(network: NetworkThread) -> SimulatedCluster:
    return SimulatedCluster(1, late=0.0, network=network)


@pytest.fixture
def engine(cluster: SimulatedCluster) -> FoundationDBEngine:
    return engine_on(cluster)


async def test_a_hundred_appends_and_reads_wait_at_once_and_take_no_thread(
    engine: FoundationDBEngine, network: NetworkThread
) -> None:
    store = AsyncEventStore(engine)
    network.hold()
    appends = [
        asyncio.create_task(store.append([Event("A", tags={f"x:{n}"})], AppendCondition(Query.of(tags={f"x:{n}"}))))
        for n in range(100)
    ]

    async def begin() -> int:
        return (await store.read(QUERY)).head

    reads = [asyncio.create_task(begin()) for _ in range(100)]
    await asyncio.sleep(0.05)
    assert not any(task.done() for task in [*appends, *reads])
    assert [thread.name for thread in threading.enumerate() if thread.name.startswith("fencepost-aio")] == []
    network.release()
    placed = await asyncio.gather(*appends)
    await asyncio.gather(*reads)
    assert len({each.first for each in placed}) == 100
    assert [event.position async for event in store.read()] == sorted(each.first for each in placed)


async def test_verdicts_and_retries_are_those_of_a_thread(
    engine: FoundationDBEngine, cluster: SimulatedCluster
) -> None:
    store = AsyncEventStore(engine)
    cluster.faults.script("commit", Fault(1020), Fault(1021))
    await store.append([Event("A", tags={"x"})])
    with pytest.raises(ConditionFailed):
        await store.append([Event("B")], AppendCondition(QUERY))
    assert [event.type async for event in store.read(QUERY)] == ["A"]


async def test_an_append_that_is_cancelled_is_stored_whole_or_not_at_all(
    engine: FoundationDBEngine, network: NetworkThread
) -> None:
    store = AsyncEventStore(engine)
    network.hold()
    append = asyncio.create_task(store.append([Event("A"), Event("A")]))
    await asyncio.sleep(0.01)
    append.cancel()
    with pytest.raises(asyncio.CancelledError):
        await append
    network.release()
    await store.append([Event("B")])
    assert [event.type async for event in store.read()] in (["B"], ["A", "A", "B"])


def test_a_loop_that_is_closed_before_the_answer_comes_disturbs_nothing(
    engine: FoundationDBEngine, network: NetworkThread
) -> None:
    async def leave() -> None:
        network.hold()
        task = asyncio.create_task(AsyncEventStore(engine).append([Event("A")]))
        await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.wait([task])

    asyncio.run(leave())
    network.release()
    assert EventStore(engine).append([Event("B")]).first > 0


def test_reads_that_are_under_way_when_an_append_commits_do_not_harm_it(engine: FoundationDBEngine) -> None:
    """An intersection ends with its first empty tag, while the reads of its other tags are still under way."""
    store = EventStore(engine)
    for _ in range(5):
        store.append([Event("A", tags={"b", "c"})])
        store.append([Event("B")], AppendCondition(Query.of(tags={"absent", "b", "c"})))
    assert len(list(store.read())) == 10


def test_after_an_interrupt_the_next_call_waits_for_its_own_answer(
    engine: FoundationDBEngine, network: NetworkThread
) -> None:
    store = EventStore(engine)
    network.hold()
    late = threading.Timer(5, network.release)
    late.start()
    interrupted_wait(lambda: store.append([Event("A")]))
    assert late.is_alive(), "the interrupt ended the wait, not the answer"
    late.cancel()
    network.release()
    for _ in range(20):
        placed = store.append([Event("B")])
        assert store.head() == placed.last


def test_threads_work_on_a_network_thread(cluster: SimulatedCluster) -> None:
    engine = FoundationDBEngine(simulated(cluster), namespace="test")
    store = EventStore(engine)
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for _ in range(10):
                store.append([Event("A", tags={f"n:{number}"})])
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert len(list(store.read())) == 80


def test_a_waiting_subscriber_is_woken_by_the_network_thread(engine: FoundationDBEngine) -> None:
    heads: list[int] = []
    waiting = threading.Thread(target=lambda: heads.append(engine.wait(0, 60)))
    waiting.start()
    placed = EventStore(engine).append([Event("A")])
    waiting.join(60)
    assert heads == [placed.last]
