"""Many callers, one of them at work: what concurrent threads ask for is done in batches.

There is no worker thread. The first caller becomes the leader and does what all who wait have asked
for, its own request first; then it hands the lead to one of those who came meanwhile. A single
caller is served directly.

Appends are gathered so that one sync serves them all. Short reads are gathered because threads of
one process take turns anyway: each time one of them lets go of the interpreter, to ask SQLite
something, it stands in line behind all others. Whoever waits here stands in no line.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from copy import copy
from typing import TYPE_CHECKING, Generic, TypeVar

from .errors import StoreError

if TYPE_CHECKING:
    import asyncio

Request = TypeVar("Request")
Outcome = TypeVar("Outcome")


class Pending(Generic[Request, Outcome]):
    """A request that waits for its outcome, or for its caller to be made the leader."""

    __slots__ = ("_turn", "appointed", "error", "outcome", "request")

    def __init__(self, request: Request) -> None:
        self.request = request
        self.outcome: Outcome | None = None
        self.error: Exception | None = None
        self.appointed = False
        self._turn = threading.Lock()
        self._turn.acquire()

    @property
    def decided(self) -> bool:
        return self.outcome is not None or self.error is not None

    def wait(self) -> None:
        """Until the request is decided, or its caller is to lead."""
        self._turn.acquire()

    def wake(self) -> None:
        self._turn.release()

    def result(self) -> Outcome:
        if self.error is not None:
            # One error may reach many callers, and raising it adds to its traceback: each gets a copy,
            # unless it is of a kind that cannot be made anew.
            try:
                error = copy(self.error)
            except Exception:
                raise self.error from None
            raise error from self.error
        assert self.outcome is not None
        return self.outcome


class Gathering(Generic[Request, Outcome]):
    """Batches what concurrent callers ask for; `act` does one batch and gives its outcomes, none of them None.

    A batch takes what waits as long as its sizes sum up to at most `most`, and one request at least.
    """

    def __init__(
        self,
        act: Callable[[Sequence[Request]], Sequence[Outcome]],
        *,
        most: int,
        size: Callable[[Request], int] = lambda request: 1,
    ) -> None:
        self._act = act
        self._most = most
        self._size = size
        self._lock = threading.Lock()
        self._queue: deque[Pending[Request, Outcome]] = deque()
        self._led = False

    def ask(self, request: Request) -> Outcome:
        """Have it done, by whoever leads, and return the outcome."""
        if self._take_the_lead():  # nobody led, so nobody waits: a batch of one
            try:
                (outcome,) = self._act((request,))
                return outcome
            finally:
                with self._lock:
                    self._appoint()
        pending: Pending[Request, Outcome] = Pending(request)
        leads = self.enqueue(pending)
        if not leads:
            try:
                pending.wait()
            except BaseException:
                self._leave(pending)
                raise
        if leads or pending.appointed:
            self.lead()
        return pending.result()

    def enqueue(self, pending: Pending[Request, Outcome]) -> bool:
        """Add to the queue. True: nobody leads, so the caller must now `lead`."""
        with self._lock:
            self._queue.append(pending)
            leads = not self._led
            self._led = True
            return leads

    def withdraw(self, pending: Pending[Request, Outcome]) -> bool:
        """Take back what no leader has taken yet. True: it is not done and never will be."""
        with self._lock:
            if pending in self._queue:
                self._queue.remove(pending)
                return True
            return False

    def lead(self, *, keep: bool = False) -> bool:
        """Do what waits as one batch, then pass the lead on: a caller has its own work to do.

        With `keep`, keep the lead while more is waiting, and return True for as long as it is.
        """
        batch = self.take()
        done = more = False
        try:
            if batch:
                self.decide(batch)
            done = True
        finally:
            more = self.finish(batch, keep=keep and done)
        return more

    # The steps of leading, for one who leads in another way.

    def take(self) -> list[Pending[Request, Outcome]]:
        """What is to be done as one batch."""
        with self._lock:
            batch: list[Pending[Request, Outcome]] = []
            size = 0
            while self._queue:
                size += self._size(self._queue[0].request)
                if batch and size > self._most:
                    break
                batch.append(self._queue.popleft())
            return batch

    def decide(self, batch: Sequence[Pending[Request, Outcome]]) -> None:
        """Do it."""
        try:
            outcomes = self._act([pending.request for pending in batch])
        except Exception as error:
            for pending in batch:
                pending.error = error
            return
        for pending, outcome in zip(batch, outcomes, strict=True):
            pending.outcome = outcome

    def finish(self, batch: Sequence[Pending[Request, Outcome]], *, keep: bool) -> bool:
        """Tell everybody. The lead is passed on unless it is kept and more is waiting, which is returned."""
        with self._lock:
            more = keep and bool(self._queue)
            if not more:
                # Before the others are woken, so that the next batch overlaps with their work.
                self._appoint()
        for pending in batch:
            if not pending.decided:
                # An interrupt is the leader's own affair, but nobody may wait for it for ever.
                pending.error = StoreError("the thread or task that worked for this one was interrupted")
            pending.wake()
        return more

    def _take_the_lead(self) -> bool:
        with self._lock:
            leads = not self._led
            self._led = True
            return leads

    def _appoint(self) -> None:
        """Make the first of those who wait the leader. Called under the lock."""
        self._led = bool(self._queue)
        if self._queue:
            self._queue[0].appointed = True
            self._queue[0].wake()

    def _leave(self, pending: Pending[Request, Outcome]) -> None:
        """A caller was interrupted while it waited: nobody may rely on it any more."""
        withdrawn = self.withdraw(pending)
        with self._lock:
            if withdrawn and pending.appointed:
                self._appoint()


class Turns(Generic[Request, Outcome]):
    """What tasks ask for in one turn of their event loop, done in one go at its end, on the loop itself.

    For what takes less time than it would take to get to a thread.
    """

    def __init__(self, act: Callable[[Sequence[Request]], Sequence[Outcome]]) -> None:
        self._act = act
        self._asked: dict[asyncio.AbstractEventLoop, list[tuple[Request, asyncio.Future[Outcome]]]] = {}

    def ask(self, request: Request) -> asyncio.Future[Outcome]:
        """Await the outcome."""
        from asyncio import get_running_loop  # who has no loop need not load it

        loop = get_running_loop()
        future: asyncio.Future[Outcome] = loop.create_future()
        asked = self._asked.get(loop)
        if asked is None:
            asked = self._asked[loop] = []
            loop.call_soon(self._do, loop)
        asked.append((request, future))
        return future

    def _do(self, loop: asyncio.AbstractEventLoop) -> None:
        waiting = [(request, future) for request, future in self._asked.pop(loop) if not future.done()]
        try:
            outcomes = self._act([request for request, _ in waiting])
        except Exception as error:
            for _, future in waiting:
                future.set_exception(error)
            return
        for (_, future), outcome in zip(waiting, outcomes, strict=True):
            future.set_result(outcome)
