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

    __slots__ = ("_turn", "error", "outcome", "request")

    def __init__(self, request: Request) -> None:
        self.request = request
        self.outcome: Outcome | None = None
        self.error: Exception | None = None
        self._turn = threading.Lock()
        self._turn.acquire()

    @property
    def decided(self) -> bool:
        return self.outcome is not None or self.error is not None

    def wait(self) -> None:
        """Until the request is decided, or its caller is to lead."""
        self._turn.acquire()

    def wake(self) -> None:
        """Once more does no harm. One that cannot lead, when it is woken for that, is to be decided afterwards."""
        if self._turn.locked():
            self._turn.release()

    def result(self) -> Outcome:
        if self.error is not None:
            error = copy_of(self.error)
            raise error from (None if error is self.error else self.error)
        assert self.outcome is not None
        return self.outcome


def copy_of(error: Exception) -> Exception:
    """One error may reach many callers, and raising it adds to its traceback: each gets a copy, if it can be copied."""
    try:
        return copy(error)
    except Exception:
        return error


class Gathering(Generic[Request, Outcome]):
    """Batches what concurrent callers ask for; `act` does one batch and gives its outcomes, none of them None.

    A batch takes what waits as long as its sizes sum up to at most `most`, and one request at least.

    Ctrl-C may come between any two steps of the main thread. So who leads is known by name, from before it does until
    after, and passing the lead on can be tried again: whoever is interrupted on the way leaves nobody waiting.
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
        self._leader: object | None = None

    def ask(self, request: Request) -> Outcome:
        """Have it done, by whoever leads, and return the outcome."""
        alone = object()
        try:
            if self._take_the_lead(alone):  # nobody led, so nobody waits: a batch of one
                (outcome,) = self._act((request,))
                return outcome
        finally:
            try:
                self.resign(alone)
            except BaseException:
                self.resign(alone)
                raise
        pending: Pending[Request, Outcome] = Pending(request)
        try:
            leads = self.enqueue(pending)
            while not (leads or pending.decided):
                pending.wait()
                leads = not pending.decided and self._leads(pending)
            if leads:
                self.lead(pending)
        except BaseException:
            self.withdraw(pending)
            self.resign(pending)
            raise
        return pending.result()

    def enqueue(self, pending: Pending[Request, Outcome]) -> bool:
        """Add to the queue. True: nobody leads, so the caller must now `lead`."""
        with self._lock:
            self._queue.append(pending)
            if self._leader is not None:
                return False
            self._leader = pending
            return True

    def withdraw(self, pending: Pending[Request, Outcome]) -> bool:
        """Take back what no leader has taken yet. True: it is not done and never will be."""
        with self._lock:
            if pending in self._queue:
                self._queue.remove(pending)
                return True
            return False

    def lead(self, leader: Pending[Request, Outcome], *, keep: bool = False) -> bool:
        """Do what waits as one batch, then pass the lead on: a caller has its own work to do.

        With `keep`, keep the lead while more is waiting, and return True for as long as it is.
        """
        batch: list[Pending[Request, Outcome]] = []
        done = more = False
        try:
            self.take(leader, batch)
            if batch:
                self.decide(batch)
            done = True
        finally:
            try:
                more = self.finish(leader, batch, keep=keep and done)
            except BaseException:
                self.finish(leader, batch, keep=False)
                raise
        return more

    def resign(self, leader: object) -> None:
        """Pass the lead on, if it is the leader."""
        if self._leader is leader:
            with self._lock:
                if self._leader is leader:
                    self._appoint()

    # The steps of leading, for one who leads in another way.

    def take(self, leader: Pending[Request, Outcome], batch: list[Pending[Request, Outcome]]) -> None:
        """Add to the batch what is to be done at once: nothing, if another one leads by now."""
        with self._lock:
            size = 0
            while self._queue and self._leader is leader:
                size += self._size(self._queue[0].request)
                if batch and size > self._most:
                    break
                batch.append(self._queue[0])
                self._queue.popleft()

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

    def finish(self, leader: object, batch: Sequence[Pending[Request, Outcome]], *, keep: bool) -> bool:
        """Tell everybody. The lead is passed on unless it is kept and more is waiting, which is returned."""
        with self._lock:
            if batch and self._queue and self._queue[0] is batch[-1]:
                self._queue.popleft()  # an interrupt came when it had been taken, and was still there
            leads = self._leader is leader
            more = keep and leads and bool(self._queue)
            if leads and not more:
                # Before the others are woken, so that the next batch overlaps with their work.
                self._appoint()
        for pending in batch:
            if not pending.decided:
                # An interrupt is the leader's own affair, but nobody may wait for it for ever.
                pending.error = StoreError(
                    "the thread or task that worked for this one was interrupted: it was done as a whole, or not at all"
                )
            pending.wake()
        return more

    def _take_the_lead(self, leader: object) -> bool:
        with self._lock:
            if self._leader is not None:
                return False
            self._leader = leader
            return True

    def _leads(self, leader: object) -> bool:
        with self._lock:
            return self._leader is leader

    def _appoint(self) -> None:
        """Make the first of those who wait the leader. Called under the lock."""
        while self._queue:
            first = self._queue[0]
            first.wake()  # and then it waits for the lock
            if not first.decided:
                self._leader = first
                return
            self._queue.popleft()
        self._leader = None


class Turns(Generic[Request, Outcome]):
    """What tasks ask for in one turn of their event loop, done in one go at its end, on the loop itself.

    For what takes less time than it would take to get to a thread. When more is asked for than `most`, others have
    their turn in between.
    """

    def __init__(self, act: Callable[[Sequence[Request]], Sequence[Outcome]], *, most: int) -> None:
        self._act = act
        self._most = most
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
        asked = self._asked.pop(loop)
        if len(asked) > self._most:
            self._asked[loop] = asked[self._most :]
            loop.call_soon(self._do, loop)
        waiting = [(request, future) for request, future in asked[: self._most] if not future.done()]
        try:
            outcomes = self._act([request for request, _ in waiting])
        except Exception as error:
            for _, future in waiting:
                future.set_exception(copy_of(error))
            return
        for (_, future), outcome in zip(waiting, outcomes, strict=True):
            future.set_result(outcome)
