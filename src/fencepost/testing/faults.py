"""Engines that fail on purpose: they lose an acknowledgement, raise an error, or let another append overtake.

`FaultyEngine` wraps a real engine. It must cover every method of `Engine` and of every capability, since a method
without a fault could not be tested; tests/unit/test_faults.py and test_signatures.py fail if one is missing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from ..core.engine import Capability, Engine, InThread, ReadStart
from ..core.verdicts import Append, Verdict
from ..model import Query, Record, RecordedAppend, SequencedEvent

PATIENCE_S: Final = 60.0  # a thread that has not arrived after this time is taken to hang


class FaultyEngine:
    """Calls the wrapped engine, and a function of the test's choice before or after each call.

    `before` and `after` are called around every method that stores: `commit`, `commit_async` and `restore`.
    `before_scan` is called before every method that reads events, recorded appends or records. The method raises the
    error that they raise. If `before` raises, nothing was stored. If `after` raises, everything was stored and only the
    acknowledgement is lost.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._capable: Any = engine  # with methods for every capability that it declares
        self.before: Callable[[], None] = _nothing
        self.after: Callable[[], None] = _nothing
        self.before_scan: Callable[[], None] = _nothing

    @property
    def capabilities(self) -> Capability:
        return self.engine.capabilities

    def commit(self, appends: Sequence[Append]) -> Sequence[Verdict]:
        self.before()
        verdicts = self.engine.commit(appends)
        self.after()
        return verdicts

    async def commit_async(self, appends: Sequence[Append], in_thread: InThread) -> Sequence[Verdict]:
        await in_thread(self.before)  # which may block
        verdicts: Sequence[Verdict] = await self._capable.commit_async(appends, in_thread)
        await in_thread(self.after)
        return verdicts

    def restore(self, events: Sequence[SequencedEvent], appends: Sequence[RecordedAppend] = ()) -> None:
        self.before()
        self._capable.restore(events, appends)
        self.after()

    def begin(self, query: Query, *, after: int, up_to: int | None, limit: int | None, backwards: bool) -> ReadStart:
        self.before_scan()
        start: ReadStart = self._capable.begin(query, after=after, up_to=up_to, limit=limit, backwards=backwards)
        return start

    async def begin_async(
        self, query: Query, *, after: int, up_to: int | None, limit: int | None, backwards: bool, in_thread: InThread
    ) -> ReadStart:
        await in_thread(self.before_scan)
        start: ReadStart = await self._capable.begin_async(
            query, after=after, up_to=up_to, limit=limit, backwards=backwards, in_thread=in_thread
        )
        return start

    def scan(
        self, query: Query, *, after: int, up_to: int, limit: int | None = None, backwards: bool = False
    ) -> Iterator[Sequence[SequencedEvent]]:
        self.before_scan()
        return self.engine.scan(query, after=after, up_to=up_to, limit=limit, backwards=backwards)

    def recorded(self, *, after: int, up_to: int) -> Iterator[Sequence[RecordedAppend]]:
        self.before_scan()
        pages: Iterator[Sequence[RecordedAppend]] = self._capable.recorded(after=after, up_to=up_to)
        return pages

    def head(self) -> int:
        return self.engine.head()

    def wait(self, after: int, timeout_s: float) -> int:
        return self.engine.wait(after, timeout_s)

    def interrupt(self) -> None:
        self.engine.interrupt()

    def record(self, key: str) -> Record | None:
        self.before_scan()
        return self.engine.record(key)

    def records(self, prefix: str, *, after: str, limit: int) -> Sequence[Record]:
        self.before_scan()
        return self.engine.records(prefix, after=after, limit=limit)

    def close(self) -> None:
        self.engine.close()


class Gate:
    """A function that blocks every thread that calls it until the gate is opened."""

    def __init__(self) -> None:
        self._reached = threading.Event()
        self._opened = threading.Event()

    def __call__(self) -> None:
        self._reached.set()
        assert self._opened.wait(PATIENCE_S), "the gate was never opened"

    def wait_until_reached(self) -> None:
        assert self._reached.wait(PATIENCE_S), "no thread reached the gate"

    def open(self) -> None:
        self._opened.set()


def _nothing() -> None: ...


def once(action: Callable[[], None]) -> Callable[[], None]:
    """A function that calls the action the first time it is called, and does nothing after that."""
    actions = [action]

    def act() -> None:
        if actions:
            actions.pop()()

    return act


def raising(error: Exception) -> Callable[[], None]:
    """A function that raises the error."""

    def act() -> None:
        raise error

    return act
