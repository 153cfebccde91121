"""The interface between the store and its engines: what every engine must offer, and what it may offer besides.

An engine does only what differs from storage to storage: commit a batch, scan, report the head, wait for a new head,
keep records. The core does everything else once. An engine declares what else it can do in one value,
`capabilities`. Each capability has a protocol here, and `supported` is the one place that checks an engine against
them. `fencepost.testing` has the suite that an engine must pass, and an engine that injects faults into every method;
tests/unit/test_faults.py fails if a capability is not covered there.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from enum import Flag, auto
from typing import Any, Final, NamedTuple, Protocol, TypeVar, runtime_checkable

from ..model import Query, Record, RecordedAppend, SequencedEvent
from .record_keys import PAGE_RECORDS
from .verdicts import Append, Verdict

Result = TypeVar("Result")


class Capability(Flag):
    """What an engine can do beyond the `Engine` protocol."""

    NONE = 0
    GROUP_COMMIT = auto()  # `commit` takes batches, which the core makes of concurrent appends; else, one append each
    BEGIN = auto()  # reads the head and the first page in one step
    ASYNC_READ = auto()  # begins a reading on an event loop, without a thread
    ASYNC_COMMIT = auto()  # commits on an event loop, without a thread
    RECORDED_APPENDS = auto()  # keeps the conditions of appends, if opened with `record_conditions=True`
    RESTORE = auto()  # stores events of another store with their positions and times


class Engine(Protocol):
    """What every engine must offer. Many threads call it concurrently.

    If the engine declares `Capability.GROUP_COMMIT`, only one thread or task at a time calls `commit`.
    """

    @property
    def capabilities(self) -> Capability: ...

    def commit(self, appends: Sequence[Append]) -> Sequence[Verdict]:
        """Judge the appends in order (see `judging.judge`) and store the accepted ones durably.

        A `StoreError` fails the whole batch: none of its appends is acknowledged.
        """

    def scan(
        self, query: Query, *, after: int, up_to: int, limit: int | None = None, backwards: bool = False
    ) -> Iterator[Sequence[SequencedEvent]]:
        """The matching events with after < position <= up_to, in pages that are not empty.

        `up_to` is at most a head that this engine has reported. At most a page is held in memory.
        """

    def head(self) -> int:
        """The last position, 0 when empty. Everything up to it is readable and will not change."""

    def wait(self, after: int, timeout_s: float) -> int:
        """Wait until the head is above `after`, the time is over, or `interrupt` is called. Return the head."""

    def interrupt(self) -> None:
        """Make every `wait` return now."""

    def record(self, key: str) -> Record | None:
        """The record with this key, which is its name here: `core/record_keys.py` says what a key is."""

    def records(self, prefix: str, *, after: str, limit: int) -> Sequence[Record]:
        """The first records whose keys begin with `prefix` and come after `after`, by key; fewer than `limit`: all."""

    def close(self) -> None: ...


class ReadStart(NamedTuple):
    """The start of a reading: the position up to which it reads, its first page, and an iterator over the others."""

    up_to: int
    page: Sequence[SequencedEvent]  # may be empty
    rest: Iterator[Sequence[SequencedEvent]] | None  # None if there is no other page

    def with_first_page(self) -> ReadStart:
        """The same with a page that is empty only if no event matches. This may take I/O."""
        if self.page or self.rest is None:
            return self
        page = next(self.rest, None)
        return ReadStart(self.up_to, (), None) if page is None else ReadStart(self.up_to, page, self.rest)


class InThread(Protocol):
    """Runs a blocking call in a thread of the store and awaits its result."""

    def __call__(self, call: Callable[..., Result], /, *args: Any) -> Awaitable[Result]: ...


@runtime_checkable
class SupportsBegin(Protocol):
    def begin(self, query: Query, *, after: int, up_to: int | None, limit: int | None, backwards: bool) -> ReadStart:
        """As `head`, followed by `scan` up to that head, or up to `up_to` if it is lower."""


@runtime_checkable
class SupportsAsyncRead(Protocol):
    async def begin_async(
        self, query: Query, *, after: int, up_to: int | None, limit: int | None, backwards: bool, in_thread: InThread
    ) -> ReadStart:
        """As `SupportsBegin.begin` and `with_first_page`. Calls that would block the loop go through `in_thread`."""


@runtime_checkable
class SupportsAsyncCommit(Protocol):
    async def commit_async(self, appends: Sequence[Append], in_thread: InThread) -> Sequence[Verdict]:
        """As `Engine.commit`. Calls that would block the loop go through `in_thread`."""


@runtime_checkable
class SupportsRecordedAppends(Protocol):
    """The conditions of an append are stored in the same transaction as its events."""

    def recorded(self, *, after: int, up_to: int) -> Iterator[Sequence[RecordedAppend]]:
        """The recorded appends with after < last <= up_to, in order, in pages that are not empty."""


@runtime_checkable
class SupportsRestore(Protocol):
    def restore(self, events: Sequence[SequencedEvent], appends: Sequence[RecordedAppend] = ()) -> None:
        """Store the events after the head, all or none, with their positions, times and ids.

        The core has checked that each event is valid, that positions grow, that ids differ, and that each recorded
        append ends with one of the events. The engine raises `InvalidInput` for `events` if the positions do not follow
        on its head, or if it already stores one of the ids.
        """


PROTOCOLS: Final[dict[Capability, type]] = {
    Capability.BEGIN: SupportsBegin,
    Capability.ASYNC_READ: SupportsAsyncRead,
    Capability.ASYNC_COMMIT: SupportsAsyncCommit,
    Capability.RECORDED_APPENDS: SupportsRecordedAppends,
    Capability.RESTORE: SupportsRestore,
}


def record_pages(engine: Engine, prefix: str) -> Iterator[Sequence[Record]]:
    """The records whose keys begin with the prefix, by key, in pages."""
    after = ""
    while page := engine.records(prefix, after=after, limit=PAGE_RECORDS):
        yield page
        if len(page) < PAGE_RECORDS:
            return
        after = page[-1].name


def supported(engine: Engine) -> Capability:
    """The capabilities that the engine declares, after a check that it has the methods for them."""
    for capability, protocol in PROTOCOLS.items():
        if capability in engine.capabilities and not isinstance(engine, protocol):
            raise TypeError(f"{type(engine).__name__} declares {capability.name}, but not all of {protocol.__name__}")
    return engine.capabilities
