"""Timers: they fire once, not before they are due, and are not lost, whatever happens to processes and clocks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from tests.support.processes import Child

from fencepost import EventStore
from fencepost.consumers import (
    Automation,
    ConsumerStatus,
    DeadLetter,
    Failures,
    Reaction,
    Runner,
    automation,
    discard,
    pause,
    replay,
    reset,
    resume,
    start,
    status,
    step,
    timers,
)
from fencepost.decisions import encode, now

from . import timer_program
from .orders import (
    Clock,
    Hands,
    Order,
    OrderCancelled,
    OrderPaid,
    OrderPlaced,
    by_delay,
    cancel,
    cancelled,
    pay,
    place_order,
    unpaid,
)
from .places import Place, control, eventually


@pytest.fixture
def store(place: Place) -> Iterator[EventStore]:
    with place.open() as store:
        yield store


def wake(runner: Runner) -> None:
    """Let the automation look at the clock at once, rather than within a second."""
    worker = runner.partition_runners[0].worker
    if worker is not None:
        worker.look()


def settled(store: EventStore, runner: Runner) -> bool:
    """Whether the automation has seen everything that is stored, and has nothing to do now."""
    wake(runner)
    worker = runner.partition_runners[0].worker
    return worker is not None and worker.idle and worker.cursor >= store.head()


def records(store: EventStore) -> int:
    return sum(event.type == "fencepost.ItemHandled" for event in store.read())


class TestFiring:
    def test_a_timer_fires_when_its_time_has_come_and_not_before(self, store: EventStore) -> None:
        clock = Clock()
        place_order(store, "a")
        with start(store, unpaid(clock)) as runner:
            eventually(lambda: settled(store, runner))
            clock.move(days=2, hours=23)
            eventually(lambda: settled(store, runner))
            assert cancelled(store) == []
            clock.move(hours=2)
            eventually(lambda: (wake(runner), cancelled(store))[1])
        assert cancelled(store) == ["a"]

    def test_a_timer_whose_time_came_while_no_process_ran_fires_at_the_next_start(self, store: EventStore) -> None:
        clock = Clock()
        place_order(store, "a", "b")
        with start(store, unpaid(clock)) as runner:
            eventually(lambda: settled(store, runner))
        clock.move(days=4)
        with start(store, unpaid(clock)):
            eventually(lambda: len(cancelled(store)) == 2)
        assert cancelled(store) == ["a", "b"]

    def test_it_does_not_fire_again_after_a_restart(self, store: EventStore) -> None:
        clock = Clock()
        place_order(store, "a", "b", "c")
        clock.move(days=4)
        for _ in range(3):
            with start(store, unpaid(clock)) as runner:
                eventually(lambda: len(cancelled(store)) >= 3)
                eventually(lambda: settled(store, runner))
        assert cancelled(store) == ["a", "b", "c"]

    def test_timers_in_order_need_no_record(self, store: EventStore) -> None:
        clock = Clock()
        place_order(store, *map(str, range(20)))
        clock.move(days=4)
        with start(store, unpaid(clock)):
            eventually(lambda: len(cancelled(store)) == 20)
        assert records(store) == 0

    def test_a_short_timer_overtakes_a_long_one(self, store: EventStore) -> None:
        hands = Hands()
        place_order(store, "long", delay_s=1000)
        place_order(store, "short", delay_s=10)
        place_order(store, "never", delay_s=-1)
        with start(store, by_delay(hands)) as runner:
            eventually(lambda: settled(store, runner))
            assert cancelled(store) == []
            hands.at(10)
            eventually(lambda: (wake(runner), cancelled(store))[1])
        with start(store, by_delay(hands)) as runner:
            eventually(lambda: settled(store, runner))
            assert cancelled(store) == ["short"]
            hands.at(1000)
            eventually(lambda: (wake(runner), len(cancelled(store)) == 2)[1])
        with start(store, by_delay(hands)) as runner:
            eventually(lambda: settled(store, runner))
        assert cancelled(store) == ["short", "long"]
        assert records(store) == 1

    def test_a_timer_that_finds_nothing_to_do_is_done_all_the_same(self, store: EventStore) -> None:
        hands, calls = Hands(), list[str]()

        @automation("unpaid", at=lambda event: hands.time if event.order_id == "b" else None, clock=hands)
        def look(event: OrderPlaced, store: Reaction) -> None:
            calls.append(event.order_id)

        place_order(store, "a", "b", "c")
        for _ in range(2):
            with start(store, look) as runner:
                eventually(lambda: settled(store, runner) and calls)
        assert calls == ["b"]

    def test_the_decision_sees_the_clock_and_the_cause(self, store: EventStore) -> None:
        hands, seen = Hands(), list[datetime]()

        @automation("unpaid", at=lambda event: hands.time, clock=hands)
        def look(event: OrderPlaced, store: Reaction) -> None:
            seen.append(now())
            cancel(store, Order(event.order_id))

        position = place_order(store, "a")
        with start(store, look):
            eventually(lambda: cancelled(store))
        (last,) = (event for event in store.read() if event.type == "OrderCancelled")
        assert (seen, last.metadata["causation_id"]) == ([hands.time], str(position))

    def test_an_awaitable_handler_works(self, store: EventStore) -> None:
        @automation("unpaid", after=timedelta(0))
        async def time_out(event: OrderPlaced, store: Reaction) -> None:
            cancel(store, Order(event.order_id))

        place_order(store, "a", "b")
        with start(store, time_out):
            eventually(lambda: len(cancelled(store)) == 2)


class TestClocks:
    def test_a_clock_that_is_set_back_delays_timers_and_repeats_none(self, store: EventStore) -> None:
        hands = Hands()
        place_order(store, "a", delay_s=10)
        place_order(store, "b", delay_s=20)
        hands.at(10)
        with start(store, by_delay(hands)) as runner:
            eventually(lambda: cancelled(store))
            hands.at(-100_000)
            eventually(lambda: settled(store, runner))
            hands.at(15)
            eventually(lambda: settled(store, runner))
            assert cancelled(store) == ["a"]
            hands.at(20)
            eventually(lambda: (wake(runner), len(cancelled(store)) == 2)[1])
        assert cancelled(store) == ["a", "b"]

    def test_a_clock_that_is_set_forward_is_noticed_while_the_automation_waits(self, store: EventStore) -> None:
        hands = Hands()
        place_order(store, "a", delay_s=3 * 24 * 3600)
        with start(store, by_delay(hands)) as runner:
            eventually(lambda: settled(store, runner))
            hands.at(4 * 24 * 3600)
            eventually(lambda: cancelled(store))  # without being woken

    def test_an_event_recorded_under_a_wrong_clock_does_not_hold_back_others(self, store: EventStore) -> None:
        hands = Hands()
        place_order(store, "in a hundred years", delay_s=100 * 365 * 24 * 3600)
        place_order(store, "today", delay_s=1)
        hands.at(1)
        with start(store, by_delay(hands)):
            eventually(lambda: cancelled(store))
        assert cancelled(store) == ["today"]


class TestCancelling:
    def automation(self, clock: Any, calls: list[str]) -> Automation:
        @automation(
            *("unpaid",),
            after=timedelta(days=3),
            cancelled_by=OrderPaid | OrderCancelled,
            by="order_id",
            lease_s=1,
            clock=clock,
        )
        def time_out(event: OrderPlaced, store: Reaction) -> None:
            calls.append(event.order_id)
            store.append([])  # a decision that looks at nothing
            del store

        return time_out

    def test_an_event_cancels_the_timers_of_its_key(self, store: EventStore) -> None:
        clock, calls = Clock(), list[str]()
        place_order(store, "a", "b", "c")
        pay(store, "b")
        with start(store, self.automation(clock, calls)) as runner:
            eventually(lambda: settled(store, runner))
            pay(store, "c")
            eventually(lambda: settled(store, runner))
            clock.move(days=4)
            eventually(lambda: (wake(runner), calls)[1])
            eventually(lambda: settled(store, runner))
        assert calls == ["a"]

    def test_an_event_after_the_cancellation_begins_a_new_timer(self, store: EventStore) -> None:
        clock, calls = Clock(), list[str]()
        place_order(store, "a")
        pay(store, "a")
        place_order(store, "a")
        clock.move(days=4)
        with start(store, self.automation(clock, calls)) as runner:
            eventually(lambda: calls and settled(store, runner))
        assert calls == ["a"]

    def test_a_cancellation_that_races_the_decision_refuses_it(self, store: EventStore) -> None:
        clock, tried = Clock(), list[str]()

        @automation("unpaid", after=timedelta(days=3), cancelled_by=OrderPaid, by="order_id", clock=clock)
        def time_out(event: OrderPlaced, reaction: Reaction) -> None:
            tried.append(event.order_id)
            pay(store, event.order_id)  # between the reading of the log and the append
            reaction.append([encode(OrderCancelled(event.order_id))])

        place_order(store, "a")
        clock.move(days=4)
        with start(store, time_out) as runner:
            eventually(lambda: tried and settled(store, runner))
        assert (tried, cancelled(store)) == (["a"], [])
        assert letters(store) == []


class TestFailing:
    def failing(self, clock: Any, calls: list[str], bad: set[str], **failures: Any) -> Automation:
        @automation("unpaid", at=lambda event: clock(), clock=clock, failures=Failures(base_s=0.01, **failures))
        def time_out(event: OrderPlaced, store: Reaction) -> None:
            calls.append(event.order_id)
            if event.order_id in bad:
                raise ValueError("not today")
            cancel(store, Order(event.order_id))

        return time_out

    def test_a_timer_that_fails_is_tried_again_and_does_not_stop_the_others(self, store: EventStore) -> None:
        calls, bad = list[str](), {"a"}
        place_order(store, "a", "b", "c")
        with start(store, self.failing(Hands(), calls, bad, attempts=1000, cap_s=0.01)):
            eventually(lambda: len(cancelled(store)) == 2)
            bad.clear()
            eventually(lambda: len(cancelled(store)) == 3)
        assert cancelled(store) == ["b", "c", "a"]

    def test_it_is_set_aside_and_replayed_once(self, store: EventStore) -> None:
        calls, bad = list[str](), {"a"}
        place_order(store, "a", "b")
        failing = self.failing(Hands(), calls, bad, attempts=2, then="set aside")
        with start(store, failing) as runner:
            eventually(lambda: [letter.position for letter in letters(store)] == [1])
            eventually(lambda: cancelled(store) == ["b"])
        bad.clear()
        with start(store, failing) as runner:
            eventually(lambda: settled(store, runner))
            assert cancelled(store) == ["b"]
            replay(store, "unpaid")
            eventually(lambda: letters(store) == [])
            eventually(lambda: settled(store, runner))
        assert (cancelled(store), calls.count("a")) == (["b", "a"], 3)

    def test_one_that_was_discarded_does_not_come_back(self, store: EventStore) -> None:
        hands, calls = Hands(), list[str]()
        place_order(store, "old", delay_s=1000)  # keeps the checkpoint before the one that fails
        place_order(store, "bad", delay_s=1)
        hands.at(1)

        @automation("unpaid", at=lambda e: due_at(e), clock=hands, failures=Failures(attempts=1, then="set aside"))
        def time_out(event: OrderPlaced, store: Reaction) -> None:
            calls.append(event.order_id)
            raise ValueError("never")

        with start(store, time_out):
            eventually(lambda: letters(store))
        discard(store, "unpaid")
        with start(store, time_out) as runner:
            eventually(lambda: settled(store, runner))
        assert calls == ["bad"]

    def test_with_a_key_later_timers_of_that_key_wait(self, store: EventStore) -> None:
        calls, bad = list[str](), {"a"}
        place_order(store, "a")
        place_order(store, "b", "a")
        failing = self.failing(Hands(), calls, bad, attempts=2, then="set aside", key="order_id")
        with start(store, failing) as runner:
            eventually(lambda: len(letters(store)) == 2)
            eventually(lambda: settled(store, runner))
        assert [letter.behind for letter in letters(store)] == [None, 1]
        assert cancelled(store) == ["b"]

    def test_by_default_the_automation_stops_and_goes_on_when_it_is_resumed(self, store: EventStore) -> None:
        calls, bad = list[str](), {"a"}
        place_order(store, "a", "b")
        with start(store, self.failing(Hands(), calls, bad, attempts=2)):
            stopped = eventually(lambda: control(store, "unpaid").stopped)
            assert (stopped.position, stopped.error) == (1, "ValueError: not today")
            bad.clear()
            resume(store, "unpaid")
            eventually(lambda: sorted(cancelled(store)) == ["a", "b"])

    def test_a_time_that_cannot_be_computed_is_a_failure_of_that_event(self, store: EventStore) -> None:
        @automation("unpaid", at=lambda event: datetime(2020, 1, 1), failures=Failures(attempts=1, then="set aside"))
        def time_out(event: OrderPlaced, store: Reaction) -> None:
            cancel(store, Order(event.order_id))

        place_order(store, "a")
        with start(store, time_out):
            (letter,) = eventually(lambda: letters(store))
        assert "a datetime with a time zone is needed" in letter.error

    def test_a_handler_that_hangs_is_given_up(self, store: EventStore) -> None:
        hangs = [True]

        @automation("unpaid", after=timedelta(0), lease_s=1, failures=Failures(timeout_s=0.2, base_s=0.01))
        def time_out(event: OrderPlaced, store: Reaction) -> None:
            if hangs.pop() if hangs else False:
                eventually(lambda: leased(store) > 1)
            cancel(store, Order(event.order_id))

        place_order(store, "a")
        with start(store, time_out):
            eventually(lambda: cancelled(store))
            eventually(lambda: store.checkpoint("unpaid") >= 1)
        assert cancelled(store) == ["a"]


def letters(store: EventStore) -> list[DeadLetter]:
    """The dead letters; none before the automation has ever run."""
    found = control(store, "unpaid").dead_letters
    return [found[position] for position in sorted(found)]


def leased(store: EventStore) -> int:
    return sum(event.type == "fencepost.LeaseTaken" for event in store.read())


def due_at(event: OrderPlaced) -> datetime:
    return datetime(2020, 1, 1, tzinfo=timezone.utc) + timedelta(seconds=event.delay_s)


class TestCommands:
    def test_a_paused_automation_fires_nothing_but_what_is_stepped(self, store: EventStore) -> None:
        clock = Clock()
        place_order(store, "a", "b", "c")
        with start(store, unpaid(clock)) as runner:
            eventually(lambda: settled(store, runner))
            pause(store, "unpaid")
            eventually(lambda: runner.partition_runners[0].recorder.control.paused_by)
            clock.move(days=4)
            step(store, "unpaid")
            eventually(lambda: cancelled(store) == ["a"])
            eventually(lambda: not control(store, "unpaid").steps.get(0))
            assert cancelled(store) == ["a"]
            resume(store, "unpaid")
            eventually(lambda: len(cancelled(store)) == 3)

    def test_a_reset_fires_timers_again(self, store: EventStore) -> None:
        hands = Hands()
        place_order(store, "long", delay_s=1000)
        place_order(store, "short", delay_s=10)
        hands.at(10)
        with start(store, by_delay(hands)):
            eventually(lambda: cancelled(store) == ["short"])
            reset(store, "unpaid", position=1)
            eventually(lambda: cancelled(store) == ["short", "short"])

    def test_the_timers_that_have_not_fired_are_listed(self, store: EventStore) -> None:
        hands = Hands()
        place_order(store, "long", delay_s=1000)
        place_order(store, "short", delay_s=10)
        chosen = by_delay(hands)
        assert [timer.position for timer in timers(store, chosen)] == [2, 1]
        hands.at(10)
        with start(store, chosen):
            eventually(lambda: cancelled(store))
        (left,) = timers(store, chosen)
        assert (left.position, left.type, left.tags) == (1, "OrderPlaced", ("order_id:long",))
        assert left.due == datetime(2020, 1, 1, 0, 16, 40, tzinfo=timezone.utc)

    def test_the_status_says_that_it_runs(self, store: EventStore) -> None:
        place_order(store, "a")
        with start(store, unpaid()) as runner:
            eventually(lambda: settled(store, runner))
            found: list[ConsumerStatus] = status(store)
        assert [(each.name, each.state, each.lag_events) for each in found] == [("unpaid", "running", 1)]


class TestProcesses:
    """Real processes with short delays, killed with -9."""

    def test_every_timer_fires_once_though_processes_are_killed(
        self, place: Place, store: EventStore, tmp_path: Path
    ) -> None:
        with ExitStack() as stack:
            count = 0
            for number in range(3):
                stop = tmp_path / "stop"
                child = stack.enter_context(
                    Child(timer_program.__file__, tmp_path / f"reports-{number}", place.address, stop)
                )
                child.wait_for(1)
                ids = [f"{number}-{each}" for each in range(40)]
                # Of each process, some timers are due at once, some while it runs, some when it is dead.
                for at, each in enumerate(ids):
                    place_order(store, each, delay_s=(at * 7 % 40) * 0.05)
                count += len(ids)
                before = len(cancelled(store))
                eventually(lambda before=before: len(cancelled(store)) > before + 5)
                if number < 2:
                    child.kill()
            eventually(lambda: len(cancelled(store)) >= count)
            stop.touch()
            child.result()
        assert len(set(cancelled(store))) == count
        assert sorted(cancelled(store)) == sorted(set(cancelled(store)))
        assert timer_program.early(store) == []
