"""The `StoreService` for asyncio: the same group commit, with tasks among its callers.

A task that appends joins the queue of the group commit. If it must lead, a thread of the store leads for it: one thread
commits for all tasks that append meanwhile, so a thousand waiting tasks cost one thread switch for each batch. If the
engine declares `Capability.ASYNC_COMMIT`, another task on the caller's event loop leads, with no switch at all. The
caller's task does not lead itself, since it may be cancelled. tests/unit/test_aio.py holds that each caller gets an
outcome, whichever loops are stopped or tasks cancelled.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from time import perf_counter
from typing import Any, Final, TypeVar

from ..errors import StoreClosed
from ..interrupts import shielded
from ..model import Placed, Query
from ..observing import has_observers, notify
from .batching import CHECK_LEADER_S, Batcher, Outcome, Pending, Request
from .engine import Capability, Engine, ReadStart
from .judging import Append, Verdict
from .service import BatchCommitted, StoreService

Result = TypeVar("Result")

THREADS: Final = 8  # one leads the commits, the others read


class Threads(ThreadPoolExecutor):
    """The threads of a store in which blocking calls of tasks run."""

    def submit(self, call: Callable[..., Result], /, *args: Any, **kwargs: Any) -> Future[Result]:
        try:
            with shielded:
                # In the context of the task, so that its trace goes on in the thread.
                return super().submit(copy_context().run, call, *args, **kwargs)
        except RuntimeError:  # the executor has been shut down
            raise StoreClosed("the store is closed") from None

    def run(self, call: Callable[..., Result], /, *args: Any) -> asyncio.Future[Result]:
        """A future for the result, on the running event loop."""
        return asyncio.wrap_future(self.submit(call, *args))


class TaskPending(Pending[Request, Outcome]):
    """A queued request whose caller is a task. If it must lead, a thread of the store leads for it.

    With `act`, which runs a batch on an event loop, another task on the loop leads if the request must lead when it is
    queued.
    """

    __slots__ = ("_act", "_batcher", "_future", "_leading", "_loop", "_thread", "_threads", "loop")

    def __init__(
        self,
        request: Request,
        batcher: Batcher[Request, Outcome],
        threads: Threads,
        act: Callable[[Sequence[Request]], Awaitable[Sequence[Outcome]]] | None,
    ) -> None:
        super().__init__(request)
        self._batcher = batcher
        self._threads = threads
        self._act = act
        self._leading: asyncio.Task[None] | None = None  # the event loop itself keeps no strong reference to it
        self.loop = None
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._future: asyncio.Future[None] = self._loop.create_future()

    async def run(self) -> Outcome:
        """Queue the request and await its outcome. Cancelling this withdraws the request if no leader has taken it."""
        try:
            if not self._batcher.follow(self, self._loop):
                with shielded:
                    if self._batcher.enqueue(self):
                        self._start_to_lead()
                # A leader on another loop may stop for ever. A leader on this loop, or in a thread, does not.
                while not self._future.done() and self._batcher.leader_runs_elsewhere(self._loop):
                    await asyncio.wait([self._future], timeout=CHECK_LEADER_S)
                    with shielded:
                        if self._batcher.take_over(self):
                            self._start_to_lead()
            await self._future
            return self.result()
        except asyncio.CancelledError:
            self._batcher.withdraw(self)
            raise

    def wake(self) -> None:
        """Called by the leader. A request that is not decided was appointed, so a thread of the store leads for it."""
        if not self.decided and self._lead_in_thread():
            return
        if threading.get_ident() == self._thread:
            self._settle()
        else:
            with suppress(RuntimeError):  # the loop is closed, so no task waits there
                self._loop.call_soon_threadsafe(self._settle)

    def _start_to_lead(self) -> None:
        if self._act is not None:
            self._leading = self._loop.create_task(self._batcher.lead_async(self, self._act))
            self.loop = self._loop
            # A task that is cancelled before its first step still has the lead.
            self._leading.add_done_callback(lambda _: self._batcher.resign(self))
        elif not self._lead_in_thread():
            self._batcher.withdraw(self)
            self._batcher.resign(self)
            self._settle()

    def _lead_in_thread(self) -> bool:
        """Start a thread that leads. False: the store is closed, which is now the request's error."""
        try:
            self._threads.submit(lambda: self._batcher.lead(self, keep=True))
        except StoreClosed as error:
            self.error = error
            return False
        return True

    def _settle(self) -> None:
        if not self._future.done():
            try:
                self._future.set_result(None)
            except RuntimeError:  # as above
                return


class AsyncStoreService(StoreService):
    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self._threads = Threads(THREADS, thread_name_prefix="fencepost-aio")
        self._reads_async = Capability.ASYNC_READ in self.capabilities
        self._commits_async = Capability.ASYNC_COMMIT in self.capabilities

    async def run(self, call: Callable[..., Result], /, *args: Any) -> Result:
        """Run a blocking call in a thread of the store."""
        self.check_open()
        return await self._threads.run(call, *args)

    async def append_async(self, append: Append) -> Placed:
        self.check_open()
        if self._group is None and self._commits_async:
            [verdict] = await self._commit_on_loop((append,))
        elif self._group is None:
            verdict = await self.run(self.commit, append)
        else:
            act = self._commit_on_loop if self._commits_async else None
            verdict = await TaskPending(append, self._group, self._threads, act).run()
        return verdict if isinstance(verdict, Placed) else await self.run(self.result, verdict)

    async def begin_async(
        self, query: Query, *, after: int, upto: int | None, limit: int | None, backwards: bool
    ) -> ReadStart:
        """As `begin` and `with_first_page`."""
        self.check_open()
        if self._reads_async:
            start: ReadStart = await self._capable.begin_async(
                query, after=after, upto=upto, limit=limit, backwards=backwards, in_thread=self.run
            )
            return start

        def begin() -> ReadStart:
            return self.begin(query, after=after, upto=upto, limit=limit, backwards=backwards).with_first_page()

        return await self.run(begin)

    async def close_async(self) -> None:
        await self._threads.run(self.close)
        self._threads.shutdown(wait=False)

    async def _commit_on_loop(self, appends: Sequence[Append]) -> Sequence[Verdict]:
        began = perf_counter()
        verdicts: Sequence[Verdict] = await self._capable.commit_async(appends, self._threads.run)
        if has_observers():
            notify(self.engine, BatchCommitted.of(appends, verdicts, began))
        return verdicts
