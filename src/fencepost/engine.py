"""The seam below the store: what a storage must offer to be an engine.

An engine does only what no two of them do alike: commit a batch, scan, tell the head, wait for a
new one, keep checkpoints. `EventStore` does everything else. `fencepost.testing` holds the suite
that an engine must pass, ours or yours.

More that an engine may do or leave: begin a reading in one step (`Beginning`), and on an event loop
(`BeginningAwaitably`); commit on an event loop (`CommittingAwaitably`); keep what each append was conditional on
(`Recording`); take events with positions and times of their own (`Restoring`). A store asks whether it does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol, runtime_checkable

from .commit import Append, Verdict
from .model import Query, RecordedAppend, SequencedEvent


class Engine(Protocol):
    """What a storage must offer. All of it is called from many threads at once, `commit` from
    one at a time unless `group_commit` is false.
    """

    @property
    def group_commit(self) -> bool:
        """Whether concurrent appends are to be gathered into batches. False where the database does that."""

    def commit(self, appends: Sequence[Append]) -> Sequence[Verdict]:
        """Judge the appends in order (see `commit.judge`) and store durably what is accepted.

        A `StoreError` fails the whole batch: nothing of it may count as acknowledged.
        """

    def scan(
        self, query: Query, *, after: int, upto: int, limit: int | None = None, backwards: bool = False
    ) -> Iterator[Sequence[SequencedEvent]]:
        """The matching events with after < position <= upto, in pages that are not empty.

        `upto` is at most a head that this engine has reported. The memory taken is bounded by the page.
        """

    def head(self) -> int:
        """The last position, 0 when empty. Everything up to it is readable and will not change."""

    def wait(self, after: int, timeout_s: float) -> int:
        """The head, as soon as it is above `after`, or when the time is over or `interrupt` is called."""

    def interrupt(self) -> None:
        """Make every `wait` return now."""

    def checkpoint(self, name: str) -> int:
        """Where the checkpoint is, 0 if it never was set."""

    def close(self) -> None: ...


@runtime_checkable
class Beginning(Protocol):
    """An engine that gets the head and the first page of a reading in one step, cheaper than one by one."""

    def begin(
        self, query: Query, *, after: int, upto: int | None, limit: int | None, backwards: bool
    ) -> tuple[int, Iterator[Sequence[SequencedEvent]]]:
        """As `head` and `scan` up to it, or up to `upto` if that is lower: up to where, and the pages."""


@runtime_checkable
class BeginningAwaitably(Protocol):
    """An engine that can begin a reading on an event loop, without a thread."""

    async def begin_awaiting(
        self, query: Query, *, after: int, upto: int | None, limit: int | None, backwards: bool
    ) -> tuple[int, Iterator[Sequence[SequencedEvent]], bool] | None:
        """As `Beginning.begin`, and whether the pages are all at hand; None if it takes a thread after all."""


@runtime_checkable
class CommittingAwaitably(Protocol):
    """An engine that can commit on an event loop, without a thread."""

    async def commit_awaiting(self, appends: Sequence[Append]) -> Sequence[Verdict] | None:
        """As `Engine.commit`, of which one is at work at a time; None if it takes a thread after all."""


@runtime_checkable
class Recording(Protocol):
    """An engine that keeps the conditions of appends, when it is opened with `record_conditions=True`.

    They are stored in the transaction that stores the events, so one is never there without the other.
    """

    def recorded(self, *, after: int, upto: int) -> Iterator[Sequence[RecordedAppend]]:
        """The recorded appends with after < last <= upto, in order, in pages that are not empty."""


@runtime_checkable
class Restoring(Protocol):
    """An engine that can take a log over as it is."""

    def restore(self, events: Sequence[SequencedEvent], appends: Sequence[RecordedAppend] = ()) -> None:
        """Store the events behind the head, all or none, with their positions, times and ids.

        They are checked: valid one by one, in order, with different ids, and each recorded append ends
        with one of them. The engine refuses, with `InvalidInput` for `events`, positions that do not follow
        on its head, and ids that it has.
        """
