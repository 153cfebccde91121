"""The base of the contract suite: how a test gets a store, and the functions that its tests are written with.

Positions are compared, never counted, so that the suite holds for stores whose positions have
gaps. No test measures time; where one waits for a thread, it waits long and fails loudly.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from functools import partial
from itertools import islice
from typing import Any, ClassVar, Final, Generic, TypeVar

import pytest

from ...core.engine import Engine
from ...errors import AppendRefused, ConditionFailed
from ...model import AppendCondition, Event, Placed, Query, SequencedEvent
from ...store import EventStore
from ..faults import PATIENCE_S, FaultyEngine, once
from ..stores import Store, engine_beneath

Result = TypeVar("Result")

BLOCKED_S: Final = 0.2  # a rival that has not ended by then is blocked by the append that it races


class Contract:
    """The hooks by which an engine is bound to the suite. Only `open_store` must be given."""

    gapless: ClassVar[bool] = True
    """Whether positions count from 1 without gaps."""

    _opened: Store

    def open_store(self) -> Store:
        """A new, empty store, another one at each call."""
        raise NotImplementedError("a subclass of the contract says how to open a new, empty store")

    def open_again(self) -> Store:
        """Another handle on the store that `open_store` made last, as another process would have it.

        Where a store cannot be shared, the same one.
        """
        return self._opened

    def store_over(self, engine: Engine) -> Store:
        """A store of the kind under test over an engine that the suite has wrapped."""
        return EventStore(engine)

    @contextmanager
    def older_transaction(self) -> Iterator[None]:
        """Keep an unrelated write transaction open in the same database.

        An engine without such transactions keeps a reading open instead.
        """
        reading = self._opened.read()
        next(reading, None)
        yield
        list(reading)

    @contextmanager
    def overtaken(self, store: Store, rival: Callable[[], None]) -> Iterator[Store]:
        """A store whose next commit calls `rival` as late as the engine allows: between check and commit.

        The default calls it just before the engine's commit. An engine that checks and commits in separate
        steps must override this and call `rival` between the two. `rival` does not block for long.
        """
        engine, late = self.faulty(store)
        engine.before = once(rival)
        yield late

    @pytest.fixture
    def store(self) -> Iterator[Store]:
        """A new store. Closing it after the test ends its subscriptions."""
        self._opened = self.open_store()
        with closing(self._opened):
            yield self._opened

    @pytest.fixture
    def again(self, store: Store) -> Iterator[Store]:
        """A second handle on the same store."""
        with closing(self.open_again()) as again:
            yield again

    def faulty(self, store: Store) -> tuple[FaultyEngine, Store]:
        """The engine beneath the store, ready to misbehave, and a store over it."""
        engine = FaultyEngine(engine_beneath(store))
        return engine, self.store_over(engine)


def events(type: str, *tags: str, count: int = 1) -> list[Event]:
    """`count` events of that type with those tags."""
    return [Event(type, data=b"%d" % number, tags=tags) for number in range(count)]


def typed(*types: str) -> Query:
    return Query.of(types=types)


def tagged(*tags: str) -> Query:
    return Query.of(tags=tags)


def no_new(query: Query, after: int = 0) -> AppendCondition:
    return AppendCondition(query, after=after)


def positions(found: Iterable[SequencedEvent]) -> list[int]:
    return [event.position for event in found]


def types(found: Iterable[SequencedEvent]) -> list[str]:
    return [event.type for event in found]


def contents(found: Iterable[SequencedEvent]) -> list[Event]:
    """The events as they were appended, without positions and times."""
    return [event.event for event in found]


def take(source: Iterator[SequencedEvent], count: int) -> list[SequencedEvent]:
    """The next `count` events of a reading or subscription, or fewer if it ends."""
    return list(islice(source, count))


def attempt(call: Callable[[], Placed]) -> Placed | AppendRefused:
    """The result of an append: its placement, or the refusal, which is returned and not raised."""
    try:
        return call()
    except AppendRefused as refusal:
        return refusal


def condition_fails(store: Store, *args: Any, **options: Any) -> ConditionFailed:
    """Make an append whose condition must fail, and return its refusal."""
    with pytest.raises(ConditionFailed) as failed:
        store.append(*args, **options)
    return failed.value


def race(handles: Iterable[Store], *args: Any, **options: Any) -> list[Any]:
    """Make the same append through all handles at the same time. Returns placements and refusals."""
    return together(*[partial(attempt, partial(handle.append, *args, **options)) for handle in handles])


def together(*calls: Callable[[], Result]) -> list[Result]:
    """Make the calls at the same time, each in its own thread. Returns their results in the order of the calls."""
    start = threading.Barrier(len(calls))

    def started(call: Callable[[], Result]) -> Result:
        start.wait(PATIENCE_S)
        return call()

    running = [Running(partial(started, call)) for call in calls]
    return [thread.result() for thread in running]


class Running(AbstractContextManager["Running[Result]"], Generic[Result]):
    """A call in a thread of its own."""

    def __init__(self, call: Callable[[], Result]) -> None:
        self._call = call
        self._results: list[Result] = []
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="fencepost-test", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._results.append(self._call())
        except BaseException as error:
            self._error = error

    def ended(self, within_s: float) -> bool:
        self._thread.join(within_s)
        return not self._thread.is_alive()

    def result(self) -> Result:
        assert self.ended(PATIENCE_S), "a thread hangs"
        if self._error is not None:
            raise self._error
        return self._results[0]

    def __exit__(self, *exc: object) -> None:
        self.result()
