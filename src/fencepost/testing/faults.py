"""Engines that misbehave at the door of a real one: to lose an acknowledgement, fail, or be overtaken."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from ..commit import Append, Verdict
from ..model import Query, SequencedEvent
from ..store import Engine

PATIENCE_S: Final = 60.0  # after so long, a thread that has not come hangs


class FaultyEngine:
    """The engine beneath, with something that happens before or after each of its next commits.

    What `before` or `after` raises comes out of the commit: raised before, nothing was stored;
    raised after, everything was, and only the acknowledgement is lost.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.before: Callable[[], None] = _nothing
        self.after: Callable[[], None] = _nothing
        self.before_scan: Callable[[], None] = _nothing

    @property
    def group_commit(self) -> bool:
        return self.engine.group_commit

    def commit(self, appends: Sequence[Append]) -> Sequence[Verdict]:
        self.before()
        verdicts = self.engine.commit(appends)
        self.after()
        return verdicts

    def scan(
        self, query: Query, *, after: int, upto: int, limit: int | None = None, backwards: bool = False
    ) -> Iterator[Sequence[SequencedEvent]]:
        self.before_scan()
        return self.engine.scan(query, after=after, upto=upto, limit=limit, backwards=backwards)

    def head(self) -> int:
        return self.engine.head()

    def wait(self, after: int, timeout_s: float) -> int:
        return self.engine.wait(after, timeout_s)

    def interrupt(self) -> None:
        self.engine.interrupt()

    def checkpoint(self, name: str) -> int:
        return self.engine.checkpoint(name)

    def close(self) -> None:
        self.engine.close()


class Gate:
    """Holds whoever comes to it until it is opened."""

    def __init__(self) -> None:
        self._reached = threading.Event()
        self._opened = threading.Event()

    def __call__(self) -> None:
        self._reached.set()
        assert self._opened.wait(PATIENCE_S), "the gate was never opened"

    def wait_until_reached(self) -> None:
        assert self._reached.wait(PATIENCE_S), "nobody came to the gate"

    def open(self) -> None:
        self._opened.set()


def _nothing() -> None: ...


def once(action: Callable[[], None]) -> Callable[[], None]:
    """The action at the first call, nothing afterwards."""
    actions = [action]

    def act() -> None:
        if actions:
            actions.pop()()

    return act


def raising(error: Exception) -> Callable[[], None]:
    def act() -> None:
        raise error

    return act
