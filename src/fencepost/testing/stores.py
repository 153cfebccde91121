"""The stores that the contract suite runs on, all with the methods of `EventStore`.

`BlockingStore` gives these methods to an `AsyncEventStore`, by running an event loop in a thread and
waiting for each call. So one suite tests both, and no test is written twice.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from functools import cache, wraps
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, TypeAlias, TypeVar

from ..aio import AsyncEventStore, AsyncReading, AsyncSubscription
from ..core.engine import Engine
from ..model import Placed, Record, SequencedEvent
from ..store import EventStore, engine_of

if TYPE_CHECKING:
    from .clients import ClientStore

Result = TypeVar("Result")
Parameters = ParamSpec("Parameters")

CHUNK_EVENTS: Final = 1_024  # taken from an awaitable reading in one hop between threads


# What the contract suite runs on. test_signatures.py holds that all of them have the same methods.
Store: TypeAlias = "EventStore | BlockingStore | ClientStore"


def engine_beneath(store: Store) -> Engine:
    """The engine beneath a store, to be put under another one or to be wrapped in faults."""
    if isinstance(store, BlockingStore):
        return engine_of(store.awaitable)
    assert isinstance(store, EventStore), f"{type(store).__name__} has no engine that is known"
    return engine_of(store)


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


async def _opened(engine: Engine) -> AsyncEventStore:
    return AsyncEventStore(engine)  # which belongs to the loop that runs this


class BlockingStore:
    """An `AsyncEventStore` with the verbs of an `EventStore`."""

    def __init__(self, engine: Engine) -> None:
        self._loop = _loop()
        self.awaitable = self.run(_opened(engine))

    @_as(AsyncEventStore.append)
    def append(self, *args: Any, **options: Any) -> Placed:
        return self.run(self.awaitable.append(*args, **options))

    @_as(AsyncEventStore.read)
    def read(self, *args: Any, **options: Any) -> BlockingIterator:
        async def begin() -> AsyncReading:
            return await self.awaitable.read(*args, **options)

        return BlockingIterator(self, self.run(begin()), CHUNK_EVENTS)

    @_as(AsyncEventStore.subscribe)
    def subscribe(self, *args: Any, **options: Any) -> BlockingIterator:
        async def subscribe() -> AsyncSubscription:
            return self.awaitable.subscribe(*args, **options)

        return BlockingIterator(self, self.run(subscribe()), 1)

    def head(self) -> int:
        return self.run(self.awaitable.head())

    def checkpoint(self, name: str) -> int:
        return self.run(self.awaitable.checkpoint(name))

    @property
    def records(self) -> BlockingRecords:
        return BlockingRecords(self)

    def close(self) -> None:
        self.run(self.awaitable.close())

    def run(self, verb: Coroutine[Any, Any, Result]) -> Result:
        return asyncio.run_coroutine_threadsafe(verb, self._loop).result()


class BlockingRecords:
    """The records of an awaitable store, with the verbs of `Records`."""

    def __init__(self, store: BlockingStore) -> None:
        self._store = store
        self._records = store.awaitable.records

    def get(self, name: str) -> Record | None:
        return self._store.run(self._records.get(name))

    def list(self, prefix: str = "") -> Iterator[Record]:
        async def take() -> list[Record]:
            return [record async for record in self._records.list(prefix)]

        return iter(self._store.run(take()))

    def put(self, name: str, value: bytes, *, expected: int) -> Record:
        return self._store.run(self._records.put(name, value, expected=expected))

    def delete(self, name: str, *, expected: int) -> None:
        self._store.run(self._records.delete(name, expected=expected))


class BlockingIterator:
    """A reading or a subscription of an awaitable store. It takes `chunk_events` at once from its source."""

    def __init__(self, store: BlockingStore, source: Any, chunk_events: int) -> None:
        self._store = store
        self._source = source
        self._events = source.__aiter__()
        self._chunk_events = chunk_events
        self._chunk: deque[SequencedEvent] = deque()

    @property
    def head(self) -> int:
        return self._source.head  # type: ignore[no-any-return]

    @property
    def position(self) -> int:
        return self._source.position  # type: ignore[no-any-return]

    def stop(self) -> None:
        self._source.stop()

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
            if len(self._chunk) == self._chunk_events:
                return
