"""Steps that wait for FoundationDB's futures, written once for threads and for event loops.

A computation is a generator that yields each future before it takes the future's result. `run` blocks the calling
thread until the future is ready. `run_async` awaits it: the client's network thread calls back, and the callback wakes
the event loop. So a thread waits for one call, and an event loop for any number of them.

Threads wait through `fencepost.interrupts`, not through the binding: after a Ctrl-C in the binding's own `wait`, the
next wait of the same thread ends too early (tests/foundationdb/test_simulated_client.py shows it).
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from contextlib import suppress
from typing import Any, TypeAlias, TypeVar

from ...interrupts import Wakeup
from .binding import Future

Result = TypeVar("Result")

Steps: TypeAlias = Generator[Future, None, Result]


def result(future: Future) -> Steps[Any]:
    """Wait for one future, and return its result."""
    yield future
    return future.wait()


def run(steps: Steps[Result]) -> Result:
    """Carry out the steps in this thread."""
    try:
        while True:
            _block(next(steps))
    except StopIteration as ended:
        result: Result = ended.value
        return result
    except BaseException:
        steps.close()
        raise


async def run_async(steps: Steps[Result]) -> Result:
    """Carry out the steps on the running event loop."""
    try:
        while True:
            await _ready(next(steps))
    except StopIteration as ended:
        result: Result = ended.value
        return result
    except BaseException:
        steps.close()
        raise


def _block(future: Future) -> None:
    if future.is_ready():
        return
    wakeup = Wakeup()
    future.on_ready(lambda _: wakeup.set())
    while not future.is_ready():
        wakeup.wait()  # it may end early, because a signal was handled


async def _ready(future: Future) -> None:
    if future.is_ready():
        return
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()

    def set_ready() -> None:
        if not ready.done():
            ready.set_result(None)

    def call_back(_: object) -> None:
        with suppress(RuntimeError):  # the loop was closed, and nothing waits any more
            loop.call_soon_threadsafe(set_ready)

    future.on_ready(call_back)
    await ready
