"""The store for asyncio: `AsyncEventStore` has the methods of `EventStore`, to be awaited.

Both stores are thin faces of the same core (`core/service.py`, `core/async_service.py`). Blocking calls run in a few
threads of the store. A live subscription occupies no thread.

Cancelling an `append` withdraws it if no batch has taken it yet. Then it is not stored and never will be. Otherwise the
append is stored as a whole or refused, and the cancelled task does not learn which. To find out, append again with the
same event ids. The contract suite runs against this store as well (`fencepost.testing.Awaitable`).
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from .core.arguments import checked_append, checked_range, checked_timeout
from .core.async_service import AsyncStoreService
from .core.engine import Capability, Engine, ReadStart
from .core.judging import Append, Verdict
from .core.readings import Extent, Pages
from .core.restoring import checked_restore
from .core.subscriptions import Feed, FeedReader
from .errors import ReadingNotFinished, StoreClosed
from .interrupts import shielded
from .model import AppendCondition, Event, Placed, Query, RecordedAppend, SequencedEvent, checked_name
from .opening import open_engine
from .store import EventStore

__all__ = ["AsyncEventStore", "AsyncReading", "AsyncSubscription", "open"]


async def open(address: str | os.PathLike[str], **options: Any) -> AsyncEventStore:
    """Open the store at the address; see `fencepost.open`.

    `async with await fencepost.aio.open("wallet.db") as store: ...`
    """
    loop = asyncio.get_running_loop()
    return AsyncEventStore(await loop.run_in_executor(None, lambda: open_engine(address, **options)))


class AsyncEventStore:
    """An `EventStore` whose calls are awaited. Made by `fencepost.aio.open`."""

    def __init__(self, engine: Engine) -> None:
        self._service = AsyncStoreService(engine)
        self._closed = False

    @property
    def engine(self) -> Engine:
        """As `EventStore.engine`."""
        return self._service.engine

    @property
    def blocking(self) -> EventStore:
        """This store for code that runs in threads. Its appends join the same group commit; closing it closes both."""
        return EventStore(self._service)

    @property
    def capabilities(self) -> Capability:
        """As `EventStore.capabilities`."""
        return self._service.capabilities

    async def append(
        self,
        events: Iterable[Event],
        condition: AppendCondition | Iterable[AppendCondition] | None = None,
        *,
        unless: Query | None = None,
        checkpoint: tuple[str, int] | None = None,
    ) -> Placed:
        """As `EventStore.append`. When cancelled: see the module's documentation."""
        return await self._service.append_async(checked_append(events, condition, unless, checkpoint))

    async def append_each(self, appends: Iterable[Append]) -> list[Verdict]:
        """As `EventStore.append_each`."""
        checked = [checked_append(each.events, each.conditions, each.unless, each.checkpoint) for each in appends]
        return await self._service.run(self._service.commit_each, checked)

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

        The reading begins when its first event is asked for. `reading = await store.read(...)` begins it at once, so
        that `reading.head` is known before the first event.
        """
        query = checked_range(query, after, upto, limit)
        self._service.check_open()
        begin = partial(self._service.begin_async, query, after=after, upto=upto, limit=limit, backwards=backwards)
        return AsyncReading(begin, self._service.run, limit, backwards)

    async def head(self) -> int:
        """As `EventStore.head`."""
        return await self._service.run(self._service.engine.head)

    def subscribe(
        self, query: Query | None = None, *, after: int = 0, timeout: float | None = None
    ) -> AsyncSubscription:
        """As `EventStore.subscribe`: `async for event in store.subscribe(...)`."""
        query = checked_range(query, after, None, None)
        checked_timeout(timeout)
        self._service.check_open()
        return AsyncSubscription(partial(self._service.feed, query, after), after, timeout, self._service.run)

    async def checkpoint(self, name: str) -> int:
        """As `EventStore.checkpoint`."""
        checked_name(name, "checkpoint")
        return await self._service.run(self._service.engine.checkpoint, name)

    async def recorded(self, *, after: int = 0, upto: int | None = None) -> AsyncIterator[RecordedAppend]:
        """As `EventStore.recorded`: `async for append in store.recorded()`."""
        checked_range(None, after, upto, None)
        pages = await self._service.run(self._service.recorded, after, upto)
        while (page := await self._service.run(next, pages, None)) is not None:
            for append in page:
                yield append

    async def restore(self, events: Iterable[SequencedEvent], appends: Iterable[RecordedAppend] = ()) -> None:
        """As `EventStore.restore`."""
        await self._service.run(lambda: self._service.restore(*checked_restore(events, appends)))

    async def close(self) -> None:
        """As `EventStore.close`."""
        if not self._closed:
            self._closed = True
            await self._service.close_async()

    async def __aenter__(self) -> AsyncEventStore:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()


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
    def upto(self) -> int:
        """The position up to which the reading reads: the head of the store when it began, or the given `upto`."""
        if self._extent is None:
            raise ReadingNotFinished("upto: the reading has not begun; await it or iterate over it")
        return self._extent.upto

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
            self._extent = Extent(start.upto, self._limit, self._backwards)
        return self


class AsyncSubscription(FeedReader):
    """As `Subscription`: ends after `stop()`, when the store is closed, or `timeout` seconds after the last event."""

    def __init__(
        self,
        subscribe: Callable[[Callable[[], None]], Feed],
        after: int,
        timeout: float | None,
        run: Callable[..., Any],
    ) -> None:
        super().__init__(after, timeout)
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
