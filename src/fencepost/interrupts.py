"""Ctrl-C and other signals, held back while a store changes its state.

Python runs signal handlers in the main thread, between any two of its instructions. A handler that raises, as the one
for Ctrl-C does, can leave a lock held, a waiting thread without an answer or a transaction open. A second signal can do
so inside the code that cleans up after the first. So every method of a store runs inside `with shielded:`. There,
signals are only noted. Their handlers run where no operation is half done: when the thread waits, and when the block
ends.

`Wakeup`, `Waiters` and `pause` are therefore the only ways to wait in this package: any other wait inside
`with shielded:` could not be interrupted. `threading.Event` and `Condition` take their inner lock in Python code, where
a signal can interrupt them, so they are not used at all (tests/tidy). Other threads receive no signals, so `shielded`
does nothing in them. tests/torture/interrupts.py tests all of this with random signals, single and in pairs.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable
from time import monotonic
from types import FrameType
from typing import Any, Final, TypeVar

Result = TypeVar("Result")

# Signals for which programs install handlers that raise. SIGINT is last: once its own handler is restored, all are.
SIGNALS: Final = tuple(
    int(getattr(signal, name))
    for name in ("SIGTERM", "SIGALRM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGINT")
    if hasattr(signal, name)
)
# A signal that arrives in the instant before a wait begins, or in another thread, does not end that wait. So the main
# thread waits in pieces of this length, and between them Python runs the handlers.
LISTEN_EVERY_S: Final = 0.5

getsignal, set_handler = _signal.getsignal, _signal.signal  # `signal` converts to enums, which takes 10 us
_get_ident = threading.get_ident
_main = threading.main_thread().ident
_depth = 0  # how many `with shielded:` blocks the main thread is in
_handlers: dict[int, Callable[[int, FrameType | None], Any]] = {}  # those to put back
_noted: list[int] = []
_waits_for: threading.Lock | None = None  # what the main thread waits for; a signal releases it


class _Shielded:
    """Holds signals back inside the block. Their handlers run when the block ends, or during a wait inside it."""

    def __enter__(self) -> None:
        global _depth
        if _get_ident() != _main:
            return
        if _depth == 0:
            for number in SIGNALS:
                handler = getsignal(number)
                if handler is _note:
                    continue  # a signal arrived while it was being replaced, so it is still in place
                if callable(handler):
                    _handlers[number] = handler
                    set_handler(number, _note)
                else:
                    _handlers.pop(number, None)
        # From this instruction on, signals are held back. A handler that raised before it has kept the block from
        # being entered.
        _depth += 1

    def __exit__(self, *exc: object) -> None:
        global _depth
        if _get_ident() != _main:
            return
        if _depth > 1:
            _depth -= 1
            return
        try:
            for number in SIGNALS:
                if number in _handlers and getsignal(number) is _note:
                    set_handler(number, _handlers[number])
        finally:
            _depth = 0  # Python runs no handler during an assignment, so this is always executed
        if _noted:
            _run_handlers()


shielded: Final = _Shielded()


def interruptibly(call: Callable[[], Result]) -> Result:
    """Make a call during which handlers run at once, even inside `with shielded:`. For calls that only block."""
    global _depth
    if _get_ident() != _main or _depth == 0:
        return call()
    if _noted:
        _run_handlers()
    outer = _depth
    try:
        _depth = 0
        return call()
    finally:
        _depth = outer


def _note(number: int, frame: FrameType | None) -> None:
    """The handler inside `with shielded:`. If a signal comes just before or after, run the program's own handler."""
    if _depth == 0:
        _handlers.get(number, signal.default_int_handler)(number, frame)
        return
    if number not in _noted:
        _noted.append(number)
    lock = _waits_for
    if lock is not None:
        _release(lock)


def _run_handlers() -> None:
    """Run the handlers of the noted signals. Most of them raise."""
    frame = sys._getframe(1)
    while _noted:
        number = _noted.pop()
        _handlers[number](number, frame)


def _release(lock: threading.Lock) -> None:
    try:
        lock.release()
    except RuntimeError:
        return  # it is released already


class Wakeup:
    """One thread waits, and any thread wakes it. Waking before the wait, or more than once, counts as one wake-up.

    A wait may also end because a signal was handled, so the caller must check whether the awaited event has happened.
    """

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    def set(self) -> None:
        try:
            self._lock.release()
        except RuntimeError:
            return  # it is set already

    def clear(self) -> None:
        self._lock.acquire(blocking=False)

    def wait(self, timeout_s: float | None = None) -> bool:
        """False if the time is over. In the main thread signal handlers run here, so this may raise."""
        if _get_ident() != _main:
            return self._lock.acquire() if timeout_s is None else self._lock.acquire(timeout=max(timeout_s, 0))
        deadline = None if timeout_s is None else monotonic() + timeout_s
        with shielded:
            while True:
                rest_s = LISTEN_EVERY_S if deadline is None else min(LISTEN_EVERY_S, deadline - monotonic())
                woken = self._acquire(max(rest_s, 0))
                if _noted:
                    _run_handlers()
                if woken or (deadline is not None and monotonic() >= deadline):
                    return woken

    def _acquire(self, timeout_s: float) -> bool:
        global _waits_for
        outer, _waits_for = _waits_for, self._lock
        try:
            return not _noted and self._lock.acquire(timeout=timeout_s)
        finally:
            _waits_for = outer


class Waiters:
    """Any number of threads wait until a condition holds. A thread that may have made it hold notifies them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._queue: deque[Wakeup] = deque()

    def wait_for(self, holds: Callable[[], bool], timeout_s: float) -> bool:
        """Whether the condition held before the time was over."""
        deadline = monotonic() + timeout_s
        wakeup = Wakeup()
        with shielded:
            with self._lock:
                self._queue.append(wakeup)
            try:
                while not (held := holds()) and (rest_s := deadline - monotonic()) > 0:
                    wakeup.wait(rest_s)
                return held
            finally:
                with self._lock:
                    self._queue.remove(wakeup)
                # This thread may have consumed a notification that it did not need, so notify the next one.
                self.notify_one()

    def notify_one(self) -> None:
        """Wake the thread that has waited longest. It checks the condition, and wakes the next one when it leaves."""
        if not self._queue:  # a thread that is added from now on finds that the condition holds
            return
        with shielded, self._lock:
            if self._queue:
                self._queue[0].set()

    def notify_all(self) -> None:
        if not self._queue:  # as in `notify_one`
            return
        with shielded, self._lock:
            for wakeup in self._queue:
                wakeup.set()


def pause(seconds: float) -> None:
    """As `time.sleep`. Inside `with shielded:` as well, a signal whose handler raises ends it."""
    deadline = monotonic() + seconds
    wakeup = Wakeup()
    while (rest_s := deadline - monotonic()) > 0:
        wakeup.wait(rest_s)


def _after_fork() -> None:
    """The child has one thread, which is its main thread."""
    global _main
    _main = _get_ident()


os.register_at_fork(after_in_child=_after_fork)
