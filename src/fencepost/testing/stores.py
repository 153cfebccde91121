"""What the suite asks of a store, so that whatever has the verbs can be put under it.

`EventStore` is one. `BlockingStore` makes another of the awaitable twin, by running its event
loop in a thread and waiting for each verb: so one suite tests both, and no test is written twice.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Coroutine, Iterable, Iterator
from functools import cache
from typing import Any, Final, Protocol, TypeVar

from ..aio import AsyncEventStore, AsyncReading, AsyncSubscription
from ..model import AppendCondition, Event, Placed, Query, SequencedEvent
from ..store import Engine, EventStore

Result = TypeVar("Result")

CHUNK_EVENTS: Final = 1_024  # taken from an awaitable reading in one hop between threads


class Read(Protocol):
    """As `Reading`."""

    @property
    def head(self) -> int: ...
    def __iter__(self) -> Iterator[SequencedEvent]: ...
    def __next__(self) -> SequencedEvent: ...


class Subscribed(Protocol):
    """As `Subscription`."""

    @property
    def position(self) -> int: ...
    def stop(self) -> None: ...
    def __iter__(self) -> Iterator[SequencedEvent]: ...
    def __next__(self) -> SequencedEvent: ...


class Store(Protocol):
    """As `EventStore`."""

    def append(
        self,
        events: Iterable[Event],
        condition: AppendCondition | Iterable[AppendCondition] | None = None,
        *,
        unless: Query | None = None,
        checkpoint: tuple[str, int] | None = None,
    ) -> Placed: ...

    def read(
        self,
        query: Query | None = None,
        *,
        after: int = 0,
        upto: int | None = None,
        limit: int | None = None,
        backwards: bool = False,
    ) -> Read: ...

    def head(self) -> int: ...

    def subscribe(self, query: Query | None = None, *, after: int = 0, timeout: float | None = None) -> Subscribed: ...

    def checkpoint(self, name: str) -> int: ...

    def close(self) -> None: ...


def engine_of(store: Store) -> Engine:
    """The engine beneath a store, to be put under another one or to be wrapped in faults."""
    if isinstance(store, BlockingStore):
        return engine_of(store.awaitable._store)
    assert isinstance(store, EventStore), f"{type(store).__name__} has no engine that is known"
    return store._engine


@cache
def _loop() -> asyncio.AbstractEventLoop:
    """One loop for all stores, in a thread that ends with the process. Asked for by whoever opens a store."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="fencepost-blocking", daemon=True).start()
    return loop


class BlockingStore:
    """An `AsyncEventStore` with the verbs of an `EventStore`."""

    def __init__(self, engine: Engine) -> None:
        self._loop = _loop()
        self.awaitable = AsyncEventStore(engine)

    def append(
        self,
        events: Iterable[Event],
        condition: AppendCondition | Iterable[AppendCondition] | None = None,
        *,
        unless: Query | None = None,
        checkpoint: tuple[str, int] | None = None,
    ) -> Placed:
        return self.run(self.awaitable.append(events, condition, unless=unless, checkpoint=checkpoint))

    def read(
        self,
        query: Query | None = None,
        *,
        after: int = 0,
        upto: int | None = None,
        limit: int | None = None,
        backwards: bool = False,
    ) -> BlockingReading:
        async def begin() -> AsyncReading:
            return await self.awaitable.read(query, after=after, upto=upto, limit=limit, backwards=backwards)

        return BlockingReading(self, self.run(begin()))

    def head(self) -> int:
        return self.run(self.awaitable.head())

    def subscribe(
        self, query: Query | None = None, *, after: int = 0, timeout: float | None = None
    ) -> BlockingSubscription:
        async def subscribe() -> AsyncSubscription:
            return self.awaitable.subscribe(query, after=after, timeout=timeout)

        return BlockingSubscription(self, self.run(subscribe()))

    def checkpoint(self, name: str) -> int:
        return self.run(self.awaitable.checkpoint(name))

    def close(self) -> None:
        self.run(self.awaitable.close())

    def run(self, verb: Coroutine[Any, Any, Result]) -> Result:
        return asyncio.run_coroutine_threadsafe(verb, self._loop).result()


class BlockingReading:
    def __init__(self, store: BlockingStore, reading: AsyncReading) -> None:
        self._store = store
        self._reading = reading
        self._events = reading.__aiter__()
        self._chunk: deque[SequencedEvent] = deque()

    @property
    def head(self) -> int:
        return self._reading.head

    def __iter__(self) -> Iterator[SequencedEvent]:
        return self

    def __next__(self) -> SequencedEvent:
        if not self._chunk:
            self._store.run(self._take())
        if not self._chunk:
            raise StopIteration
        return self._chunk.popleft()

    async def _take(self) -> None:
        async for event in self._events:
            self._chunk.append(event)
            if len(self._chunk) == CHUNK_EVENTS:
                return


class BlockingSubscription:
    def __init__(self, store: BlockingStore, subscription: AsyncSubscription) -> None:
        self._store = store
        self._subscription = subscription

    @property
    def position(self) -> int:
        return self._store.run(self._position())

    def stop(self) -> None:
        self._store.run(self._stop())

    def __iter__(self) -> Iterator[SequencedEvent]:
        return self

    def __next__(self) -> SequencedEvent:
        event = self._store.run(self._next())
        if event is None:
            raise StopIteration
        return event

    async def _next(self) -> SequencedEvent | None:
        async for event in self._subscription:
            return event
        return None

    async def _position(self) -> int:
        return self._subscription.position

    async def _stop(self) -> None:
        self._subscription.stop()
