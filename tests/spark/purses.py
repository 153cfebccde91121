"""Projections of every kind, in a module that workers can import."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Annotated

from fencepost import SequencedEvent
from fencepost.decisions import Projection, Tag, event, on, tag


class Mood(Enum):
    CALM = "calm"
    BUSY = "busy"


@dataclass(frozen=True)
class Entry:
    amount: int
    note: str


@event
class Opened:
    purse_id: Tag
    owner: str


@event(version=2, upgrades={1: lambda fields: {**fields, "amount": fields["amount"] * 100}})
class Added:
    """In version 1 the amount was in whole coins."""

    purse_id: Tag
    amount: int
    note: str = ""


@event
class Moved:
    from_purse_id: Annotated[str, tag("purse_id")]
    to_purse_id: Annotated[str, tag("purse_id")]
    amount: int


class Purse(Projection):
    """Plain fields; a move concerns two of them."""

    purse_id: Tag
    owner: str = ""
    amount: int = 0
    highest: int | None = None

    @on
    def _(self, event: Opened) -> None:
        self.owner = event.owner

    @on
    def _(self, event: Added) -> None:
        self._change(event.amount)

    @on
    def _(self, event: Moved) -> None:
        if event.from_purse_id == self.purse_id:
            self._change(-event.amount)
        if event.to_purse_id == self.purse_id:
            self._change(event.amount)

    def _change(self, amount: int) -> None:
        self.amount += amount
        self.highest = self.amount if self.highest is None else max(self.highest, self.amount)

    @property
    def is_poor(self) -> bool:
        return self.amount < 1_000


class Diary(Projection):
    """Everything that a column can be, and handlers that take the stored event."""

    purse_id: Tag
    entries: list[Entry] = []  # noqa: RUF012
    notes: frozenset[str] = frozenset()
    by_type: dict[str, int] = {}  # noqa: RUF012
    mood: Mood = Mood.CALM
    last_at: datetime | None = None
    share: float = 0.0

    @on
    def _(self, event: Added, stored: SequencedEvent) -> None:
        self.entries.append(Entry(event.amount, event.note))
        self.notes |= {event.note, *stored.metadata.values()}
        self.last_at = stored.recorded_at
        self.share += event.amount / 7

    @on
    def _(self, stored: SequencedEvent) -> None:
        self.by_type[stored.type] = self.by_type.get(stored.type, 0) + 1
        self.mood = Mood.BUSY if len(stored.tags) > 1 else Mood.CALM


@event
class Ticked:
    n: Annotated[int, tag("number")]


class Numbered(Projection):
    """Scoped by a number."""

    n: Annotated[int, tag("number")]
    count: int = 0
    double: int = 0

    @on
    def _(self, event: Ticked) -> None:
        self.count += 1
        self.double = self.n * 2


@event
class Paid:
    purse_id: Tag
    month: Tag
    amount: int


class Pair(Projection):
    """Scoped by two tags: how one purse has paid another in a month."""

    purse_id: Tag
    month: Tag
    paid: int = 0

    @on
    def _(self, event: Paid) -> None:
        self.paid += event.amount


class Vague(Projection):
    """A field whose column type follows from nothing."""

    purse_id: Tag
    anything = None
    amount: int = 0

    @on
    def _(self, event: Added) -> None:
        self.amount = self.anything = event.amount


class Broken(Projection):
    """A handler with a mistake in it."""

    purse_id: Tag
    amount: int = 0

    @on
    def _(self, event: Added) -> None:
        self.amount = 1 // (event.amount - 13)


class Huge(Projection):
    purse_id: Tag
    amount: int = 1

    @on
    def _(self, event: Added) -> None:
        self.amount *= 2**40


class Stacked(Projection):
    """A field named as a view might name a column of its own."""

    purse_id: Tag
    layer: int = 100

    @on
    def _(self, event: Added) -> None:
        self.layer += 1


class Counts(Projection):
    """How many events of any type a tag has."""

    w: Tag
    count: int = 0

    @on
    def _(self, stored: SequencedEvent) -> None:
        self.count += 1


@event
class Sold:
    """Tags with names of columns that folds and views have themselves."""

    up_to: Tag
    state: Tag
    error: Tag


class Until(Projection):
    up_to: Tag
    count: int = 0

    @on
    def _(self, event: Sold) -> None:
        self.count += 1


class Tax(Projection):
    state: Tag
    count: int = 0

    @on
    def _(self, event: Sold) -> None:
        self.count += 1


class Failed(Projection):
    error: Tag
    Up_to: int = 0

    @on
    def _(self, event: Sold) -> None:
        self.Up_to += 1


class Keyed(Projection):
    purse_id: Tag
    key_purse_id: int = 0

    @on
    def _(self, event: Added) -> None:
        self.key_purse_id += 1
