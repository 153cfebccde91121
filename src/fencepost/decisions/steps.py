"""Steps: what a decision asks of the world, apart from how it is waited for.

The course of a decision is one generator that yields steps and is sent their outcomes. `drive`
takes them on a store, `drive_async` on an awaitable one, and the given/when/then kit on a list
of events: one course, so a decision cannot behave differently in a test, a thread or a task.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Generator
from typing import Any, Protocol, TypeAlias, TypeVar

import msgspec

from ..aio import AsyncEventStore
from ..errors import FencepostError
from ..model import AppendCondition, Event, Placed, Query, SequencedEvent
from ..store import EventStore
from .errors import DefinitionError

Outcome = TypeVar("Outcome")

AnyStore: TypeAlias = EventStore | AsyncEventStore


class Step(Protocol):
    """Something to be done; its outcome goes back into the course, and so does a FencepostError."""

    def take(self, store: Any, /) -> Any: ...

    async def take_async(self, store: Any, /) -> Any: ...


Course: TypeAlias = Generator[Step, Any, Outcome]


class Read(msgspec.Struct):
    """The events that match, as a list, and the head up to which they are complete; or the newest alone."""

    query: Query
    after: int = 0
    upto: int | None = None
    newest: bool = False

    def take(self, store: EventStore, /) -> tuple[list[SequencedEvent], int]:
        if self.newest:
            reading = store.read(self.query, limit=1, backwards=True)
        else:
            reading = store.read(self.query, after=self.after, upto=self.upto)
        return list(reading), reading.head

    async def take_async(self, store: AsyncEventStore, /) -> tuple[list[SequencedEvent], int]:
        if self.newest:
            reading = store.read(self.query, limit=1, backwards=True)
        else:
            reading = store.read(self.query, after=self.after, upto=self.upto)
        return [event async for event in reading], reading.head


class Append(msgspec.Struct):
    """Store the events; the outcome is where they are."""

    events: list[Event]
    condition: AppendCondition | None = None
    unless: Query | None = None

    def take(self, store: EventStore, /) -> Placed:
        return store.append(self.events, self.condition, unless=self.unless)

    async def take_async(self, store: AsyncEventStore, /) -> Placed:
        return await store.append(self.events, self.condition, unless=self.unless)


class Sleep(msgspec.Struct):
    """Let time pass."""

    wait_s: float

    def take(self, store: object, /) -> None:
        time.sleep(self.wait_s)

    async def take_async(self, store: object, /) -> None:
        await asyncio.sleep(self.wait_s)


class Await(msgspec.Struct):
    """Wait for what a decision written as `async def` returns."""

    awaitable: Any

    def take(self, store: object, /) -> Any:
        close = getattr(self.awaitable, "close", None)
        if close is not None:
            close()  # never started, and not to be warned about
        raise DefinitionError("a decision that is `async def` needs the awaitable store, fencepost.aio.open(...)")

    async def take_async(self, store: object, /) -> Any:
        return await self.awaitable


class Elsewhere(msgspec.Struct):
    """A step to be taken on another store than the decision's own, of either kind."""

    store: Any  # of AnyStore
    step: Any  # a Step

    def take(self, store: object, /) -> Any:
        if isinstance(self.store, AsyncEventStore):
            raise DefinitionError("snapshots of a decision on a blocking store cannot be kept in an awaitable one")
        return self.step.take(self.store)

    async def take_async(self, store: object, /) -> Any:
        if isinstance(self.store, AsyncEventStore):
            return await self.step.take_async(self.store)
        return await asyncio.to_thread(self.step.take, self.store)


def drive(store: EventStore, course: Course[Outcome]) -> Outcome:
    """Take the steps of the course, blocking."""
    try:
        step = next(course)
        while True:
            try:
                outcome = step.take(store)
            except FencepostError as error:
                step = course.throw(error)
            else:
                step = course.send(outcome)
    except StopIteration as ended:
        return ended.value  # type: ignore[no-any-return]


async def drive_async(store: AsyncEventStore, course: Course[Outcome]) -> Outcome:
    """Take the steps of the course, awaiting each."""
    try:
        step = next(course)
        while True:
            try:
                outcome = await step.take_async(store)
            except FencepostError as error:
                step = course.throw(error)
            else:
                step = course.send(outcome)
    except StopIteration as ended:
        return ended.value  # type: ignore[no-any-return]
