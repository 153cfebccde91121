"""`EventStore`: a store whose calls block. `fencepost.aio` has the same store for asyncio.

A store puts the parts of the core together: appends go through group commit to the engine, verdicts become results or
errors, readings begin, and one follower serves all subscriptions. Each method checks its arguments and holds signals
back while it works. The contract suite in `fencepost.testing` says what each method does.

The last functions of this module are for tools: they work on a store of any engine, and `fencepost.engine`
exports them. On an `AsyncEventStore`, tools call them in a thread, with its `blocking` face.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeAlias, Unpack, overload

from .core.address import Address, open_engine
from .core.arguments import checked_append, checked_range, checked_timeout
from .core.engine import Capability, Engine, ReadStart, record_pages, supported
from .core.group_commit import GroupCommit
from .core.interrupts import shielded
from .core.options import FoundationDBOptions, MemoryOptions, PostgresOptions, RemoteOptions, SqliteOptions
from .core.owner import Owner
from .core.readings import Pages, Reading
from .core.record_keys import CHECKPOINTS, RECORDS, named, position_of
from .core.restore import checked_restore
from .core.subscriptions import Feed, Follower, Subscription
from .core.verdicts import Append, Verdict
from .errors import StoreError
from .model import (
    AppendCondition,
    Delete,
    Event,
    Placed,
    Put,
    Query,
    Record,
    RecordedAppend,
    SequencedEvent,
    checked_name,
    checked_prefix,
)

if TYPE_CHECKING:
    from .aio import AsyncEventStore

Place: TypeAlias = str | os.PathLike[str] | Address


@overload
def open(address: Place, **options: Unpack[MemoryOptions]) -> EventStore: ...
@overload
def open(address: Place, **options: Unpack[SqliteOptions]) -> EventStore: ...
@overload
def open(address: Place, **options: Unpack[PostgresOptions]) -> EventStore: ...
@overload
def open(address: Place, **options: Unpack[FoundationDBOptions]) -> EventStore: ...
@overload
def open(address: Place, **options: Unpack[RemoteOptions]) -> EventStore: ...
def open(address: Place, **options: Any) -> EventStore:
    """Open the store at the address.

    A path, or `"sqlite:" + path`, names a file, which is created if necessary. `"memory:"` is a new store that ends
    with the process. docs/reference/api.md lists the other kinds of addresses and the options of each engine.
    """
    return EventStore(open_engine(address, **options))


class EventStore:
    """A DCB event store over any engine. Thread-safe; `fencepost.open` makes one."""

    def __init__(self, engine: Engine | EventStore) -> None:
        if isinstance(engine, EventStore):
            # Another face of the same store: both share one group commit, as engines demand.
            self.__dict__.update(engine.__dict__)
            return
        capabilities = supported(engine)
        self._engine = engine
        self._capable: Any = engine  # `supported` has checked that it has the methods for its capabilities
        self._begins = Capability.BEGIN in capabilities
        self._commits = GroupCommit(engine)
        self._follower = Follower(engine)
        self._owner = Owner()

    def append(
        self,
        events: Iterable[Event],
        condition: AppendCondition | Iterable[AppendCondition] | None = None,
        *,
        unless: Query | None = None,
        checkpoint: tuple[str, int] | None = None,
        records: Iterable[Put | Delete] = (),
    ) -> Placed:
        """Store the events, all or none. They are durable when this returns.

        Raises `ConditionFailed` if an event that matches a condition was stored after the condition's `after`. If
        `unless` matches any stored event, or if events with the same ids are stored already, nothing is written and the
        result has `already=True`. `checkpoint=(name, position)` is stored in the same transaction and must grow.
        `records` are changed in the same transaction, or `RecordChanged` is raised and nothing is stored.
        """
        append = checked_append(events, condition, unless, checkpoint, records)
        self._owner.check()
        with shielded:
            verdict = self._commits.run(append)
            return verdict if type(verdict) is Placed else self._commits.result(verdict)

    def read(
        self,
        query: Query | None = None,
        *,
        after: int = 0,
        up_to: int | None = None,
        limit: int | None = None,
        backwards: bool = False,
    ) -> Reading:
        """The matching events with after < position <= up_to, of one consistent state of the store."""
        query, after, up_to = checked_range(query, after, up_to, limit)
        self._owner.check()
        with shielded:
            start = self._begin(query, after=after, up_to=up_to, limit=limit, backwards=backwards)
        return Reading(start, limit, backwards)

    def head(self) -> int:
        """The position of the last event, 0 when there is none."""
        self._owner.check()
        with shielded:
            return self._engine.head()

    def subscribe(self, query: Query | None = None, *, after: int = 0, timeout_s: float | None = None) -> Subscription:
        """The matching events after `after`: first the stored ones, then each new one as it is stored.

        The iteration waits for new events until `stop()` is called on the subscription, the store is closed, or no
        event has come for `timeout_s` seconds.
        """
        query, after, _ = checked_range(query, after, None, None)
        timeout_s = checked_timeout(timeout_s)
        self._owner.check()
        return Subscription(partial(self._feed, query, after), after, timeout_s)

    def checkpoint(self, name: str) -> int:
        """The position of the checkpoint, 0 if it was never set. `append(..., checkpoint=...)` moves it."""
        name = checked_name(name, "checkpoint")
        self._owner.check()
        with shielded:
            return position_of(self._engine.record(CHECKPOINTS + name))

    @property
    def records(self) -> Records:
        """The named values beside the log."""
        return Records(self)

    def close(self) -> None:
        """End all subscriptions and release the storage. Idempotent, and without effect in a forked child."""
        with shielded:
            if self._owner.close():
                self._follower.close()
                self._engine.close()

    def __enter__(self) -> EventStore:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _begin(self, query: Query, *, after: int, up_to: int | None, limit: int | None, backwards: bool) -> ReadStart:
        if self._begins:
            start: ReadStart = self._capable.begin(query, after=after, up_to=up_to, limit=limit, backwards=backwards)
            return start
        last = self._bounded(up_to)
        return ReadStart(last, (), self._engine.scan(query, after=after, up_to=last, limit=limit, backwards=backwards))

    def _bounded(self, up_to: int | None) -> int:
        head = self._engine.head()
        return head if up_to is None else min(up_to, head)

    def _feed(self, query: Query, after: int, on_ready: Callable[[], None]) -> Feed:
        return Feed(self._engine, self._follower, query, after, on_ready)


class Records:
    """The records of a store: named values beside the log, each with a revision, changed by compare-and-set."""

    def __init__(self, store: EventStore) -> None:
        self._store = store

    def get(self, name: str) -> Record | None:
        """The record, or None if there is none."""
        name = checked_name(name, "name")
        self._store._owner.check()
        with shielded:
            stored = self._store._engine.record(RECORDS + name)
        return None if stored is None else named(stored)

    def list(self, prefix: str = "") -> Iterator[Record]:
        """The records whose names begin with `prefix`, by name.

        They are read in pages. A record that is changed meanwhile is delivered as it was before or after the change.
        """
        checked_prefix(prefix)
        self._store._owner.check()
        return map(named, chain.from_iterable(Pages(record_pages(self._store._engine, RECORDS + prefix))))

    def put(self, name: str, value: bytes, *, expected: int) -> Record:
        """Set the value of the record if its revision is `expected`. With `expected=0`, create it.

        Raises `RecordChanged`, which has the current record, if it is at another revision.
        """
        change = Put(name, value, expected)
        placed = self._store.append((), records=(change,))
        return Record(change.name, change.value, placed.revisions[0])

    def delete(self, name: str, *, expected: int) -> None:
        """Delete the record if its revision is `expected`. Raises `RecordChanged` if it is at another one."""
        self._store.append((), records=(Delete(name, expected),))


def parts_of(store: EventStore) -> tuple[GroupCommit, Owner]:
    """What the asyncio face of a store shares with it."""
    return store._commits, store._owner


def engine_of(store: EventStore | AsyncEventStore) -> Engine:
    """The engine beneath a store, for tools that measure, check or observe it. Its methods check no arguments."""
    return store._engine


def append_each(store: EventStore, appends: Iterable[Append]) -> list[Verdict]:
    """Store several appends that do not depend on each other, in order, with as few syncs as possible.

    For bulk loading. Each append is stored or refused by itself. A refusal does not raise an error; it is returned as
    the append's verdict. After a `StoreError`, some of the appends may be stored.
    """
    checked = [
        checked_append(each.events, each.conditions, each.unless, each.checkpoint, each.records) for each in appends
    ]
    store._owner.check()
    with shielded:
        return store._commits.run_all(checked)


def recorded(store: EventStore, *, after: int = 0, up_to: int | None = None) -> Iterator[RecordedAppend]:
    """The recorded conditions of appends with after < last <= up_to, in order.

    Only appends through stores that were opened with `record_conditions=True` are recorded.
    """
    _, after, up_to = checked_range(None, after, up_to, None)
    store._owner.check()
    if Capability.RECORDED_APPENDS not in store._engine.capabilities:
        raise StoreError("this engine does not record the conditions of appends")
    with shielded:
        pages = store._capable.recorded(after=after, up_to=store._bounded(up_to))
    return chain.from_iterable(Pages(pages))


def restore(store: EventStore, events: Iterable[SequencedEvent], appends: Iterable[RecordedAppend] = ()) -> None:
    """Store events of another store with their positions, times and ids, all or none.

    Their positions must follow on the head of the store. Each recorded append must end with one of the events. Unlike
    an append, a restore checks no conditions.
    """
    checked, records = checked_restore(events, appends)
    store._owner.check()
    if Capability.RESTORE not in store._engine.capabilities:
        raise StoreError("this engine assigns positions itself, so it cannot restore another store's events")
    if checked:
        with shielded:
            store._capable.restore(checked, records)
