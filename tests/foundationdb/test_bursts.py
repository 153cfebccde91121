"""Many calls at once: they take turns, so that each has its five seconds, and none waits for ever.

On the timed network the client and the cluster take as long for each call as a small cluster did. There a burst
without turns collapses: every transaction is too old when its commit comes, and all of them begin again.
"""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.support.simulated_fdb import Fault, NetworkThread, SimulatedCluster, TimedNetwork

from fencepost import AppendCondition, Event, EventStore, InvalidInput, Placed, Query, StoreUnavailable
from fencepost.aio import AsyncEventStore
from fencepost.engines.foundationdb.transactions import Turn, Turns

from .clusters import engine_on


class Burst:
    """A store on a cluster on which calls take time."""

    def __init__(self, *, slower: float = 1, **options: Any) -> None:
        self.cluster = SimulatedCluster(1, late=0.0)
        self.engine = engine_on(self.cluster, **options)
        self.network = TimedNetwork(slower)
        self.cluster.use(self.network)
        self.store = AsyncEventStore(self.engine)

    def begin(self, appends: int) -> list[asyncio.Task[Placed]]:
        return [asyncio.create_task(self.append(number)) for number in range(appends)]

    async def append(self, number: int) -> Placed:
        entity = {f"entity:{number}"}
        return await self.store.append([Event("A", tags=entity)], AppendCondition(Query.of(tags=entity)))

    async def answer_until(self, done: Callable[[], bool], at_a_time: int = 32) -> None:
        while not done():
            for _ in range(at_a_time):
                self.network.answer_next()
            await asyncio.sleep(0)

    async def outcomes(self, calls: list[asyncio.Task[Placed]]) -> list[Placed | BaseException]:
        all_of_them = asyncio.gather(*calls, return_exceptions=True)
        await self.answer_until(all_of_them.done)
        return await all_of_them


@pytest.fixture
def without_collections() -> Iterator[None]:
    """Tens of thousands of tasks make each collection of cycles slow, and there are no cycles to collect."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("without_collections")
async def test_a_burst_of_20000_appends_is_stored_without_an_error() -> None:
    burst = Burst()
    appends = [asyncio.create_task(burst.store.append([Event("A")])) for _ in range(20_000)]
    outcomes = await burst.outcomes(appends)
    assert [outcome for outcome in outcomes if not isinstance(outcome, Placed)] == []
    assert burst.cluster.commits == 20_000 + 1, "once each, and the format of the store"
    assert burst.cluster.now_s > 15, "far longer than a transaction may last"


async def test_without_turns_a_burst_collapses() -> None:
    burst = Burst(slower=10, max_transactions=1_000_000)
    outcomes = await burst.outcomes(burst.begin(1_500))
    failures = [outcome for outcome in outcomes if isinstance(outcome, StoreUnavailable)]
    assert len(failures) > 750
    assert all("too many calls" in str(failure) for failure in failures)


async def test_reads_and_waits_for_a_new_head_do_not_wait_for_the_appends_that_came_before() -> None:
    burst = Burst(max_transactions=16)
    appends = burst.begin(500)
    await asyncio.sleep(0)

    async def read() -> int:
        return (await burst.store.read(Query.of(types={"Absent"}))).head

    reads: list[asyncio.Future[int]] = [asyncio.create_task(read()) for _ in range(5)]
    reads.append(asyncio.ensure_future(asyncio.to_thread(burst.engine.wait, 0, 60)))
    await burst.answer_until(lambda: all(each.done() for each in reads))
    assert sum(append.done() for append in appends) < 400
    await burst.outcomes(appends)


async def test_an_append_that_waits_before_another_try_gives_its_turn_to_others() -> None:
    burst = Burst(max_transactions=1)
    burst.cluster.faults.script("commit", Fault(1020))
    conflicting, other = burst.begin(2)
    await burst.answer_until(other.done, at_a_time=1)
    assert not conflicting.done()
    await burst.outcomes([conflicting])


async def test_a_call_that_is_cancelled_while_it_waits_lets_the_next_one_pass() -> None:
    burst = Burst(max_transactions=1)
    first, cancelled, last = burst.begin(3)
    await asyncio.sleep(0)
    cancelled.cancel()
    await burst.answer_until(lambda: first.done() and last.done())
    assert cancelled.cancelled()
    assert burst.cluster.commits == 2 + 1


async def test_a_call_that_is_cancelled_in_its_turn_gives_it_back() -> None:
    burst = Burst(max_transactions=1)
    first, second = burst.begin(2)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    first.cancel()
    await burst.answer_until(second.done)
    assert isinstance(await second, Placed)


def test_threads_take_turns_too() -> None:
    network = NetworkThread()
    cluster = SimulatedCluster(1, late=0.0, network=network)
    store = EventStore(engine_on(cluster, max_transactions=2))
    threads = [threading.Thread(target=lambda n=n: store.append([Event("A", tags={f"x:{n}"})])) for n in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(list(store.read())) == 20
    network.stop()


def test_what_waits_for_its_turn_fails_when_the_cluster_has_been_silent_for_as_long() -> None:
    """A long queue would take hours to fail otherwise, one call after the other."""
    turns = Turns(1)
    holder, early, late = Turn(turns), Turn(turns), Turn(turns)
    for turn in (holder, early, late):
        turns.take(turn, again=False)
    early.since, late.since = 1.0, 3.0
    turns.note_silence(since=2.0)
    with pytest.raises(StoreUnavailable, match="still waiting for its turn, so nothing was changed"):
        early.wait()
    assert not late.is_ready()
    holder.give_back()
    assert late.held


def test_what_waits_for_its_turn_goes_on_waiting_while_others_are_answered() -> None:
    turns = Turns(1)
    holder, waiting = Turn(turns), Turn(turns)
    for turn in (holder, waiting):
        turns.take(turn, again=False)
    turns.note_answer()
    turns.note_silence(since=waiting.since)
    assert not waiting.is_ready()


async def test_during_an_outage_a_queue_fails_with_the_calls_before_it() -> None:
    burst = Burst(max_transactions=4)
    burst.cluster.faults.script("read", *[Fault(1031)] * 12)
    outcomes = await burst.outcomes(burst.begin(40))
    assert {type(outcome) for outcome in outcomes} == {StoreUnavailable}
    assert sum("for its turn" in str(outcome) for outcome in outcomes) == 36


@pytest.mark.parametrize("number", [0, -1, "many"])
def test_the_number_of_transactions_is_checked(number: object) -> None:
    with pytest.raises(InvalidInput, match="max_transactions: a number of at least 1 is needed"):
        engine_on(SimulatedCluster(1), max_transactions=number)
