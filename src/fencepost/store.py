"""`EventStore`: a store whose calls block. `fencepost.aio` has the same store for asyncio.

Each method checks its arguments and calls the `StoreService` beneath, with signals held back meanwhile. The contract
suite in `fencepost.testing` says what each method does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from itertools import chain

from .core.arguments import checked_append, checked_range, checked_timeout
from .core.engine import Capability, Engine
from .core.judging import Append, Verdict
from .core.readings import Pages, Reading
from .core.restoring import checked_restore
from .core.service import StoreService
from .core.subscriptions import Subscription
from .interrupts import shielded
from .model import AppendCondition, Event, Placed, Query, RecordedAppend, SequencedEvent, checked_name


class EventStore:
    """A DCB event store over any engine. Thread-safe; `fencepost.open` makes one."""

    def __init__(self, engine: Engine | StoreService) -> None:
        # Given a service, this store is another face of it: both share one group commit, as engines demand.
        self._service = engine if isinstance(engine, StoreService) else StoreService(engine)

    @property
    def engine(self) -> Engine:
        """The engine beneath, for tools that measure or check it. Its methods do not check their arguments."""
        return self._service.engine

    @property
    def capabilities(self) -> Capability:
        """What the engine can do beyond the minimum."""
        return self._service.capabilities

    def append(
        self,
        events: Iterable[Event],
        condition: AppendCondition | Iterable[AppendCondition] | None = None,
        *,
        unless: Query | None = None,
        checkpoint: tuple[str, int] | None = None,
    ) -> Placed:
        """Store the events, all or none. They are durable when this returns.

        Raises `ConditionFailed` if an event that matches a condition was stored after the condition's `after`. If
        `unless` matches any stored event, or if events with the same ids are stored already, nothing is written and the
        result has `already=True`. `checkpoint=(name, position)` is stored in the same transaction and must grow.
        """
        append = checked_append(events, condition, unless, checkpoint)
        self._service.check_open()
        with shielded:
            return self._service.append(append)

    def append_each(self, appends: Iterable[Append]) -> list[Verdict]:
        """Store several appends that do not depend on each other, in order, with as few syncs as possible.

        For bulk loading. Each append is stored or refused by itself. A refusal does not raise an error; it is returned
        as the append's verdict. After a `StoreError`, some of the appends may be stored.
        """
        checked = [checked_append(each.events, each.conditions, each.unless, each.checkpoint) for each in appends]
        self._service.check_open()
        with shielded:
            return self._service.commit_each(checked)

    def read(
        self,
        query: Query | None = None,
        *,
        after: int = 0,
        upto: int | None = None,
        limit: int | None = None,
        backwards: bool = False,
    ) -> Reading:
        """The matching events with after < position <= upto, of one consistent state of the store."""
        query = checked_range(query, after, upto, limit)
        self._service.check_open()
        with shielded:
            start = self._service.begin(query, after=after, upto=upto, limit=limit, backwards=backwards)
        return Reading(start, limit, backwards)

    def head(self) -> int:
        """The position of the last event, 0 when there is none."""
        self._service.check_open()
        with shielded:
            return self._service.engine.head()

    def subscribe(self, query: Query | None = None, *, after: int = 0, timeout: float | None = None) -> Subscription:
        """The matching events after `after`: first the stored ones, then each new one as it is stored.

        The iteration waits for new events until `stop()` is called on the subscription, the store is closed, or no
        event has come for `timeout` seconds.
        """
        query = checked_range(query, after, None, None)
        checked_timeout(timeout)
        return Subscription(partial(self._service.feed, query, after), after, timeout)

    def checkpoint(self, name: str) -> int:
        """The position of the checkpoint, 0 if it was never set. `append(..., checkpoint=...)` moves it."""
        checked_name(name, "checkpoint")
        self._service.check_open()
        with shielded:
            return self._service.engine.checkpoint(name)

    def recorded(self, *, after: int = 0, upto: int | None = None) -> Iterator[RecordedAppend]:
        """The recorded conditions of appends with after < last <= upto, in order.

        Only appends through stores that were opened with `record_conditions=True` are recorded.
        """
        checked_range(None, after, upto, None)
        self._service.check_open()
        with shielded:
            pages = self._service.recorded(after, upto)
        return chain.from_iterable(Pages(pages))

    def restore(self, events: Iterable[SequencedEvent], appends: Iterable[RecordedAppend] = ()) -> None:
        """Store events of another store with their positions, times and ids, all or none.

        Their positions must follow on this store's head. Each recorded append must end with one of the events. Unlike
        an append, a restore checks no conditions.
        """
        checked = checked_restore(events, appends)
        self._service.check_open()
        with shielded:
            self._service.restore(*checked)

    def close(self) -> None:
        """End all subscriptions and release the storage. Idempotent."""
        with shielded:
            self._service.close()

    def __enter__(self) -> EventStore:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
