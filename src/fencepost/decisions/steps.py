"""The I/O of a decision as steps, separate from how a thread, a task or a test performs them.

A decision is a generator that yields steps and is sent their results. `run_steps` runs the steps on a blocking store,
`run_steps_async` on an asyncio store, and `fencepost.testing.given` on a list of events. There is one generator for all
three, so a decision behaves the same in a thread, a task and a test.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Generator
from typing import Any, Protocol, TypeAlias, TypeVar

import msgspec

from ..aio import AsyncEventStore
from ..core.observers import Observation, notify
from ..errors import FencepostError
from ..model import AppendCondition, Event, Placed, Query, SequencedEvent
from ..store import EventStore
from .errors import DefinitionError

Outcome = TypeVar("Outcome")

AnyStore: TypeAlias = EventStore | AsyncEventStore


class Step(Protocol):
    """One operation. Its result is sent into the generator; a FencepostError is thrown into it."""

    def run(self, store: Any, /) -> Any: ...

    async def run_async(self, store: Any, /) -> Any: ...


Steps: TypeAlias = Generator[Step, Any, Outcome]


class ReadEvents(msgspec.Struct):
    """Read the events that match. The result is a list, and the head up to which it is complete."""

    query: Query
    after: int = 0
    up_to: int | None = None
    limit: int | None = None
    backwards: bool = False

    def run(self, store: EventStore, /) -> tuple[list[SequencedEvent], int]:
        reading = self._reading(store)
        return list(reading), reading.head

    async def run_async(self, store: AsyncEventStore, /) -> tuple[list[SequencedEvent], int]:
        reading = self._reading(store)
        return [event async for event in reading], reading.head

    def _reading(self, store: Any) -> Any:
        limit, backwards = self.limit, self.backwards
        return store.read(self.query, after=self.after, up_to=self.up_to, limit=limit, backwards=backwards)


class AppendEvents(msgspec.Struct):
    """Append the events. The result is their positions."""

    events: list[Event]
    condition: AppendCondition | None = None
    unless: Query | None = None
    checkpoint: tuple[str, int] | None = None

    def run(self, store: EventStore, /) -> Placed:
        return store.append(self.events, self.condition, unless=self.unless, checkpoint=self.checkpoint)

    async def run_async(self, store: AsyncEventStore, /) -> Placed:
        return await store.append(self.events, self.condition, unless=self.unless, checkpoint=self.checkpoint)


class Sleep(msgspec.Struct):
    """Wait for `wait_s`."""

    wait_s: float

    def run(self, store: object, /) -> None:
        time.sleep(self.wait_s)

    async def run_async(self, store: object, /) -> None:
        await asyncio.sleep(self.wait_s)


class Notify(msgspec.Struct):
    """Call the observers of the store with an observation."""

    observation: Observation

    def run(self, store: object, /) -> None:
        notify(store, self.observation)

    async def run_async(self, store: object, /) -> None:
        notify(store, self.observation)


class AwaitRule(msgspec.Struct):
    """Await the rule of a decision that is an `async def`."""

    awaitable: Any

    def run(self, store: object, /) -> Any:
        close = getattr(self.awaitable, "close", None)
        if close is not None:
            close()  # avoids the warning that the coroutine was never awaited
        raise DefinitionError("a decision that is an `async def` needs an asyncio store, from fencepost.aio.open(...)")

    async def run_async(self, store: object, /) -> Any:
        return await self.awaitable


class OnStore(msgspec.Struct):
    """Run a step on a store other than that of the decision. Either store may be blocking or asyncio."""

    store: Any  # of AnyStore
    step: Any  # a Step

    def run(self, store: object, /) -> Any:
        if isinstance(self.store, AsyncEventStore):
            raise DefinitionError(
                "keep_in is an asyncio store, but the decision runs on a blocking one; use a blocking store for keep_in"
            )
        return self.step.run(self.store)

    async def run_async(self, store: object, /) -> Any:
        if isinstance(self.store, AsyncEventStore):
            return await self.step.run_async(self.store)
        return await asyncio.to_thread(self.step.run, self.store)


def check_store(store: object, where: str) -> None:
    """Raise an error that names the mistake if the caller forgot the store, instead of an AttributeError later."""
    is_store = isinstance(store, (EventStore, AsyncEventStore)) or (hasattr(store, "read") and hasattr(store, "append"))
    if not is_store:
        kind = type(store).__name__
        raise DefinitionError(
            f"{where}: the first argument must be a store, as returned by fencepost.open(...), not {kind}"
        )


def run_steps(store: EventStore, steps: Steps[Outcome]) -> Outcome:
    """Run the steps on a blocking store and return the result of the generator."""
    return perform(steps, lambda step: step.run(store))


def perform(steps: Steps[Outcome], act: Callable[[Step], Any]) -> Outcome:
    """Let `act` run each step, and return the result of the generator."""
    try:
        step = next(steps)
        while True:
            try:
                outcome = act(step)
            except FencepostError as error:
                step = steps.throw(error)
            else:
                step = steps.send(outcome)
    except StopIteration as ended:
        return ended.value  # type: ignore[no-any-return]
    finally:
        steps.close()  # ends its turn in the retry queue now; a traceback would delay garbage collection


async def run_steps_async(store: AsyncEventStore, steps: Steps[Outcome]) -> Outcome:
    """Run the steps on an asyncio store and return the result of the generator."""
    try:
        step = next(steps)
        while True:
            try:
                outcome = await step.run_async(store)
            except FencepostError as error:
                step = steps.throw(error)
            else:
                step = steps.send(outcome)
    except StopIteration as ended:
        return ended.value  # type: ignore[no-any-return]
    finally:
        steps.close()  # ends its turn in the retry queue now; a traceback would delay garbage collection
