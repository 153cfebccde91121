"""Batching without a worker thread: one of the concurrent callers, the leader, does the work of all of them.

The first caller becomes the leader. It runs its own request together with every request that waits, as one batch. Then
it passes the lead to a caller that arrived meanwhile. A single caller runs its request directly. So there is at most
one leader, and every request is run at most once (tests/unit/test_commit.py).

Appends are batched so that one sync serves many of them. Short reads are batched because a thread that releases the
interpreter lock, as each call into SQLite does, has to wait behind all other threads to get it back.

`Batcher._batches` is the leader, written once as a generator: it takes a batch, yields it to be run, and notifies the
callers. `lead` drives it in a thread, and `lead_async` on an event loop. Unless a method says otherwise, its caller
must hold signals back (see `interrupts`). Therefore a leader in a thread always finishes. A leader on an event loop
does not finish if its loop is stopped. The next caller that notices takes the lead away from it.

While one thread runs Python code, no other thread can, so what a request costs here counts for all threads. The code
that every request runs therefore avoids calls, allocations and locks.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Awaitable, Callable, Generator, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any, Final, Generic, TypeAlias, TypeVar

from ..errors import StoreError
from ..interrupts import Wakeup, shielded

if TYPE_CHECKING:
    import asyncio

Request = TypeVar("Request")
Outcome = TypeVar("Outcome")

CHECK_LEADER_S: Final = 0.2  # how often a caller checks that the event loop of its leader still runs
INTERRUPTED: Final = (
    "the outcome is unknown: the thread or task that was committing this append's batch was interrupted; "
    "append again with the same event ids"
)


class Pending(Wakeup, Generic[Request, Outcome]):
    """A queued request whose caller, a thread, waits for the outcome or for the lead."""

    __slots__ = ("error", "outcome", "request")

    loop: asyncio.AbstractEventLoop | None = None
    """The event loop on which this request leads; None if it leads in a thread, or does not lead."""

    wake = Wakeup.set
    """Notify the caller that the request is decided, or that it leads now. Idempotent."""

    def __init__(self, request: Request) -> None:
        super().__init__()
        self.request = request
        self.outcome: Outcome | None = None
        self.error: Exception | None = None

    @property
    def decided(self) -> bool:
        return self.outcome is not None or self.error is not None

    def result(self) -> Outcome:
        if self.error is not None:
            error = copy_of(self.error)
            raise error from (None if error is self.error else self.error)
        assert self.outcome is not None
        return self.outcome


ALONE: Final = Pending[Any, Any](None)  # leads for a request that was not queued; no other caller can depose it

Batch: TypeAlias = Sequence[Pending[Request, Outcome]]
"""The requests that a leader runs at once."""


def copy_of(error: Exception) -> Exception:
    """A copy for each caller that gets the error, because raising adds to its traceback; itself if it has no copy."""
    try:
        copied = copy(error)
    except Exception:
        return error
    if hasattr(error, "__notes__"):
        copied.__notes__ = list(error.__notes__)  # a caller may add one of its own
    return copied


class Batcher(Generic[Request, Outcome]):
    """Batches the requests of concurrent callers. `act` runs one batch and returns its outcomes, which are not None.

    A batch takes waiting requests while their sizes sum up to at most `most`, and at least one request.
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
        self._leader: Pending[Request, Outcome] | None = None
        self._batch: Batch[Request, Outcome] = ()  # what the leader has taken and not decided yet

    def run(self, request: Request) -> Outcome:
        """Run the request, in this thread or by the leader, and return its outcome."""
        if self._leader is None and self._lead_alone():  # without a leader no request waits: this is a batch of one
            try:
                (outcome,) = self._act((request,))
            finally:
                with self._lock:
                    self._appoint()
            return outcome
        pending: Pending[Request, Outcome] = Pending(request)
        try:
            self._wait_or_lead(pending, self.enqueue(pending))
        except BaseException:
            self._give_up([pending])
            raise
        return pending.result()

    def run_all(self, requests: Sequence[Request]) -> list[Outcome]:
        """As `run` for each request, in order. Requests of other callers may come between them."""
        pendings: list[Pending[Request, Outcome]] = [Pending(request) for request in requests]
        try:
            leading = [self.enqueue(pending) for pending in pendings]
            for pending, leads in zip(pendings, leading, strict=True):
                self._wait_or_lead(pending, leads)
        except BaseException:
            self._give_up(pendings)
            raise
        return [pending.result() for pending in pendings]

    def _wait_or_lead(self, pending: Pending[Request, Outcome], leads: bool) -> None:
        """Return when the request is decided."""
        while not (leads or pending.decided):
            pending.wait(CHECK_LEADER_S if self.leader_runs_elsewhere() else None)
            # Most are decided then, and do not queue up for the lock.
            leads = not pending.decided and self.take_over(pending)
        if leads:
            self.lead(pending)

    def _give_up(self, pendings: Sequence[Pending[Request, Outcome]]) -> None:
        """Withdraw the requests of a caller that was interrupted."""
        for pending in pendings:
            self.withdraw(pending)
        for pending in pendings:
            self.resign(pending)

    def enqueue(self, pending: Pending[Request, Outcome]) -> bool:
        """Add the request to the queue. True: there is no leader, so the caller must lead."""
        with self._lock:
            self._queue.append(pending)
            return self._lead_or_depose(pending)

    def follow(self, pending: Pending[Request, Outcome], loop: asyncio.AbstractEventLoop) -> bool:
        """As `enqueue` by a task on this loop, if the leader is a task on it too. False: it is not, nothing was done.

        This takes no lock and holds no signals back: the leader cannot pass the lead on meanwhile, and before it does,
        it looks at the queue.
        """
        leader = self._leader  # read once, because a thread may pass its lead on meanwhile
        if leader is None or leader.loop is not loop:
            return False
        self._queue.append(pending)
        return True

    def withdraw(self, pending: Pending[Request, Outcome]) -> bool:
        """Remove a request that no leader has taken yet. True: it was not run and never will be."""
        with self._lock:
            if pending in self._queue:
                self._queue.remove(pending)
                return True
            return False

    def take_over(self, pending: Pending[Request, Outcome]) -> bool:
        """Whether the request leads now, because it was appointed or because its leader's event loop has stopped."""
        with self._lock:
            return self._lead_or_depose(pending) and not pending.decided

    def leader_runs_elsewhere(self, loop: asyncio.AbstractEventLoop | None = None) -> bool:
        """Whether the leader is a task on an event loop other than this one.

        That loop may be stopped, so a caller must then call `take_over` from time to time. If this is false when a
        caller is added to the queue, the caller can wait: a task leads on its loop only if it found the queue empty
        and no leader.
        """
        leader = self._leader
        return leader is not None and leader.loop is not None and leader.loop is not loop

    def lead(self, leader: Pending[Request, Outcome], *, keep: bool = False) -> None:
        """Run what waits as one batch in this thread, then pass the lead on, so that the caller can return.

        With `keep`, keep the lead until no request waits.
        """
        batches = self._batches(leader, keep=keep)
        try:
            for batch in batches:
                try:
                    _decide(batch, self._act([pending.request for pending in batch]))
                except Exception as error:
                    _fail(batch, error)
        finally:
            batches.close()

    async def lead_async(
        self, leader: Pending[Request, Outcome], act: Callable[[Sequence[Request]], Awaitable[Sequence[Outcome]]]
    ) -> None:
        """Lead on an event loop until no request waits; `act` runs a batch. Holds signals back, except in `act`."""
        batches = self._batches(leader, keep=True)
        try:
            while True:
                with shielded:
                    batch = next(batches, ())
                if not batch:
                    return
                try:
                    _decide(batch, await act([pending.request for pending in batch]))
                except Exception as error:
                    _fail(batch, error)
        finally:
            with shielded:
                batches.close()

    def resign(self, leader: Pending[Request, Outcome]) -> None:
        """Pass the lead on, if this is the leader. Holds signals back."""
        if self._leader is leader:
            with shielded, self._lock:
                if self._leader is leader:
                    self._appoint()

    def _batches(
        self, leader: Pending[Request, Outcome], *, keep: bool
    ) -> Generator[Batch[Request, Outcome], None, None]:
        """Yield batches to be decided or failed.

        Closing the generator while a batch is being run leaves the batch's outcome unknown, and passes the lead on.
        """
        more = True
        while more:
            batch = self._take(leader)
            done = False
            try:
                if batch:
                    yield batch
                done = True
            finally:
                more = self._finish(leader, batch, keep=keep and done)

    def _take(self, leader: Pending[Request, Outcome]) -> Batch[Request, Outcome]:
        """The requests to run at once: none if another request leads by now."""
        with self._lock:
            if self._leader is not leader:
                return ()
            taken: list[Pending[Request, Outcome]] = []
            size = 0
            while self._queue:
                size += self._size(self._queue[0].request)
                if taken and size > self._most:
                    break
                taken.append(self._queue.popleft())
            self._batch = taken
            return taken

    def _finish(self, leader: Pending[Request, Outcome], batch: Batch[Request, Outcome], *, keep: bool) -> bool:
        """Wake the callers of a batch. Pass the lead on, unless it is kept and more requests wait: then return True."""
        with self._lock:
            leads = self._leader is leader
            more = keep and leads and bool(self._queue)
            if leads and not more:
                # Before the callers are woken, so that the next batch overlaps with their work.
                self._appoint()
        for pending in batch:
            if not pending.decided:
                pending.error = StoreError(INTERRUPTED)
            pending.wake()
        return more

    def _lead_alone(self) -> bool:
        """Take the lead if it is free, for a caller without a place in the queue. It must appoint its successor."""
        with self._lock:
            if self._leader is not None:
                return False
            self._leader = ALONE
            return True

    def _lead_or_depose(self, pending: Pending[Request, Outcome]) -> bool:
        """Whether the request leads, after it has taken the lead if that is free. Called under the lock."""
        loop = None if self._leader is None else self._leader.loop
        if loop is not None and loop is not pending.loop and not loop.is_running():
            for other in self._batch:
                # Requests of the stopped loop are left alone. If it runs again, they get their true outcome.
                if other.loop is not loop and not other.decided:
                    other.error = StoreError(INTERRUPTED)
                    other.wake()
            self._leader = None
        if self._leader is None and pending in self._queue:
            self._leader = pending
        return self._leader is pending

    def _appoint(self) -> None:
        """Make the request that has waited longest the leader. Called under the lock."""
        self._batch = ()
        while self._queue:
            first = self._queue[0]
            self._leader = first
            first.wake()
            if not first.decided:
                return
            self._queue.popleft()  # waking it found its store closed, so it cannot lead
        self._leader = None


def _decide(batch: Batch[Request, Outcome], outcomes: Sequence[Outcome]) -> None:
    for pending, outcome in zip(batch, outcomes, strict=True):
        pending.outcome = outcome


def _fail(batch: Batch[Request, Outcome], error: Exception) -> None:
    for pending in batch:
        pending.error = error


class LoopBatcher(Generic[Request, Outcome]):
    """Batches the requests that tasks make in one iteration of their event loop, and runs them at its end.

    For work that takes less time than a thread switch. If there are more than `most` requests, the loop runs other
    callbacks between two batches.
    """

    def __init__(self, act: Callable[[Sequence[Request]], Sequence[Outcome]], *, most: int) -> None:
        self._act = act
        self._most = most
        self._queues: dict[asyncio.AbstractEventLoop, list[tuple[Request, asyncio.Future[Outcome]]]] = {}

    def submit(self, request: Request) -> asyncio.Future[Outcome]:
        """A future for the outcome, on the running event loop."""
        from asyncio import get_running_loop  # a program without an event loop need not import asyncio

        loop = get_running_loop()
        future: asyncio.Future[Outcome] = loop.create_future()
        queue = self._queues.get(loop)
        if queue is None:
            queue = self._queues[loop] = []
            loop.call_soon(self._run, loop)
        queue.append((request, future))
        return future

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        queue = self._queues.pop(loop)
        if len(queue) > self._most:
            self._queues[loop] = queue[self._most :]
            loop.call_soon(self._run, loop)
        waiting = [(request, future) for request, future in queue[: self._most] if not future.done()]
        try:
            with shielded:
                outcomes = self._act([request for request, _ in waiting])
        except Exception as error:
            for _, future in waiting:
                future.set_exception(copy_of(error))
            return
        for (_, future), outcome in zip(waiting, outcomes, strict=True):
            future.set_result(outcome)
