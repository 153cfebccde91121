"""The store for asyncio: `AsyncEventStore` has the methods of `EventStore`, to be awaited.

Both stores use the same core, and their appends join the same group commit. Blocking calls run in a few threads of the
store. A live subscription occupies no thread. An asyncio store belongs to the event loop that opened it: on any other
loop its methods raise `StoreClosed`.

A task that appends joins the queue of the group commit. If it must lead, a thread of the store leads for it: one thread
commits for all tasks that append meanwhile, so a thousand waiting tasks cost one thread switch for each batch. If the
engine declares `Capability.ASYNC_COMMIT`, another task on the loop leads, with no switch at all. The caller's task does
not lead itself, since it may be cancelled.

Cancelling an `append` withdraws it if no batch has taken it yet. Then it is not stored and never will be. Otherwise the
append is stored as a whole or refused, and the cancelled task does not learn which. To find out, append again with the
same event ids. The contract suite runs against this store as well (`fencepost.testing.Awaitable`), and
tests/unit/test_aio.py checks what differs: tasks, threads and the loop.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from typing import Any, Final, TypeVar, Unpack, overload

from .core.address import open_engine
from .core.arguments import checked_append, checked_range, checked_timeout
from .core.engine import Capability, Engine, ReadStart, record_pages
from .core.group_commit import Batcher, Outcome, Pending, Request
from .core.interrupts import shielded
from .core.options import FoundationDBOptions, MemoryOptions, PostgresOptions, RemoteOptions, SqliteOptions
from .core.owner import CLOSED
from .core.readings import Extent, Pages
from .core.record_keys import CHECKPOINTS, RECORDS, named, position_of
from .core.subscriptions import Feed, FeedReader
from .core.verdicts import Append, Verdict
from .errors import ReadingNotFinished, StoreClosed
from .model import (
    AppendCondition,
    Delete,
    Event,
    Placed,
    Put,
    Query,
    Record,
    SequencedEvent,
    checked_name,
    checked_prefix,
)
from .store import EventStore, Place, parts_of

__all__ = ["AsyncEventStore", "AsyncReading", "AsyncRecords", "AsyncSubscription", "open"]

Result = TypeVar("Result")

THREADS: Final = 8  # one leads the commits, the others read
OTHER_LOOP: Final = (
    "the store was opened on another event loop, and belongs to it; open a store on each loop, or use "
    "`store.blocking` in threads"
)


@overload
def open(address: Place, **options: Unpack[MemoryOptions]) -> StoreOpener: ...
@overload
def open(address: Place, **options: Unpack[SqliteOptions]) -> StoreOpener: ...
@overload
def open(address: Place, **options: Unpack[PostgresOptions]) -> StoreOpener: ...
@overload
def open(address: Place, **options: Unpack[FoundationDBOptions]) -> StoreOpener: ...
@overload
def open(address: Place, **options: Unpack[RemoteOptions]) -> StoreOpener: ...
def open(address: Place, **options: Any) -> StoreOpener:
    """Open the store at the address on the running event loop; see `fencepost.open`.

    `async with fencepost.aio.open("wallet.db") as store: ...`, or `store = await fencepost.aio.open("wallet.db")`.
    """
    return StoreOpener(partial(open_engine, address, **options))


class StoreOpener:
    """What `fencepost.aio.open` returns: await it, or use it with `async with`."""

    def __init__(self, open_engine: Callable[[], Engine]) -> None:
        self._open_engine = open_engine
        self._store: AsyncEventStore | None = None

    async def _opened(self) -> AsyncEventStore:
        loop = asyncio.get_running_loop()
        self._store = AsyncEventStore(await loop.run_in_executor(None, self._open_engine))
        return self._store

    def __await__(self) -> Generator[Any, None, AsyncEventStore]:
        return self._opened().__await__()

    async def __aenter__(self) -> AsyncEventStore:
        return await self._opened()

    async def __aexit__(self, *exc: object) -> None:
        assert self._store is not None
        await self._store.close()


class Threads(ThreadPoolExecutor):
    """The threads of a store in which blocking calls of tasks run."""

    def submit(self, call: Callable[..., Result], /, *args: Any, **kwargs: Any) -> Future[Result]:
        try:
            with shielded:
                # In the context of the task, so that its trace goes on in the thread.
                return super().submit(copy_context().run, call, *args, **kwargs)
        except RuntimeError:  # the executor has been shut down
            raise StoreClosed(CLOSED) from None

    def run(self, call: Callable[..., Result], /, *args: Any) -> asyncio.Future[Result]:
        """A future for the result, on the running event loop."""
        return asyncio.wrap_future(self.submit(call, *args))


class TaskPending(Pending[Request, Outcome]):
    """A queued request whose caller is a task. If it must lead, a thread of the store leads for it.

    With `act`, which runs a batch on the event loop, another task on the loop leads if the request must lead when it is
    queued.
    """

    __slots__ = ("_act", "_batcher", "_future", "_leading", "_loop", "_thread", "_threads", "on_loop")

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
        self.on_loop = False
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._future: asyncio.Future[None] = self._loop.create_future()

    async def run(self) -> Outcome:
        """Queue the request and await its outcome. Cancelling this withdraws the request if no leader has taken it."""
        try:
            if not self._batcher.follow(self):
                with shielded:
                    if self._batcher.enqueue(self):
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
            self._finish()
        else:
            with suppress(RuntimeError):  # the loop is closed, so no task waits there
                self._loop.call_soon_threadsafe(self._finish)

    def _start_to_lead(self) -> None:
        if self._act is not None:
            self._leading = self._loop.create_task(self._batcher.lead_async(self, self._act))
            self.on_loop = True
            # A task that is cancelled before its first step still has the lead.
            self._leading.add_done_callback(lambda _: self._batcher.resign(self))
        elif not self._lead_in_thread():
            self._batcher.withdraw(self)
            self._batcher.resign(self)
            self._finish()

    def _lead_in_thread(self) -> bool:
        """Start a thread that leads. False: the store is closed, which is now the request's error."""
        try:
            self._threads.submit(lambda: self._batcher.lead(self, keep=True))
        except StoreClosed as error:
            self.error = error
            return False
        return True

    def _finish(self) -> None:
        if not self._future.done():
            with suppress(RuntimeError):  # as above
                self._future.set_result(None)


class AsyncEventStore:
    """An `EventStore` whose calls are awaited. Made by `fencepost.aio.open`, on the event loop that it belongs to."""

    def __init__(self, engine: Engine) -> None:
        self._loop = asyncio.get_running_loop()
        self._store = EventStore(engine)
        self._commits, self._owner = parts_of(self._store)
        self._engine = engine
        self._capable: Any = engine
        self._reads_async = Capability.ASYNC_READ in engine.capabilities
        self._commits_async = Capability.ASYNC_COMMIT in engine.capabilities
        self._threads = Threads(THREADS, thread_name_prefix="fencepost-aio")

    @property
    def blocking(self) -> EventStore:
        """This store for code that runs in threads. Its appends join the same group commit; closing it closes both."""
        return self._store

    async def append(
        self,
        events: Iterable[Event],
        condition: AppendCondition | Iterable[AppendCondition] | None = None,
        *,
        unless: Query | None = None,
        checkpoint: tuple[str, int] | None = None,
        records: Iterable[Put | Delete] = (),
    ) -> Placed:
        """As `EventStore.append`. When cancelled: see the module's documentation."""
        append = checked_append(events, condition, unless, checkpoint, records)
        self._check()
        commits = self._commits
        if commits.groups:
            act = self._commit_on_loop if self._commits_async else None
            verdict = await TaskPending(append, commits, self._threads, act).run()
        elif self._commits_async:
            [verdict] = await self._commit_on_loop((append,))
        else:
            verdict = await self._run(commits.run, append)
        return verdict if isinstance(verdict, Placed) else await self._run(commits.result, verdict)

    def read(
        self,
        query: Query | None = None,
        *,
        after: int = 0,
        up_to: int | None = None,
        limit: int | None = None,
        backwards: bool = False,
    ) -> AsyncReading:
        """As `EventStore.read`: `async for event in store.read(...)`.

        The reading begins when its first event is asked for. `reading = await store.read(...)` begins it at once, so
        that `reading.head` is known before the first event.
        """
        query, after, up_to = checked_range(query, after, up_to, limit)
        self._check()
        begin = partial(self._begin, query, after=after, up_to=up_to, limit=limit, backwards=backwards)
        return AsyncReading(begin, self._run, limit, backwards)

    async def head(self) -> int:
        """As `EventStore.head`."""
        return await self._run(self._engine.head)

    def subscribe(
        self, query: Query | None = None, *, after: int = 0, timeout_s: float | None = None
    ) -> AsyncSubscription:
        """As `EventStore.subscribe`: `async for event in store.subscribe(...)`."""
        query, after, _ = checked_range(query, after, None, None)
        timeout_s = checked_timeout(timeout_s)
        self._check()
        return AsyncSubscription(partial(self._store._feed, query, after), after, timeout_s, self._run)

    async def checkpoint(self, name: str) -> int:
        """As `EventStore.checkpoint`."""
        name = checked_name(name, "checkpoint")
        return position_of(await self._run(self._engine.record, CHECKPOINTS + name))

    @property
    def records(self) -> AsyncRecords:
        """As `EventStore.records`."""
        return AsyncRecords(self)

    async def close(self) -> None:
        """As `EventStore.close`. This may be called on any event loop."""
        with suppress(StoreClosed):  # closed already
            await self._threads.run(self._store.close)
        self._threads.shutdown(wait=False)

    async def __aenter__(self) -> AsyncEventStore:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    def _check(self) -> None:
        self._owner.check()
        if asyncio.get_running_loop() is not self._loop:
            raise StoreClosed(OTHER_LOOP)

    async def _run(self, call: Callable[..., Result], /, *args: Any) -> Result:
        """Run a blocking call in a thread of the store."""
        self._check()
        return await self._threads.run(call, *args)

    async def _commit_on_loop(self, appends: Sequence[Append]) -> Sequence[Verdict]:
        return await self._commits.commit_async(appends, self._threads.run)

    async def _begin(
        self, query: Query, *, after: int, up_to: int | None, limit: int | None, backwards: bool
    ) -> ReadStart:
        self._check()
        if self._reads_async:
            start: ReadStart = await self._capable.begin_async(
                query, after=after, up_to=up_to, limit=limit, backwards=backwards, in_thread=self._run
            )
            return start

        def begin() -> ReadStart:
            start = self._store._begin(query, after=after, up_to=up_to, limit=limit, backwards=backwards)
            return start.with_first_page()

        return await self._run(begin)


class AsyncRecords:
    """As `Records`, with calls that are awaited."""

    def __init__(self, store: AsyncEventStore) -> None:
        self._store = store

    async def get(self, name: str) -> Record | None:
        """As `Records.get`."""
        name = checked_name(name, "name")
        store = self._store
        stored = await store._run(store._engine.record, RECORDS + name)
        return None if stored is None else named(stored)

    async def list(self, prefix: str = "") -> AsyncIterator[Record]:
        """As `Records.list`: `async for record in store.records.list("consumers/")`."""
        checked_prefix(prefix)
        pages = Pages(record_pages(self._store._engine, RECORDS + prefix))
        while (page := await self._store._run(next, pages, None)) is not None:
            for record in page:
                yield named(record)

    async def put(self, name: str, value: bytes, *, expected: int) -> Record:
        """As `Records.put`."""
        change = Put(name, value, expected)
        placed = await self._store.append((), records=(change,))
        return Record(change.name, change.value, placed.revisions[0])

    async def delete(self, name: str, *, expected: int) -> None:
        """As `Records.delete`."""
        await self._store.append((), records=(Delete(name, expected),))


class AsyncReading:
    """As `Reading`. Awaiting it begins it, and so does iterating over it."""

    def __init__(
        self, begin: Callable[[], Awaitable[ReadStart]], run: Callable[..., Any], limit: int | None, backwards: bool
    ) -> None:
        self._begin = begin
        self._run = run
        self._limit = limit
        self._backwards = backwards
        self._extent: Extent | None = None
        self._page: deque[SequencedEvent] = deque()
        self._rest: Pages[SequencedEvent] | None = None
        self._fetching: asyncio.Future[Sequence[SequencedEvent] | None] | None = None

    @property
    def head(self) -> int:
        """As `Reading.head`."""
        if self._extent is None:
            raise ReadingNotFinished("head: the reading has not begun; await it, or iterate over it, first")
        return self._extent.head

    @property
    def up_to(self) -> int:
        """The position up to which the reading reads: the head of the store when it began, or the given `up_to`."""
        if self._extent is None:
            raise ReadingNotFinished("up_to: the reading has not begun; await it or iterate over it")
        return self._extent.up_to

    def __await__(self) -> Generator[Any, None, AsyncReading]:
        return self._begun().__await__()

    async def __aiter__(self) -> AsyncIterator[SequencedEvent]:
        await self._begun()
        assert self._extent is not None
        while self._page or await self._fetch():
            # The other events of the page stay here, so that a task that leaves the iteration can continue it later.
            event = self._page.popleft()
            self._extent.deliver(event)
            yield event
        self._extent.end()

    async def pages(self) -> AsyncIterator[Sequence[SequencedEvent]]:
        """The same events in pages, as the engine gives them: for programs that send on many events."""
        await self._begun()
        assert self._extent is not None
        while self._page or await self._fetch():
            page = tuple(self._page)
            self._page.clear()
            for event in page if self._limit is not None else ():
                self._extent.deliver(event)
            yield page
        self._extent.end()

    async def _fetch(self) -> bool:
        """Get the next page. If the task is cancelled, the call goes on, and the next `_fetch` takes its page."""
        if self._rest is None:
            return False
        if self._fetching is None:
            self._fetching = asyncio.ensure_future(self._run(next, self._rest, None))
        await asyncio.wait([self._fetching])
        fetched, self._fetching = self._fetching, None
        page = fetched.result()
        if page is None:
            self._rest = None
            return False
        self._page.extend(page)
        return True

    async def _begun(self) -> AsyncReading:
        if self._extent is None:
            start = await self._begin()
            self._page.extend(start.page)
            self._rest = None if start.rest is None else Pages(start.rest)
            self._extent = Extent(start.up_to, self._limit, self._backwards)
        return self


class AsyncSubscription(FeedReader):
    """As `Subscription`: ends after `stop()`, when the store is closed, or `timeout_s` seconds after the last event."""

    def __init__(
        self,
        subscribe: Callable[[Callable[[], None]], Feed],
        after: int,
        timeout_s: float | None,
        run: Callable[..., Any],
    ) -> None:
        super().__init__(after, timeout_s)
        self._loop = asyncio.get_running_loop()
        self._ready = asyncio.Event()
        self._feed = subscribe(setter_of(self._ready, self._loop))
        self._run = run
        self._polling: asyncio.Future[Sequence[SequencedEvent]] | None = None

    def __aiter__(self) -> AsyncSubscription:
        return self

    async def __anext__(self) -> SequencedEvent:
        if self._feed.stopped or not (self._page or await self._fetch()):
            raise StopAsyncIteration
        event = self._page[0]  # two lines, as in `Subscription`, so that no interrupt can come between
        del self._page[0]
        self._delivered = event.position
        return event

    def ready(self, limit: int) -> list[SequencedEvent]:
        """The next events, as far as they have arrived, without waiting: at most `limit`."""
        events = [self._page.popleft() for _ in range(min(limit, len(self._page)))]
        if events:
            self._delivered = events[-1].position
        return events

    async def _fetch(self) -> bool:
        """Get the next page, and wait for it if necessary. False: no event came in time."""
        deadline = None if self._timeout_s is None else self._loop.time() + self._timeout_s
        while not self._feed.stopped:
            self._ready.clear()
            if await self._poll():
                return True
            if not self._feed.waiting:
                try:
                    async with asyncio.timeout_at(deadline):
                        await self._ready.wait()
                except TimeoutError:
                    return False
        return False

    async def _poll(self) -> bool:
        """Poll the feed, in a thread if that takes I/O. Return whether there are events.

        If the task is cancelled meanwhile, the poll goes on, and the next call takes its page. The feed delivers each
        page once, so the page would be lost otherwise.
        """
        if self._polling is None:
            if self._feed.live:
                with shielded:
                    self._page.extend(self._feed.poll())
                return bool(self._page)
            self._polling = asyncio.ensure_future(self._run(self._feed.poll))
        await asyncio.wait([self._polling])
        polled, self._polling = self._polling, None
        try:
            self._page.extend(polled.result())
        except StoreClosed:
            self._feed.stop()
        return bool(self._page)

    async def __aenter__(self) -> AsyncSubscription:
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.stop()


def setter_of(ready: asyncio.Event, loop: asyncio.AbstractEventLoop) -> Callable[[], None]:
    """A function that sets the event from any thread.

    It has no reference to the object that waits, so that an object that is no longer used is garbage-collected.
    """

    def set_ready() -> None:
        with suppress(RuntimeError):  # the loop is closed, so no task waits there
            loop.call_soon_threadsafe(ready.set)

    return set_ready
