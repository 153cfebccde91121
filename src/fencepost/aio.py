"""The awaitable twin: the same store, the same verbs, for asyncio.

Nothing of the store is written twice. Appends go into the same group commit, and what blocks
runs on a few threads: one commits for all tasks that append meanwhile, so a thousand waiting
tasks cost one thread hop a batch, not one each; and none where the engine can commit on the
loop, led by a task of the store. Live subscriptions take no thread at all.

Cancelling an `append` takes it back if no batch has taken it yet: then it is not stored and
never will be. Otherwise it will be stored whole or refused, and the cancelled task is not told
which; appending again with the same event ids tells.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Final, TypeAlias, TypeVar

from .commit import Append, GroupCommit, Verdict
from .engine import BeginningAwaitably, CommittingAwaitably
from .errors import ReadingNotFinished, StoreClosed
from .gathering import Pending
from .model import AppendCondition, Event, Placed, Query, RecordedAppend, SequencedEvent
from .opening import open_engine
from .store import PAGE_EVENTS, Engine, EventStore, Reading, checked_append, checked_range, checked_timeout
from .subscription import Feed

__all__ = ["AsyncEventStore", "AsyncReading", "AsyncSubscription", "open"]

Result = TypeVar("Result")
CommitAwaiting: TypeAlias = Callable[[Sequence[Append]], Awaitable[Sequence[Verdict] | None]]

THREADS: Final = 8  # one leads the commits, the others read


async def open(address: str | os.PathLike[str], **options: Any) -> AsyncEventStore:
    """Open the store at the address; see `fencepost.open`.

    `async with await fencepost.aio.open("wallet.db") as store: ...`
    """
    loop = asyncio.get_running_loop()
    return AsyncEventStore(await loop.run_in_executor(None, lambda: open_engine(address, **options)))


class AsyncEventStore:
    """An `EventStore` whose verbs are awaited. Made by `fencepost.aio.open`."""

    def __init__(self, engine: Engine) -> None:
        self._store = EventStore(engine)
        self._engine = engine
        self._begin_awaiting = engine.begin_awaiting if isinstance(engine, BeginningAwaitably) else None
        self._commit_awaiting = engine.commit_awaiting if isinstance(engine, CommittingAwaitably) else None
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="fencepost-aio")
        self._closed = False

    async def append(
        self,
        events: Iterable[Event],
        condition: AppendCondition | Iterable[AppendCondition] | None = None,
        *,
        unless: Query | None = None,
        checkpoint: tuple[str, int] | None = None,
    ) -> Placed:
        """As `EventStore.append`. When cancelled: see the module's documentation."""
        append = checked_append(events, condition, unless, checkpoint)
        self._store.check_open()
        group = self._store.group
        if group is None:
            verdict = (await self._run(self._engine.commit, [append]))[0]
        else:
            awaited = Awaited(append, group, self._threads, self._commit_awaiting)
            try:
                verdict = await awaited.decision()
            except asyncio.CancelledError:
                group.withdraw(awaited)
                raise
        if isinstance(verdict, Placed):
            return verdict
        return await self._run(self._store.result, verdict)

    def read(
        self,
        query: Query | None = None,
        *,
        after: int = 0,
        upto: int | None = None,
        limit: int | None = None,
        backwards: bool = False,
    ) -> AsyncReading:
        """As `EventStore.read`: `async for event in store.read(...)`.

        The reading begins with its first event; `reading = await store.read(...)` begins it at
        once, so that `reading.head` is known before.
        """
        query = checked_range(query, after, upto, limit)
        self._store.check_open()

        def begin() -> tuple[Reading, list[SequencedEvent]]:
            reading = self._store.read(query, after=after, upto=upto, limit=limit, backwards=backwards)
            return reading, reading.page()  # what costs is to get to the thread, so it does both

        on_loop = self._begin_awaiting
        if on_loop is None:
            return AsyncReading(lambda: self._run(begin), self._run, limit is not None)

        async def begin_on_loop() -> tuple[Reading, list[SequencedEvent]]:
            self._store.check_open()
            begun = await on_loop(query, after=after, upto=upto, limit=limit, backwards=backwards)
            if begun is None:
                return await self._run(begin)
            reach, pages, at_hand = begun
            reading = Reading(pages, reach, limit, backwards)
            return reading, reading.page() if at_hand else await self._run(reading.page)

        return AsyncReading(begin_on_loop, self._run, limit is not None)

    async def head(self) -> int:
        """As `EventStore.head`."""
        return await self._run(self._store.head)

    def subscribe(
        self, query: Query | None = None, *, after: int = 0, timeout: float | None = None
    ) -> AsyncSubscription:
        """As `EventStore.subscribe`: `async for event in store.subscribe(...)`."""
        query = checked_range(query, after, None, None)
        checked_timeout(timeout)
        self._store.check_open()
        return AsyncSubscription(lambda on_ready: self._store.feed(query, after, on_ready), after, timeout, self._run)

    async def checkpoint(self, name: str) -> int:
        """As `EventStore.checkpoint`."""
        return await self._run(self._store.checkpoint, name)

    async def recorded(self, *, after: int = 0, upto: int | None = None) -> AsyncIterator[RecordedAppend]:
        """As `EventStore.recorded`: `async for append in store.recorded()`."""
        pages = await self._run(self._store.recorded_pages, after, upto)
        while (page := await self._run(next, pages, None)) is not None:
            for append in page:
                yield append

    async def restore(self, events: Iterable[SequencedEvent], appends: Iterable[RecordedAppend] = ()) -> None:
        """As `EventStore.restore`."""
        await self._run(self._store.restore, events, appends)

    async def close(self) -> None:
        """As `EventStore.close`."""
        if not self._closed:
            self._closed = True
            await asyncio.get_running_loop().run_in_executor(self._threads, self._store.close)
            self._threads.shutdown(wait=False)

    async def __aenter__(self) -> AsyncEventStore:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def _run(self, call: Callable[..., Result], *args: object) -> Result:
        self._store.check_open()
        return await asyncio.get_running_loop().run_in_executor(self._threads, call, *args)


class Awaited(Pending[Append, Verdict]):
    """An append whose caller is a task: woken through its loop, led by a thread of the store, or by a task of its own.

    The task that leads is not the caller's, which may be cancelled.
    """

    __slots__ = ("_commit", "_future", "_group", "_leading", "_loop", "_thread", "_threads")

    def __init__(
        self, append: Append, group: GroupCommit, threads: ThreadPoolExecutor, commit: CommitAwaiting | None
    ) -> None:
        super().__init__(append)
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._future: asyncio.Future[None] = self._loop.create_future()
        self._group = group
        self._threads = threads
        self._commit = commit

    async def decision(self) -> Verdict:
        if self._group.enqueue(self):
            if self._commit is None:
                if not self._lead_on_a_thread():
                    self._group.withdraw(self)
                    self._group.resign(self)
                    return self.result()
            else:
                self._leading = self._loop.create_task(self._lead_on_loop(self._commit))
                # One that is cancelled before its first step has the lead still.
                self._leading.add_done_callback(lambda _: self._group.resign(self))
        await self._future
        return self.result()

    def wake(self) -> None:
        """Called by the leader. To be appointed means: a thread of ours is to lead."""
        if not self.decided and self._lead_on_a_thread():
            return
        if threading.get_ident() == self._thread:
            self._settle()
        else:
            with suppress(RuntimeError):  # its loop is closed, and nobody waits there any more
                self._loop.call_soon_threadsafe(self._settle)

    def _lead_on_a_thread(self) -> bool:
        try:
            self._threads.submit(self._lead)
        except RuntimeError:  # the threads have been shut down
            self.error = StoreClosed("the store is closed")
            return False
        return True

    async def _lead_on_loop(self, commit: CommitAwaiting) -> None:
        more = True
        while more:
            batch: list[Pending[Append, Verdict]] = []
            done = False
            try:
                self._group.take(self, batch)
                if batch:
                    await self._decide_on_loop(batch, commit)
                done = True
            finally:
                more = self._group.finish(self, batch, keep=done)

    async def _decide_on_loop(self, batch: Sequence[Pending[Append, Verdict]], commit: CommitAwaiting) -> None:
        try:
            verdicts = await commit([pending.request for pending in batch])
            if verdicts is None:
                await self._on_a_thread(self._group.decide, batch)
                return
        except Exception as error:
            for pending in batch:
                pending.error = error
            return
        for pending, verdict in zip(batch, verdicts, strict=True):
            pending.outcome = verdict

    def _on_a_thread(self, call: Callable[..., Result], *args: object) -> asyncio.Future[Result]:
        try:
            return self._loop.run_in_executor(self._threads, call, *args)
        except RuntimeError:  # the threads have been shut down
            raise StoreClosed("the store is closed") from None

    def _lead(self) -> None:
        while self._group.lead(self, keep=True):
            pass

    def _settle(self) -> None:
        if not self._future.done():
            with suppress(RuntimeError):  # as above
                self._future.set_result(None)


class AsyncReading:
    """As `Reading`. Awaiting it begins it; iterating over it begins it if need be."""

    def __init__(
        self,
        begin: Callable[[], Awaitable[tuple[Reading, list[SequencedEvent]]]],
        run: Callable[..., Any],
        limited: bool,
    ) -> None:
        self._begin = begin
        self._limited = limited
        self._run = run
        self._reading: Reading | None = None
        self._page: deque[SequencedEvent] = deque()
        self._coming: asyncio.Future[list[SequencedEvent]] | None = None
        self._ended = False

    @property
    def head(self) -> int:
        """As `Reading.head`."""
        if self._reading is None:
            raise ReadingNotFinished("head: the reading has not begun; await it or iterate over it")
        if self._page and self._limited:
            raise ReadingNotFinished("head: with a limit it is known when the reading has been iterated to its end")
        return self._reading.head

    def __await__(self) -> Generator[Any, None, AsyncReading]:
        return self._begun().__await__()

    async def __aiter__(self) -> AsyncIterator[SequencedEvent]:
        await self._begun()
        assert self._reading is not None
        while True:
            while self._page:  # kept here, so that who leaves in the middle can come back for the rest
                yield self._page.popleft()
            if self._ended:
                return
            await self._fetch(self._reading)

    async def _fetch(self, reading: Reading) -> None:
        """Who is cancelled meanwhile leaves it running, and takes the page after coming back for the rest."""
        if self._coming is None:
            self._coming = asyncio.ensure_future(self._run(reading.page))
        await asyncio.wait([self._coming])
        came, self._coming = self._coming, None
        self._take(came.result())

    async def _begun(self) -> AsyncReading:
        if self._reading is None:
            self._reading, page = await self._begin()
            self._take(page)
        return self

    def _take(self, page: list[SequencedEvent]) -> None:
        self._page.extend(page)
        self._ended = len(page) < PAGE_EVENTS


class AsyncSubscription:
    """As `Subscription`: ends after `stop()`, when the store is closed, or after `timeout` seconds of silence."""

    def __init__(
        self,
        subscribe: Callable[[Callable[[], None]], Feed],
        after: int,
        timeout: float | None,
        run: Callable[..., Any],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._ready = asyncio.Event()
        self._feed = subscribe(self._on_ready)
        self._timeout_s = timeout
        self._run = run
        self._page: deque[SequencedEvent] = deque()
        self._polling: asyncio.Future[Sequence[SequencedEvent]] | None = None
        self._handed_out = after

    @property
    def position(self) -> int:
        """As `Subscription.position`."""
        return self._handed_out if self._page else self._feed.position

    def stop(self) -> None:
        """End the iteration."""
        self._feed.close()

    def __aiter__(self) -> AsyncSubscription:
        return self

    async def __anext__(self) -> SequencedEvent:
        if self._feed.stopped or not (self._page or await self._fetch()):
            raise StopAsyncIteration
        event = self._page.popleft()
        self._handed_out = event.position
        return event

    async def _fetch(self) -> bool:
        """Get the next page, waiting for it if need be. False: it did not come in time."""
        deadline = None if self._timeout_s is None else self._loop.time() + self._timeout_s
        while not self._feed.stopped:
            self._ready.clear()
            if page := await self._poll():
                self._page.extend(page)
                return True
            if not self._feed.waiting:
                try:
                    async with asyncio.timeout_at(deadline):
                        await self._ready.wait()
                except TimeoutError:
                    return False
        return False

    async def _poll(self) -> Sequence[SequencedEvent]:
        """Poll the feed, on a thread if that takes I/O.

        Who is cancelled meanwhile leaves the poll running, and the next one to come takes its page:
        otherwise the page would be lost, since the feed has handed it out.
        """
        if self._polling is None:
            if self._feed.live:
                return self._feed.poll()
            self._polling = asyncio.ensure_future(self._run(self._feed.poll))
        await asyncio.wait([self._polling])
        polled, self._polling = self._polling, None
        try:
            return polled.result()
        except StoreClosed:
            self._feed.stop()
            return ()

    def _on_ready(self) -> None:
        """Called from any thread, perhaps after the loop has ended."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._ready.set)

    async def __aenter__(self) -> AsyncSubscription:
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.stop()
