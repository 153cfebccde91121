"""Signal handlers and observers that use the store that they interrupted."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import pytest

from fencepost import EventStore
from fencepost.core.interrupts import pause
from fencepost.core.verdicts import Append, Verdict
from fencepost.engine import engine_of, observe
from fencepost.engines.memory import MemoryEngine
from fencepost.testing.contract.base import Running, events
from fencepost.testing.faults import PATIENCE_S, FaultyEngine, Gate, once

pytestmark = pytest.mark.timeout(60)


@contextmanager
def handled(number: int, handler: Callable[..., object]) -> Iterator[None]:
    before = signal.signal(number, handler)
    try:
        yield
    finally:
        signal.signal(number, before)


def interrupt_when(holds: Callable[[], bool], number: int) -> Running[None]:
    """Send this process the signal, from another thread, as soon as the condition holds."""

    def send() -> None:
        while not holds():
            pause(0.001)
        os.kill(os.getpid(), number)

    return Running(send)


def append_in_thread(store: EventStore) -> None:
    thread = threading.Thread(target=lambda: store.append(events("Joined")), daemon=True)
    thread.start()
    thread.join(PATIENCE_S)
    assert not thread.is_alive(), "the thread waits for the append that its handler has interrupted"


@pytest.mark.parametrize(
    "act", [lambda store: store.append(events("Handled")), append_in_thread], ids=["appends", "joins"]
)
def test_a_handler_may_append_while_the_call_that_it_interrupted_waits_for_a_leader(
    act: Callable[[EventStore], object],
) -> None:
    engine, gate = FaultyEngine(MemoryEngine()), Gate()
    engine.before = once(gate)
    with EventStore(engine) as store:
        other = Running(lambda: store.append(events("Other")))
        gate.wait_until_reached()

        def handle(*_: object) -> None:
            gate.open()
            act(store)

        with handled(signal.SIGUSR1, handle):
            sending = interrupt_when(lambda: bool(store._commits._queue), signal.SIGUSR1)
            store.append(events("Interrupted"))
            sending.result()
        other.result()
        assert store.head() == 3


@pytest.mark.parametrize(
    "act", [lambda store: store.append(events("Handled")), append_in_thread], ids=["appends", "joins"]
)
def test_a_handler_may_append_when_the_call_that_it_interrupted_was_just_appointed(
    act: Callable[[EventStore], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, gate = FaultyEngine(MemoryEngine()), Gate()
    engine.before = once(gate)
    with EventStore(engine) as store:
        other = Running(lambda: store.append(events("Other")))
        gate.wait_until_reached()
        appoint = store._commits._appoint

        def appoint_and_signal() -> None:
            appoint()
            if store._commits._leader is not None and not sent:
                sent.append(True)
                os.kill(os.getpid(), signal.SIGUSR1)

        sent: list[bool] = []
        monkeypatch.setattr(store._commits, "_appoint", appoint_and_signal)
        with handled(signal.SIGUSR1, lambda *_: act(store)):
            opening = interrupt_when(lambda: bool(store._commits._queue) and not gate.open(), signal.SIGCONT)
            store.append(events("Interrupted"))
            opening.result()
        other.result()
        assert sent
        assert store.head() == 3


class Waiting(MemoryEngine):
    """Waits in the middle of a commit, as an engine does whose store is busy."""

    def __init__(self) -> None:
        super().__init__()
        self.committing = False
        self.wait_s = 0.2

    def commit(self, appends: Sequence[Append]) -> Sequence[Verdict]:
        self.committing = True
        pause(self.wait_s)
        self.wait_s = 0
        verdicts = super().commit(appends)
        self.committing = False
        return verdicts


@pytest.mark.parametrize(
    "act", [lambda store: store.append(events("Handled")), append_in_thread], ids=["appends", "joins"]
)
def test_a_handler_runs_after_the_commit_in_which_its_signal_came(act: Callable[[EventStore], object]) -> None:
    with EventStore(engine := Waiting()) as store:
        during: list[bool] = []

        def handle(*_: object) -> None:
            during.append(engine.committing)
            act(store)

        with handled(signal.SIGUSR1, handle):
            sending = interrupt_when(lambda: engine.committing, signal.SIGUSR1)
            store.append(events("Interrupted"))
            sending.result()
        assert during == [False]
        assert store.head() == 2


def test_ctrl_c_ends_the_wait_of_a_commit_at_once() -> None:
    with EventStore(engine := Waiting()) as store:
        engine.wait_s = 10 * PATIENCE_S
        with handled(signal.SIGINT, signal.default_int_handler):
            sending = interrupt_when(lambda: engine.committing, signal.SIGINT)
            with pytest.raises(KeyboardInterrupt):
                store.append(events("Interrupted"))
            sending.result()
        engine.wait_s = 0
        assert store.append(events("A")).first == 1


def test_an_observer_that_appends_to_the_store_is_refused_and_does_not_hang(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with EventStore(MemoryEngine()) as store:
        observer = partial(lambda *_: store.append(events("Observed")))
        with observe(observer, of=engine_of(store)), caplog.at_level(logging.ERROR, "fencepost"):
            store.append(events("A"))
        assert store.head() == 1
        assert "nothing was stored: this append was called by an observer" in caplog.text


def test_a_handler_may_subscribe_while_the_call_that_it_interrupted_begins_to_follow_the_log() -> None:
    class Slow(MemoryEngine):
        """Waits for its head, as an engine does that asks a server."""

        slow = asked = False

        def head(self) -> int:
            if self.slow:
                self.slow, self.asked = False, True
                pause(0.2)
            return super().head()

    with EventStore(engine := Slow()) as store:
        store.append(events("A"))
        engine.slow = True
        seen: list[str] = []
        with handled(signal.SIGUSR1, lambda *_: seen.append(next(store.subscribe(timeout_s=PATIENCE_S)).type)):
            sending = interrupt_when(lambda: engine.asked, signal.SIGUSR1)
            seen.append(next(store.subscribe(timeout_s=PATIENCE_S)).type)
            sending.result()
        assert seen == ["A", "A"]
