"""Who answers a call: the calling thread itself, or a network thread as in the real client.

The real client has one network thread. It answers calls one after another, and it runs the callbacks of futures, so a
callback runs in a thread that its owner did not choose. Blocking that thread on a future that only it could answer is
an error (2026). `InTheCall` answers within the call instead: that makes a run deterministic, and is the default.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Protocol

from .errors import BLOCKED_FROM_NETWORK_THREAD, FDBError
from .futures import Future, Result, answer


class Network(Protocol):
    def send(self, future: Future[Result], call: Callable[[], Result]) -> None:
        """Make the future ready with what the call returns or raises, now or later."""


class InTheCall:
    """Every call is answered before it returns, by the thread that calls."""

    def send(self, future: Future[Result], call: Callable[[], Result]) -> None:
        answer(future, call)


class NetworkThread:
    """Every call is answered by one other thread, in the order of the calls. `hold` keeps the answers back."""

    def __init__(self) -> None:
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._open = threading.Event()
        self._open.set()
        self._thread = threading.Thread(target=self._run, name="simulated-fdb-network", daemon=True)
        self._thread.start()

    def send(self, future: Future[Result], call: Callable[[], Result]) -> None:
        future.check_may_block = self._check_may_block
        self._calls.put(lambda: answer(future, call))

    def hold(self) -> None:
        self._open.clear()

    def release(self) -> None:
        self._open.set()

    def stop(self) -> None:
        """End the thread once it has answered everything."""
        self.release()
        self._calls.put(None)
        self._thread.join(10)

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            self._open.wait()
            call()

    def _check_may_block(self) -> None:
        if threading.current_thread() is self._thread:
            raise FDBError(BLOCKED_FROM_NETWORK_THREAD)
