"""Ctrl-C and other signals, held back while a store changes its state.

Python runs signal handlers in the main thread, between any two of its instructions. A handler that raises, as the one
for Ctrl-C does, can leave a lock held, a waiting thread without an answer or a transaction open. A second signal can do
so inside the code that cleans up after the first. So every method of a store runs inside `with shielded:`. There,
signals are only noted. Their handlers run where no operation is half done: when the thread waits for another one, and
when the block ends. While a thread commits a batch (`undisturbed`), only the default handler of Ctrl-C runs in its
waits: any other handler may itself wait for a caller of that batch.

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
from collections.abc import Callable, Iterable
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
# Handlers that only raise, so that they may run while a thread commits a batch.
HARMLESS: Final[set[Any]] = {signal.default_int_handler}
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
_undisturbed = False  # whether the main thread makes a call of `undisturbed`


class _Shielded:
    """Holds signals back inside the block. Their handlers run when the block ends, or during a wait inside it."""

    def __enter__(self) -> None:
        global _depth
        if _get_ident() != _main:
            return
        if _depth == 0:
            _replace_handlers(SIGNALS)
            # From this instruction on, signals are held back. A handler that raised before it has kept the block from
            # being entered. One that returned may have used a store, and so restored the handlers.
            _depth = 1
            _replace_handlers(_handlers)
        else:
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
            run_handlers()


shielded: Final = _Shielded()


def interruptibly(call: Callable[[], Result]) -> Result:
    """Make a call during which handlers run at once, even inside `with shielded:`. For calls that only block."""
    global _depth
    if _get_ident() != _main or _depth == 0:
        return call()
    if handlers_are_due():
        run_handlers()
    outer = _depth
    try:
        _depth = 0
        return call()
    finally:
        _depth = outer
        _replace_handlers(_handlers)  # a handler that ran meanwhile may have used a store, and so restored them


def _replace_handlers(numbers: Iterable[int]) -> None:
    for number in tuple(numbers):
        handler = getsignal(number)
        if handler is _note:
            continue
        if callable(handler):
            _handlers[number] = handler
            set_handler(number, _note)
        else:
            _handlers.pop(number, None)


def undisturbed(call: Callable[..., Result], /, *args: Any) -> Result:
    """Make a call in whose waits no handler of the program runs, other than Python's own for Ctrl-C.

    To be called inside `with shielded:`, by a thread that runs a batch: its callers would wait for the handler.
    """
    global _undisturbed
    if _get_ident() != _main or _undisturbed:
        return call(*args)
    _undisturbed = True
    try:
        return call(*args)
    finally:
        _undisturbed = False


def handlers_are_due() -> bool:
    """Whether signals were noted whose handlers this thread must run now."""
    return bool(_noted) and _get_ident() == _main and any(map(_is_due, _noted))


def run_handlers() -> None:
    """Run the handlers that are due. Most of them raise."""
    frame = sys._getframe(1)
    while number := next(filter(_is_due, _noted), None):
        try:
            _noted.remove(number)
        except ValueError:
            continue  # a handler that ran in this instant used a store, and so has run this one
        _handlers[number](number, frame)


def _is_due(number: int) -> bool:
    return not _undisturbed or _handlers.get(number) in HARMLESS


def _note(number: int, frame: FrameType | None) -> None:
    """The handler inside `with shielded:`. If a signal comes just before or after, run the program's own handler."""
    due = _is_due(number)
    if _depth == 0 and due:
        _handlers.get(number, signal.default_int_handler)(number, frame)
        return
    if number not in _noted:
        _noted.append(number)
    lock = _waits_for
    if lock is not None and due:
        _release(lock)


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
                if handlers_are_due():
                    run_handlers()
                if woken or (deadline is not None and monotonic() >= deadline):
                    return woken

    def wait_or_be_due(self) -> None:
        """Wait until this is set or, inside `with shielded:` in the main thread, for at most until handlers are due."""
        if _get_ident() != _main:
            self._lock.acquire()
        else:
            self._acquire(LISTEN_EVERY_S)

    def _acquire(self, timeout_s: float) -> bool:
        global _waits_for
        outer, _waits_for = _waits_for, self._lock
        try:
            return not handlers_are_due() and self._lock.acquire(timeout=timeout_s)
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
