"""The agenda of an automation: what it still has to do, and when, without any input or output.

An item is an event, or a row that an event changed, and the time at which it is due. Items may be finished in any
order. The *watermark* is the position up to which no item is left; it is what the automation's checkpoint says. An item
that is finished while an older one is pending leaves the watermark where it is, so the log must hold a record of it.

Everything here follows from the log: the events after the checkpoint, less those with a record, less those that a
later event has cancelled. So a timer needs no storage of its own, and a process that begins anew finds the same agenda
(tests/consumers/test_agenda.py).
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush
from typing import NamedTuple


class Item(NamedTuple):
    """One thing to do. `due` is in seconds since 1970; `row` is the key of a row, or empty for an event.

    `recorded` says that a record must be kept in any case, because the event has other items as well.
    """

    due: float
    position: int
    row: tuple[str, ...] = ()
    recorded: bool = False

    @property
    def id(self) -> tuple[int, tuple[str, ...]]:
        return self.position, self.row


class Agenda:
    """The pending items by due time, by position and by key."""

    def __init__(
        self, cursor: int, done: Iterable[tuple[int, tuple[str, ...]]] = (), set_aside: Iterable[int] = ()
    ) -> None:
        self.cursor = cursor  # the log was read up to here
        self._done = set(done)
        self._set_aside = frozenset(set_aside)
        self._pending: dict[tuple[int, tuple[str, ...]], tuple[Item, frozenset[str]]] = {}
        self._by_key: dict[str, set[tuple[int, tuple[str, ...]]]] = {}
        self._by_due: list[Item] = []
        self._by_position: list[int] = []
        self._at: dict[int, int] = {}  # how many pending items each position has

    def __len__(self) -> int:
        return len(self._pending)

    def __contains__(self, item: Item) -> bool:
        return item.id in self._pending

    def items(self) -> list[Item]:
        """The pending items, the first due first."""
        return sorted(item for item, _ in self._pending.values())

    def add(self, item: Item, keys: Iterable[str] = ()) -> None:
        """Add an item, unless it was done or set aside before. An event with one of the `keys` cancels it."""
        if item.id in self._done or item.position in self._set_aside:
            self._done.discard(item.id)
            return
        found = frozenset(keys)
        self._pending[item.id] = (item, found)
        for key in found:
            self._by_key.setdefault(key, set()).add(item.id)
        heappush(self._by_due, item)
        heappush(self._by_position, item.position)
        self._at[item.position] = self._at.get(item.position, 0) + 1

    def cancel(self, keys: Iterable[str]) -> int:
        """Drop the items that have one of these keys; how many."""
        cancelled = {id for key in keys for id in self._by_key.get(key, ())}
        for id in cancelled:
            self._drop(id)
        return len(cancelled)

    def take(self, now: float) -> Item | None:
        """The first item that is due. It stays pending until it is finished, or is given back."""
        while self._by_due and self._by_due[0].due <= now:
            item = heappop(self._by_due)
            if item in self:
                return item
        return None

    def give_back(self, item: Item) -> None:
        """An item that was taken could not be done yet."""
        if item in self:
            heappush(self._by_due, item)

    def next_due(self) -> float | None:
        """When the next item is due that was not taken."""
        while self._by_due and self._by_due[0] not in self:
            heappop(self._by_due)
        return self._by_due[0].due if self._by_due else None

    def finish(self, item: Item) -> None:
        if item in self:
            self._drop(item.id)

    @property
    def watermark(self) -> int:
        """The position up to which nothing is left to do."""
        while self._by_position and self._by_position[0] not in self._at:
            heappop(self._by_position)
        return self._by_position[0] - 1 if self._by_position else self.cursor

    def watermark_without(self, item: Item) -> int:
        """What the watermark will be when this item is finished."""
        before = self.watermark
        if item not in self or before + 1 != item.position or self._at[item.position] > 1:
            return before
        # Take the item out of the heap for a moment: the next position is then on top.
        count = self._at.pop(item.position)
        after = self.watermark
        self._at[item.position] = count
        heappush(self._by_position, item.position)
        return after

    def _drop(self, id: tuple[int, tuple[str, ...]]) -> None:
        item, keys = self._pending.pop(id)
        for key in keys:
            ids = self._by_key[key]
            ids.discard(id)
            if not ids:
                del self._by_key[key]
        self._at[item.position] -= 1
        if not self._at[item.position]:
            del self._at[item.position]
