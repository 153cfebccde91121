"""Group commit without a worker thread: one of the concurrent callers, the leader, does the work of all of them.

The first caller becomes the leader. It runs its own request together with every request that waits, as one batch. Then
it passes the lead to a caller that arrived meanwhile. A single caller runs its request directly. So there is at most
one leader, and every request is run at most once (tests/unit/test_commit.py).

Appends are batched so that one sync serves many of them: `GroupCommit`. Short reads are batched because a thread that
releases the interpreter lock, as each call into SQLite does, has to wait behind all other threads to get it back.

`Batcher._batches` is the leader, written once as a generator: it takes a batch, yields it to be run, and notifies the
callers. `lead` drives it in a thread, and `lead_async` on the event loop of the store. Unless a method says otherwise,
its caller must hold signals back (see `interrupts`). So a leader in a thread always finishes: no signal handler runs
while it works. Handlers run while a caller waits for a leader. Until they have returned, that caller cannot be
appointed: a handler may itself append, or join threads that do.

While one thread runs Python code, no other thread can, so what a request costs here counts for all threads. The code
that every request runs therefore avoids calls, allocations and locks.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Awaitable, Callable, Generator, Sequence
from copy import copy
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, Generic, TypeAlias, TypeVar

from ..errors import CheckpointBehind, ConditionFailed, IdsOverlap, RecordChanged, StoreCorrupt, StoreError
from ..model import Placed, Query, SequencedEvent
from .engine import Capability, Engine, InThread
from .interrupts import Wakeup, handlers_are_due, run_handlers, shielded, undisturbed
from .observers import Observation, has_observers, notify
from .verdicts import Append, Behind, Changed, Conflict, Failed, Overlap, Verdict

if TYPE_CHECKING:
    import asyncio

_get_ident = threading.get_ident

Request = TypeVar("Request")
Outcome = TypeVar("Outcome")

# A batch takes waiting appends up to this many events: enough to spread one sync over many callers, few enough that no
# caller waits long. An append of more events is a batch of its own.
BATCH_EVENTS: Final = 4_096

INTERRUPTED: Final = (
    "the outcome is unknown: the thread or task that was committing this append's batch was interrupted; "
    "append again with the same event ids"
)
REENTERED: Final = (
    "nothing was stored: this append was called by an observer of an append to the same store, or in the thread of the "
    "event loop that the store belongs to; append in another thread, or await the append"
)


class Pending(Wakeup, Generic[Request, Outcome]):
    """A queued request whose caller, a thread, waits for the outcome or for the lead."""

    __slots__ = ("error", "outcome", "request")

    on_loop = False
    """Whether this request leads as a task on the event loop of the store."""

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


ALONE: Final = Pending[Any, Any](None)  # leads for a request that was not queued; see `Batcher.run`

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
        self._away: set[Pending[Request, Outcome]] = set()  # whose threads run a signal handler, so they cannot lead
        self._acting_in = 0  # the thread that runs a batch

    def run(self, request: Request) -> Outcome:
        """Run the request, in this thread or by the leader, and return its outcome."""
        if self._leader is None:  # so no request waits that could lead, and this one is a batch of its own
            with self._lock:
                alone = self._leader is None
                if alone:
                    self._leader = ALONE
            if alone:
                self._acting_in = _get_ident()
                try:
                    (outcome,) = undisturbed(self._act, (request,))
                finally:
                    self._acting_in = 0
                    with self._lock:
                        if self._queue:
                            self._appoint()
                        else:
                            self._leader = None
                return outcome
        self._check_not_acting()
        pending: Pending[Request, Outcome] = Pending(request)
        try:
            self._wait_or_lead(pending, self.enqueue(pending))
        except BaseException:
            self._give_up([pending])
            raise
        return pending.result()

    def run_all(self, requests: Sequence[Request]) -> list[Outcome]:
        """As `run` for each request, in order. Requests of other callers may come between them."""
        self._check_not_acting()
        pendings: list[Pending[Request, Outcome]] = [Pending(request) for request in requests]
        try:
            leading = [self.enqueue(pending) for pending in pendings]
            for pending, leads in zip(pendings, leading, strict=True):
                self._wait_or_lead(pending, leads)
        except BaseException:
            self._give_up(pendings)
            raise
        return [pending.result() for pending in pendings]

    def _check_not_acting(self) -> None:
        """Refuse a call from inside a batch: it would wait for itself."""
        if self._acting_in == _get_ident():
            raise StoreError(REENTERED)

    def _wait_or_lead(self, pending: Pending[Request, Outcome], leads: bool) -> None:
        """Return when the request is decided."""
        while not (leads or pending.decided):
            pending.wait_or_be_due()
            if handlers_are_due() and not pending.decided:
                self._run_handlers(pending)
            leads = self._leader is pending and not pending.decided
        if leads:
            self.lead(pending)

    def _run_handlers(self, pending: Pending[Request, Outcome]) -> None:
        """Run signal handlers in the thread of a request that waits. Meanwhile, another one leads."""
        with self._lock:
            self._away.add(pending)
            if self._leader is pending:
                self._appoint()
        try:
            run_handlers()
        finally:
            with self._lock:
                self._away.remove(pending)
                if self._leader is None and pending in self._queue:
                    self._leader = pending

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
            if self._leader is None:
                self._leader = pending
            return self._leader is pending

    def follow(self, pending: Pending[Request, Outcome]) -> bool:
        """As `enqueue` by a task, if the leader is a task too. False: it is not, nothing was done.

        This takes no lock and holds no signals back: both are on the event loop of the store, so the leader cannot pass
        the lead on meanwhile, and before it does, it looks at the queue.
        """
        leader = self._leader  # read once, because a thread may pass its lead on meanwhile
        if leader is None or not leader.on_loop:
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

    def lead(self, leader: Pending[Request, Outcome], *, keep: bool = False) -> None:
        """Run what waits as one batch in this thread, then pass the lead on, so that the caller can return.

        With `keep`, keep the lead until no request waits.
        """
        batches = self._batches(leader, keep=keep)
        try:
            for batch in batches:
                self._acting_in = _get_ident()
                try:
                    _decide(batch, undisturbed(self._act, [pending.request for pending in batch]))
                except Exception as error:
                    _fail(batch, error)
                finally:
                    self._acting_in = 0
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
                self._acting_in = _get_ident()
                try:
                    _decide(batch, await act([pending.request for pending in batch]))
                except Exception as error:
                    _fail(batch, error)
                finally:
                    self._acting_in = 0
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
        """The requests to run at once: none if those that waited were withdrawn."""
        with self._lock:
            assert self._leader is leader
            taken: list[Pending[Request, Outcome]] = []
            size = 0
            while self._queue:
                size += self._size(self._queue[0].request)
                if taken and size > self._most:
                    break
                taken.append(self._queue.popleft())
            return taken

    def _finish(self, leader: Pending[Request, Outcome], batch: Batch[Request, Outcome], *, keep: bool) -> bool:
        """Wake the callers of a batch. Pass the lead on, unless it is kept and more requests wait: then return True."""
        with self._lock:
            assert self._leader is leader
            more = keep and bool(self._queue)
            if not more:
                # Before the callers are woken, so that the next batch overlaps with their work.
                self._appoint()
        for pending in batch:
            if not pending.decided:
                pending.error = StoreError(INTERRUPTED)
            pending.wake()
        return more

    def _appoint(self) -> None:
        """Make the request that has waited longest the leader, if its thread can lead. Called under the lock."""
        for pending in tuple(self._queue):
            if pending not in self._away:
                self._leader = pending
                pending.wake()
                if not pending.decided:
                    return
                self._queue.remove(pending)  # waking it found its store closed, so it cannot lead
        self._leader = None


def _decide(batch: Batch[Request, Outcome], outcomes: Sequence[Outcome]) -> None:
    for pending, outcome in zip(batch, outcomes, strict=True):
        pending.outcome = outcome


def _fail(batch: Batch[Request, Outcome], error: Exception) -> None:
    for pending in batch:
        pending.error = error


class LoopBatcher(Generic[Request, Outcome]):
    """Batches the requests that tasks make in one iteration of the store's event loop, and runs them at its end.

    For work that takes less time than a thread switch. If there are more than `most` requests, the loop runs other
    callbacks between two batches.
    """

    def __init__(self, act: Callable[[Sequence[Request]], Sequence[Outcome]], *, most: int) -> None:
        self._act = act
        self._most = most
        self._queue: list[tuple[Request, asyncio.Future[Outcome]]] = []

    def submit(self, request: Request) -> asyncio.Future[Outcome]:
        """A future for the outcome, on the running event loop."""
        from asyncio import get_running_loop  # a program without an event loop need not import asyncio

        loop = get_running_loop()
        future: asyncio.Future[Outcome] = loop.create_future()
        if not self._queue:
            loop.call_soon(self._run, loop)
        self._queue.append((request, future))
        return future

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        taken, self._queue = self._queue[: self._most], self._queue[self._most :]
        if self._queue:
            loop.call_soon(self._run, loop)
        waiting = [(request, future) for request, future in taken if not future.done()]
        try:
            with shielded:
                outcomes = self._act([request for request, _ in waiting])
        except Exception as error:
            for _, future in waiting:
                future.set_exception(copy_of(error))
            return
        for (_, future), outcome in zip(waiting, outcomes, strict=True):
            future.set_result(outcome)


@dataclass(frozen=True, slots=True)
class BatchCommitted(Observation):
    """A batch of appends was committed. The observers of the engine are notified, in the thread that committed.

    `stored` counts the appends that wrote something. The others were refused, or were stored before.
    """

    appends: int
    events: int
    stored: int
    elapsed_s: float

    @classmethod
    def of(cls, appends: Sequence[Append], verdicts: Sequence[Verdict], began: float) -> BatchCommitted:
        stored = sum(isinstance(verdict, Placed) and not verdict.already for verdict in verdicts)
        return cls(len(appends), sum(len(append.events) for append in appends), stored, perf_counter() - began)


class GroupCommit(Batcher[Append, Verdict]):
    """Batches the appends of concurrent callers for an engine.

    An engine that does not declare `Capability.GROUP_COMMIT` gets each append alone, at the same time as others.
    """

    def __init__(self, engine: Engine) -> None:
        super().__init__(self.commit, most=BATCH_EVENTS, size=lambda append: len(append.events))
        self._engine = engine
        self._capable: Any = engine  # the core has checked that it has the methods for its capabilities
        self.groups = Capability.GROUP_COMMIT in engine.capabilities

    def run(self, request: Append) -> Verdict:
        return super().run(request) if self.groups else self.commit((request,))[0]

    def run_all(self, requests: Sequence[Append]) -> list[Verdict]:
        return super().run_all(requests) if self.groups else list(self.commit(requests))

    def commit(self, appends: Sequence[Append]) -> Sequence[Verdict]:
        """Commit the appends as one batch, in this thread."""
        if not has_observers():
            return self._engine.commit(appends)
        began = perf_counter()
        verdicts = self._engine.commit(appends)
        notify(self._engine, BatchCommitted.of(appends, verdicts, began))
        return verdicts

    async def commit_async(self, appends: Sequence[Append], in_thread: InThread) -> Sequence[Verdict]:
        """As `commit`, on an event loop, by an engine that declares `Capability.ASYNC_COMMIT`."""
        began = perf_counter()
        verdicts: Sequence[Verdict] = await self._capable.commit_async(appends, in_thread)
        if has_observers():
            notify(self._engine, BatchCommitted.of(appends, verdicts, began))
        return verdicts

    def result(self, verdict: Verdict) -> Placed:
        """The result of an append, or the error that the verdict means."""
        if isinstance(verdict, Placed):
            return verdict
        if isinstance(verdict, Conflict):
            raise ConditionFailed(verdict.condition, verdict.conflict or self._event_at(verdict.position))
        if isinstance(verdict, Overlap):
            raise IdsOverlap(verdict.stored, verdict.position, verdict.missing)
        if isinstance(verdict, Failed):
            raise verdict.error
        if isinstance(verdict, Changed):
            raise RecordChanged(verdict.name, verdict.expected, verdict.current)
        assert isinstance(verdict, Behind)
        raise CheckpointBehind(verdict.name, verdict.position, verdict.current)

    def _event_at(self, position: int) -> SequencedEvent:
        for page in self._engine.scan(Query.all(), after=position - 1, up_to=position):
            return page[0]
        raise StoreCorrupt(f"the event at position {position} is in the index but not in the log")
