"""Readings: the events of one consistent state of the store, page by page.

Events up to a head never change, so a reading needs no transaction between two pages. `Extent` says up to which
position a reading is complete. That is the `after` of a condition. The asyncio version in `aio` uses `Extent` as well.
The contract suite holds this for every engine (fencepost/testing/contract/reading.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Generic, TypeVar

from ..errors import ReadingNotFinished, StoreError
from ..model import SequencedEvent
from .engine import ReadStart
from .interrupts import shielded

Element = TypeVar("Element")


class Pages(Generic[Element]):
    """Pages of an engine, each read with signals held back.

    An iterator that has raised an error ends. Iterating on would look like the end of the reading, so this raises.
    """

    def __init__(self, pages: Iterator[Sequence[Element]]) -> None:
        self._pages = pages
        self._broken = False

    def __iter__(self) -> Iterator[Sequence[Element]]:
        return self

    def __next__(self) -> Sequence[Element]:
        self.check_usable()
        self._broken = True
        with shielded:
            page = next(self._pages, None)
        self._broken = False
        if page is None:
            raise StopIteration
        return page

    def check_usable(self) -> None:
        if self._broken:
            raise StoreError("this reading was interrupted or failed before its end: begin a new one")


class Extent:
    """The position up to which a reading is complete, as `Reading.head` describes it."""

    def __init__(self, up_to: int, limit: int | None, backwards: bool) -> None:
        self.up_to = up_to
        self._rest = limit
        self._backwards = backwards
        self._head = up_to if limit is None else None

    @property
    def head(self) -> int:
        if self._head is None:
            raise ReadingNotFinished(
                "head: a reading with a limit has a head only after it has been iterated to its end"
            )
        return self._head

    def deliver(self, event: SequencedEvent) -> None:
        """Called before the event is handed out, so that a caller that takes no more events knows the head as well."""
        if self._rest is not None:
            self._rest -= 1
            if self._rest == 0 and not self._backwards:
                self._head = event.position

    def end(self) -> None:
        if self._head is None:
            self._head = self.up_to


class Reading:
    """The events that a read found, in order, streamed, and the position up to which it is complete.

    A reading is iterated once. Pass `head` to an `AppendCondition` as `after`.
    """

    def __init__(self, start: ReadStart, limit: int | None, backwards: bool) -> None:
        self._extent = Extent(start.up_to, limit, backwards)
        self._rest = None if start.rest is None else Pages(start.rest)
        events = chain.from_iterable(chain((start.page,), self._rest or ()))
        self._events = events if limit is None else self._limited(events)

    @property
    def head(self) -> int:
        """The position up to which the reading is complete.

        Without a limit that is the head of the store, or `up_to`, and known at once. With a limit it is known when the
        iteration has ended: the last position delivered if the limit cut a forward reading short, else the head.
        """
        return self._extent.head

    def __iter__(self) -> Iterator[SequencedEvent]:
        self._check_usable()
        return self._events

    def __next__(self) -> SequencedEvent:
        self._check_usable()
        return next(self._events)

    def _check_usable(self) -> None:
        if self._rest is not None:
            self._rest.check_usable()

    def _limited(self, events: Iterator[SequencedEvent]) -> Iterator[SequencedEvent]:
        for event in events:
            self._extent.deliver(event)
            yield event
        self._extent.end()
