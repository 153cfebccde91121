"""Signals are held back inside `with shielded:`, and every wait handles them."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from fencepost.core import interrupts
from fencepost.core.interrupts import Waiters, Wakeup, interruptibly, pause, shielded

LONG_S = 20.0


class Stopped(Exception):
    """What the tests' handlers raise."""


@pytest.fixture
def handled() -> Iterator[list[int]]:
    """Signals that were handled. The handler of SIGUSR1 only records it; the other handlers raise."""
    numbers: list[int] = []

    def handle(number: int, frame: Any) -> None:
        numbers.append(number)
        if number != signal.SIGUSR1:
            raise Stopped(number)

    used = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)
    before = {number: signal.signal(number, handle) for number in used}
    yield numbers
    for number, handler in before.items():
        signal.signal(number, handler)


def send(*numbers: int, after_s: float = 0.05) -> threading.Thread:
    def kill() -> None:
        time.sleep(after_s)
        for number in numbers:
            os.kill(os.getpid(), number)

    thread = threading.Thread(target=kill)
    thread.start()
    return thread


def test_a_signal_in_the_block_is_handled_when_it_ends(handled: list[int]) -> None:
    done = False
    with pytest.raises(Stopped), shielded:  # noqa: PT012
        signal.raise_signal(signal.SIGINT)
        with shielded:
            signal.raise_signal(signal.SIGINT)
        assert handled == []
        done = True
    assert done
    assert handled == [signal.SIGINT], "signals of one number are one signal, as in POSIX"


def test_each_signal_that_came_is_handled(handled: list[int]) -> None:
    with pytest.raises(Stopped), shielded:  # noqa: PT012
        signal.raise_signal(signal.SIGUSR1)
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGTERM)
    with pytest.raises(Stopped), shielded:
        pass
    with shielded:
        pass
    assert sorted(handled) == sorted([signal.SIGUSR1, signal.SIGINT, signal.SIGTERM])


def test_the_handlers_of_the_program_are_back_afterwards(handled: list[int]) -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD)]
    with shielded:
        assert signal.getsignal(signal.SIGINT) is not before[0]
    with pytest.raises(Stopped), shielded:
        signal.raise_signal(signal.SIGTERM)
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD)] == before


def test_a_handler_that_is_changed_in_the_block_stays_changed(handled: list[int]) -> None:
    def other(number: int, frame: Any) -> None: ...

    with shielded:
        signal.signal(signal.SIGTERM, other)
    assert signal.getsignal(signal.SIGTERM) is other
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    with shielded:
        pass
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN


def test_a_signal_ends_a_wait(handled: list[int]) -> None:
    sender = send(signal.SIGINT)
    with shielded, pytest.raises(Stopped):
        Wakeup().wait(LONG_S)
    sender.join()


def test_a_second_signal_does_not_disturb_the_cleaning_up(handled: list[int]) -> None:
    cleaned = False
    with pytest.raises(Stopped), shielded:  # noqa: PT012
        sender = send(signal.SIGINT)
        try:
            Wakeup().wait(LONG_S)
        finally:
            sender.join()
            signal.raise_signal(signal.SIGINT)
            cleaned = True
    assert cleaned
    assert handled == [signal.SIGINT] * 2


def test_a_signal_whose_handler_returns_does_not_end_a_pause(handled: list[int]) -> None:
    sender = send(signal.SIGUSR1, after_s=0.01)
    began = time.monotonic()
    pause(0.3)
    assert time.monotonic() - began >= 0.3
    sender.join()
    assert handled == [signal.SIGUSR1]


def test_a_signal_that_another_thread_receives_ends_a_wait_as_well(
    handled: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(interrupts, "LISTEN_EVERY_S", 0.01)
    thread = threading.Thread(
        target=lambda: (time.sleep(0.05), signal.pthread_kill(threading.get_ident(), signal.SIGINT))
    )
    thread.start()
    with pytest.raises(Stopped):
        Wakeup().wait(LONG_S)
    thread.join()


def test_what_is_interruptible_inside_of_the_block_is_interrupted_at_once(handled: list[int]) -> None:
    def call() -> None:
        signal.raise_signal(signal.SIGINT)
        raise AssertionError("the signal came too late")

    with shielded:
        with pytest.raises(Stopped):
            interruptibly(call)
        assert interrupts._depth == 1


def test_other_threads_are_left_alone(handled: list[int]) -> None:
    results = []

    def work() -> None:
        with shielded:
            results.append(Wakeup().wait(0.01))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert results == [False]
    assert interrupts._depth == 0


def test_waking_before_the_wait_counts_once() -> None:
    wakeup = Wakeup()
    wakeup.set()
    wakeup.set()
    assert wakeup.wait(LONG_S)
    assert not wakeup.wait(0)


class TestWaiters:
    def test_all_are_notified(self) -> None:
        waiters, free = Waiters(), False
        results: list[bool] = []
        threads = [
            threading.Thread(target=lambda: results.append(waiters.wait_for(lambda: free, LONG_S))) for _ in range(3)
        ]
        for thread in threads:
            thread.start()
        while len(waiters._queue) < 3:
            time.sleep(0.001)
        free = True
        waiters.notify_all()
        for thread in threads:
            thread.join()
        assert results == [True] * 3

    def test_a_place_goes_to_another_thread_when_the_first_gives_up(self, handled: list[int]) -> None:
        waiters = Waiters()
        places: list[int] = []
        taken: list[int] = []

        def take() -> bool:
            if places:
                taken.append(places.pop())
            return bool(taken)

        other = threading.Thread(target=lambda: waiters.wait_for(take, LONG_S))

        def interrupt() -> None:
            while not waiters._queue:
                time.sleep(0.001)
            other.start()
            while len(waiters._queue) < 2:
                time.sleep(0.001)
            os.kill(os.getpid(), signal.SIGINT)
            waiters.notify_one()

        thread = threading.Thread(target=interrupt)
        thread.start()
        with pytest.raises(Stopped):
            waiters.wait_for(lambda: False, LONG_S)
        thread.join()
        places.append(1)
        waiters.notify_one()
        other.join(LONG_S)
        assert taken == [1]

    def test_the_time_is_bounded(self) -> None:
        assert not Waiters().wait_for(lambda: False, 0.01)


def test_a_plain_lock_in_a_with_statement_is_never_left_held() -> None:
    """What the package relies on in CPython: no handler runs between taking such a lock and entering the block."""
    lock = threading.Lock()
    interrupted = 0
    armed = False

    def handle(number: int, frame: Any) -> None:
        if armed:
            raise Stopped

    before = signal.signal(signal.SIGALRM, handle)
    signal.setitimer(signal.ITIMER_REAL, 100e-6, 100e-6)
    end = time.monotonic() + 1
    try:
        while time.monotonic() < end:
            try:
                try:
                    armed = True
                    while True:
                        with lock:
                            pass
                finally:
                    armed = False
            except Stopped:
                interrupted += 1
            assert not lock.locked(), f"after {interrupted} interrupts"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert interrupted > 100


def test_a_handler_that_uses_a_store_while_signals_are_about_to_be_held_back_does_not_undo_that(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    replace = interrupts.set_handler
    handled: list[int] = []

    def handle(number: int, _: object) -> None:
        handled.append(number)
        with shielded:
            pass

    def replace_and_raise(number: int, handler: Any) -> None:
        replace(number, handler)
        if number == signal.SIGUSR1 and not handled:
            signal.raise_signal(number)

    before = signal.signal(signal.SIGUSR1, handle)
    try:
        monkeypatch.setattr(interrupts, "set_handler", replace_and_raise)
        with shielded:
            assert handled == [signal.SIGUSR1]
            signal.raise_signal(signal.SIGUSR1)
            assert handled == [signal.SIGUSR1], "held back"
        assert handled == [signal.SIGUSR1] * 2
        assert signal.getsignal(signal.SIGUSR1) is handle
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_a_handler_that_uses_a_store_during_a_call_that_only_blocks_leaves_signals_held_back_afterwards() -> None:
    handled: list[int] = []

    def handle(number: int, _: object) -> None:
        handled.append(number)
        with shielded:
            pass

    before = signal.signal(signal.SIGUSR1, handle)
    try:
        with shielded:
            interruptibly(lambda: signal.raise_signal(signal.SIGUSR1))
            assert handled == [signal.SIGUSR1]
            signal.raise_signal(signal.SIGUSR1)
            assert handled == [signal.SIGUSR1], "held back"
        assert signal.getsignal(signal.SIGUSR1) is handle
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_a_handler_that_runs_in_the_instant_before_another_may_run_that_one_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    handled: list[int] = []
    is_due = interrupts._is_due

    def interrupted(number: int) -> bool:
        due = is_due(number)
        if not handled:
            handled.append(0)
            with shielded:  # as a handler does that uses a store
                pass
        return due

    before = signal.signal(signal.SIGUSR1, lambda number, _: handled.append(number))
    try:
        with shielded:
            signal.raise_signal(signal.SIGUSR1)
            monkeypatch.setattr(interrupts, "_is_due", interrupted)
        assert handled == [0, signal.SIGUSR1], "once"
    finally:
        signal.signal(signal.SIGUSR1, before)
