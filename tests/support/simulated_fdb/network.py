"""Who answers a call: the calling thread itself, or a network thread as in the real client.

The real client has one network thread. It answers calls one after another, and it runs the callbacks of futures, so a
callback runs in a thread that its owner did not choose. Blocking that thread on a future that only it could answer is
an error (2026). `InTheCall` answers within the call instead: that makes a run deterministic, and is the default. In
`TimedNetwork` calls take time, of the client and of the cluster, so bursts and long reads show what they do.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from queue import SimpleQueue
from typing import Final, Protocol

from .errors import BLOCKED_FROM_NETWORK_THREAD, FDBError
from .futures import Future, Result, answer


class Network(Protocol):
    has_clock: bool
    """Whether calls take time. If not, only waiting before another try does."""

    def send(self, future: Future[Result], call: Callable[[], Result], kind: str = "read") -> None:
        """Make the future ready with what the call returns or raises, now or later."""


class InTheCall:
    """Every call is answered before it returns, by the thread that calls."""

    has_clock = False

    def send(self, future: Future[Result], call: Callable[[], Result], kind: str = "read") -> None:
        answer(future, call)


class NetworkThread:
    """Every call is answered by one other thread, in the order of the calls. `hold` keeps the answers back."""

    has_clock = False

    def __init__(self) -> None:
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._open = threading.Event()
        self._open.set()
        self._thread = threading.Thread(target=self._run, name="simulated-fdb-network", daemon=True)
        self._thread.start()

    def send(self, future: Future[Result], call: Callable[[], Result], kind: str = "read") -> None:
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


class TimedNetwork:
    """One client and one cluster that do one thing after another, each of which takes time on the simulator's clock.

    The times are those of a small cluster that was measured, about 1.3 ms an append. `answer_next` answers the call
    that has waited longest. Waiting before another try takes time, too, but no work.
    """

    has_clock = True
    CLIENT_S: Final = 0.0002  # for each call
    CLUSTER_S: Final = {"read_version": 0.00005, "read": 0.0001, "commit": 0.0005, "on_error": 0.0}

    def __init__(self, slower: float = 1) -> None:
        """`slower` is by how much all of it takes longer, as on a loaded machine."""
        self._slower = slower
        self.pass_time: Callable[[float], None] = lambda seconds: None  # the cluster sets it
        self.now_s: Callable[[], float] = lambda: 0.0
        self._calls: deque[tuple[str, Callable[[], None]]] = deque()
        self._later: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()

    def send(self, future: Future[Result], call: Callable[[], Result], kind: str = "read") -> None:
        self.pass_time(self._slower * self.CLIENT_S)
        self._calls.append((kind, lambda: answer(future, call)))

    def send_later(self, seconds: float, future: Future[Result], call: Callable[[], Result]) -> None:
        heappush(self._later, (self.now_s() + seconds, next(self._numbers), lambda: answer(future, call)))

    def answer_next(self) -> bool:
        """Answer one call, if there is any."""
        if self._later and (self._later[0][0] <= self.now_s() or not self._calls):
            due, _, call = heappop(self._later)
            self.pass_time(max(due - self.now_s(), 0.0))
        elif self._calls:
            kind, call = self._calls.popleft()
            self.pass_time(self._slower * self.CLUSTER_S[kind])
        else:
            return False
        call()
        return True
