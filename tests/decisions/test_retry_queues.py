"""Turns: calls that conflicted go on one after another, and no call is left waiting."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import fencepost
from fencepost import Event, EventStore, Query, QueryItem, aio
from fencepost.decisions import Projection, Retry, Tag, decision, encode, event, on
from fencepost.decisions.retry import RetryQueues, Turn, _queues, contended_bucket, in_turn

from .test_deciding import Watched
from .wallets import Balance, WithdrawalMade, open_wallet, withdraw

LONG_S = 200.0  # longer than the test may take: a call that waits this long fails it
PATIENT = Retry(base_s=0, cap_s=0, deadline_s=LONG_S)
HERE = (("course:1",), None)


@event
class Subscribed:
    course_id: Tag
    student_id: Tag


class Taken(Projection):
    course_id: Tag
    seats: int = 0

    @on
    def _(self, event: Subscribed) -> None:
        self.seats += 1


class Courses(Projection):
    student_id: Tag
    courses: int = 0

    @on
    def _(self, event: Subscribed) -> None:
        self.courses += 1


def nobody_queues(store: object) -> bool:
    return store not in _queues or not _queues[store]._by_bucket


def in_threads(*works: Callable[[], None]) -> None:
    threads = [threading.Thread(target=work) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


class TestThePlace:
    @pytest.mark.parametrize(
        ("items", "bucket"),
        [
            ([QueryItem(types={"A", "B"}, tags={"x:1"})], (("x:1",), None)),
            ([QueryItem(types={"B"}, tags={"x:1"}), QueryItem(types={"A"}, tags={"y:2"})], (("y:2",), None)),
            ([QueryItem(types={"A"}, tags={"x:1", "y:2"}), QueryItem(types={"A"}, tags={"y:2"})], (("y:2",), None)),
            ([QueryItem(types={"A", "B"})], ((), "A")),
            ([QueryItem()], ((), None)),
        ],
    )
    def test_is_the_widest_item_that_the_conflict_matches(self, items: Any, bucket: Any) -> None:
        assert contended_bucket(Query(items), Event("A", tags={"x:1", "y:2"})) == bucket


class TestThreads:
    def test_that_met_in_a_conflict_need_one_more_attempt_each(self, address: str) -> None:
        """Their boundaries differ, in the student, and meet in the course."""
        count = 16
        at_once = threading.Barrier(count)
        attempts: Counter[str] = Counter()

        @decision(retry=PATIENT)
        def subscribe(taken: Taken, student: Courses) -> Subscribed:
            attempts[student.student_id] += 1
            if attempts[student.student_id] == 1:
                at_once.wait()
            return Subscribed(taken.course_id, student.student_id)

        with fencepost.open(address) as store:
            in_threads(*(lambda n=n: subscribe(store, Taken("1"), Courses(str(n))) for n in range(count)))  # type: ignore[misc]
            assert store.head() == count
            assert sorted(attempts.values()) == [1] + [2] * (count - 1)
            assert nobody_queues(store)

    def test_go_on_in_the_order_in_which_they_came(self, store: EventStore) -> None:
        holder, order = Turn(HERE, LONG_S), []
        holder.run(store)

        def wait(number: int) -> None:
            turn = Turn(HERE, LONG_S)
            turn.run(store)
            order.append(number)
            turn.leave()

        threads = []
        for number in range(5):
            threads.append(threading.Thread(target=wait, args=(number,)))
            threads[-1].start()
            while len(_queues[store]._by_bucket[HERE]) < number + 2:
                pass
        assert (holder.held, order) == (True, [])
        holder.leave()
        for thread in threads:
            thread.join()
        assert order == [0, 1, 2, 3, 4]
        assert nobody_queues(store)

    def test_do_not_wait_for_those_at_another_place_or_store(self, store: EventStore) -> None:
        with fencepost.open("memory:") as other:
            turns = [Turn(HERE, LONG_S), Turn((("course:2",), None), LONG_S)]
            elsewhere = Turn(HERE, LONG_S)
            for turn in turns:
                turn.run(store)
            elsewhere.run(other)
            assert all(turn.held for turn in (*turns, elsewhere))

    def test_wait_no_longer_than_their_limit_and_then_go_on_without(self, store: EventStore) -> None:
        holder, late, next_one = Turn(HERE, LONG_S), Turn(HERE, 0.01), Turn(HERE, LONG_S)
        holder.run(store)
        late.run(store)
        assert not late.held
        holder.leave()
        next_one.run(store)
        assert next_one.held

    def test_do_not_wait_for_a_caller_that_keeps_its_turn(
        self, store: EventStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("fencepost.decisions.retry.TURN_S", 0.01)
        holder, order = Turn(HERE, LONG_S), []
        holder.run(store)

        def wait(number: int) -> None:
            turn = Turn(HERE, LONG_S)
            turn.run(store)
            order.append(number)
            if number == 2:
                turn.leave()

        in_threads(*(lambda n=n: wait(n) for n in range(3)))  # type: ignore[misc]
        assert (holder.held, sorted(order)) == (False, [0, 1, 2])
        holder.leave()

    def test_overtaken_unawares_go_on(self, store: EventStore) -> None:
        first, second, third = Turn(HERE, LONG_S), Turn(HERE, 0), Turn(HERE, 0)
        queues = RetryQueues()
        assert [queues.join(turn) for turn in (first, second, third)] == [first, first, first]
        assert queues.overtake(third, first) is second
        assert queues.overtake(third, second) is third
        assert queues.overtake(second, first) is second
        assert [turn.held for turn in (first, second, third)] == [False, False, True]

    def test_may_leave_twice_and_without_having_come(self, store: EventStore) -> None:
        never, holder, following = Turn(HERE, LONG_S), Turn(HERE, LONG_S), Turn(HERE, LONG_S)
        never.leave()
        holder.run(store)
        holder.leave()
        following.run(store)
        holder.leave()
        never.leave()
        assert following.held


class TestARuleThatDecides:
    def test_in_its_turn_does_not_make_the_inner_decision_queue(self, store: EventStore) -> None:
        outer, inner = Turn(HERE, LONG_S), Turn(HERE, LONG_S)
        outer.run(store)
        with in_turn(outer):
            inner.run(store)
        after = Turn(HERE, 0)
        after.run(store)
        assert (inner.held, after.held) == (False, False)

    @pytest.mark.timeout(60)
    def test_on_the_same_boundary_is_not_stuck(self) -> None:
        inner = withdraw.with_retry(PATIENT)
        with Watched() as store:
            open_wallet(store, wallet_id="w1", balance=100)
            attempts: list[int] = []

            @decision(retry=PATIENT)
            def outer(balance: Balance) -> WithdrawalMade:
                attempts.append(balance.amount)
                if len(attempts) == 2:
                    store.before_append = rivals("b")
                    inner(store, Balance("w1"), withdrawal_id="inner", amount=1)
                return WithdrawalMade(balance.wallet_id, "outer", 1)

            store.before_append = rivals("a")
            outer(store, Balance("w1"))
            assert attempts == [100, 99, 97]
            assert nobody_queues(store)


class TestWhoGoes:
    @pytest.mark.parametrize("error", [ValueError("no"), KeyboardInterrupt()])
    def test_by_an_error_of_the_rule_leaves_the_turn(self, error: BaseException) -> None:
        attempts: list[int] = []

        @decision
        def fail(balance: Balance) -> WithdrawalMade:
            attempts.append(1)
            if len(attempts) == 2:
                raise error
            return WithdrawalMade(balance.wallet_id, "x", 1)

        with Watched() as store:
            store.before_append = rivals("a")
            with pytest.raises(type(error)) as raised:
                fail(store, Balance("w1"))
            assert raised.value is error
            assert nobody_queues(store)

    def test_interrupted_while_waiting_leaves_the_queue(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def interrupted(self: object, limit_s: float) -> bool:
            raise KeyboardInterrupt

        with Watched() as store:
            holder = Turn((("wallet_id:w1",), None), LONG_S)
            holder.run(store)
            store.before_append = rivals("a")
            monkeypatch.setattr("fencepost.decisions.retry.Wakeup.wait", interrupted)
            with pytest.raises(KeyboardInterrupt) as raised:  # held on to, and its traceback with it
                withdraw(store, Balance("w1"), withdrawal_id="x", amount=-1)
            holder.leave()
            assert raised.value.__traceback__ is not None
            assert nobody_queues(store)


class TestTasks:
    async def test_that_met_in_a_conflict_need_one_more_attempt_each(self) -> None:
        count = 16
        at_once = asyncio.Barrier(count)
        attempts: Counter[str] = Counter()

        @decision(retry=PATIENT)
        async def subscribe(taken: Taken, student: Courses) -> Subscribed:
            attempts[student.student_id] += 1
            if attempts[student.student_id] == 1:
                await at_once.wait()
            return Subscribed(taken.course_id, student.student_id)

        async with aio.open("memory:") as store:
            await asyncio.gather(*(subscribe(store, Taken("1"), Courses(str(n))) for n in range(count)))
            assert await store.head() == count
            assert sorted(attempts.values()) == [1] + [2] * (count - 1)
            assert nobody_queues(store)

    async def test_that_are_cancelled_leave_the_queue(self) -> None:
        async with aio.open("memory:") as store:
            turns = [Turn(HERE, LONG_S) for _ in range(3)]
            await turns[0].run_async(store)

            async def wait(turn: Turn) -> None:
                try:
                    await turn.run_async(store)
                finally:
                    turn.leave()

            waiting, last = (asyncio.create_task(wait(turn)) for turn in turns[1:])
            await asyncio.sleep(0)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            turns[0].leave()
            await last
            assert nobody_queues(store)

    async def test_wait_no_longer_than_their_limit(self) -> None:
        async with aio.open("memory:") as store:
            holder, late = Turn(HERE, LONG_S), Turn(HERE, 0.01)
            await holder.run_async(store)
            await late.run_async(store)
            assert (holder.held, late.held) == (True, False)


def rivals(*names: str) -> Iterator[list[Event]]:
    return iter([[encode(WithdrawalMade("w1", name, 1))] for name in names])
