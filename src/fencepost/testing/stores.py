"""The methods that the contract suite calls on a store, as protocols.

`EventStore` has them. `BlockingStore` gives them to an `AsyncEventStore`, by running an event
loop in a thread and waiting for each call. So one suite tests both, and no test is written twice.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator
from functools import cache, wraps
from typing import Any, Concatenate, Final, ParamSpec, Protocol, TypeVar

from ..aio import AsyncEventStore, AsyncReading, AsyncSubscription
from ..core.engine import Engine
from ..model import AppendCondition, Event, Placed, Query, SequencedEvent
from ..store import EventStore

Result = TypeVar("Result")
Parameters = ParamSpec("Parameters")

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
        return store.awaitable.engine
    assert isinstance(store, EventStore), f"{type(store).__name__} has no engine that is known"
    return store.engine


@cache
def _loop() -> asyncio.AbstractEventLoop:
    """One loop for all stores, in a thread that ends with the process. It is started when the first store is opened."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="fencepost-blocking", daemon=True).start()
    return loop


def _as(
    verb: Callable[Concatenate[AsyncEventStore, Parameters], object],
) -> Callable[[Callable[..., Result]], Callable[Concatenate[BlockingStore, Parameters], Result]]:
    """Gives a method the parameters of the awaitable store's method."""
    return wraps(verb)


class BlockingStore:
    """An `AsyncEventStore` with the verbs of an `EventStore`."""

    def __init__(self, engine: Engine) -> None:
        self._loop = _loop()
        self.awaitable = AsyncEventStore(engine)

    @_as(AsyncEventStore.append)
    def append(self, *args: Any, **options: Any) -> Placed:
        return self.run(self.awaitable.append(*args, **options))

    @_as(AsyncEventStore.read)
    def read(self, *args: Any, **options: Any) -> BlockingReading:
        async def begin() -> AsyncReading:
            return await self.awaitable.read(*args, **options)

        return BlockingReading(self, self.run(begin()))

    @_as(AsyncEventStore.subscribe)
    def subscribe(self, *args: Any, **options: Any) -> BlockingSubscription:
        async def subscribe() -> AsyncSubscription:
            return self.awaitable.subscribe(*args, **options)

        return BlockingSubscription(self, self.run(subscribe()))

    def head(self) -> int:
        return self.run(self.awaitable.head())

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
