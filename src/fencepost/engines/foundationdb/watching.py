"""Waiting for a new head: a watch on the head of each partition, and looking again where no watch is available.

A watch may fire for nothing, may fail long after it was set up, and outlives its transaction. So a wait ends with a
look at the heads, cancels all its watches, and pauses before it looks again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Final

from ...interrupts import Wakeup
from .binding import Connection, Future

LOOK_AGAIN_S: Final = 0.1  # where no watch is available, or one fires without a change


class Waiter:
    """One call of `wait`, which a watch or an interrupt wakes."""

    def __init__(self) -> None:
        self._wake = Wakeup()
        self.interrupted = False

    def wait(self, watches: Sequence[Future], timeout_s: float) -> None:
        """Until a watch is ready or the time is over; without watches, a short time."""
        # A new event each time: a watch that is cancelled becomes ready too, and must not wake the next one.
        wake = self._wake = Wakeup()
        if self.interrupted:
            wake.set()
        if not watches:
            wake.wait(min(LOOK_AGAIN_S, timeout_s))
            return
        for watch in watches:
            watch.on_ready(lambda _: wake.set())
        wake.wait(timeout_s)

    def interrupt(self) -> None:
        self.interrupted = True
        self._wake.set()


class Waiters:
    """All calls of `wait` that are under way."""

    def __init__(self) -> None:
        self._waiters: set[Waiter] = set()
        self._lock = threading.Lock()

    def add(self) -> Waiter:
        waiter = Waiter()
        with self._lock:
            self._waiters.add(waiter)
        return waiter

    def remove(self, waiter: Waiter) -> None:
        with self._lock:
            self._waiters.remove(waiter)

    def interrupt(self) -> None:
        with self._lock:
            for waiter in self._waiters:
                waiter.interrupt()


def cancel(watches: Sequence[Future]) -> None:
    """A watch outlives its transaction, and the number of watches of a client is limited."""
    for watch in watches:
        watch.cancel()


def report_failures(watches: Sequence[Future], connection: Connection, failed: Callable[[int], None]) -> None:
    """Call `failed` with the error code of each watch that has failed."""
    for watch in watches:
        if watch.is_ready():
            try:
                watch.wait()
            except connection.error as error:
                failed(getattr(error, "code", 0))
