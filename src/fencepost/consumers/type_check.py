"""`check_types`: whether the event classes of a program can read every stored event of their types.

Run with the code that is about to be deployed, on the store that it will read: what could not be decoded later is
found before. `fencepost.spark.check_types` does the same for a log that takes one process too long.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any, Final

import msgspec

from .. import EventStore, Query, SequencedEvent
from ..decisions import EventUnreadable
from ..decisions.inspection import Declaration, declaration_of
from ..errors import InvalidInput

MOST_FAILURES: Final = 20
PROGRESS_EVERY: Final = 1_000


class Unreadable(msgspec.Struct, frozen=True):
    """A stored event that its class cannot read."""

    position: int
    type: str
    reason: str


class TypesChecked(msgspec.Struct, frozen=True):
    """How many events were decoded, by type, and the first ones that could not be."""

    decoded: dict[str, int]
    unreadable: list[Unreadable]


def check_types(
    store: EventStore,
    classes: Iterable[type],
    *,
    after: int = 0,
    sample: int = 1,
    on_progress: Callable[[int], None] | None = None,
) -> TypesChecked:
    """Decode every stored event of these classes after the position; stops after 20 that cannot be decoded.

    With `sample=n`, only the first and then every n-th event of each type is decoded. `on_progress` is called now and
    then with the position that was reached.
    """
    trial = Trial(classes, sample)
    for number, event in enumerate(store.read(Query.of(types=trial.declared), after=after)):
        trial.add(event)
        if len(trial.unreadable) == MOST_FAILURES:
            break
        if on_progress is not None and number % PROGRESS_EVERY == 0:
            on_progress(event.position)
    return TypesChecked(trial.decoded, trial.unreadable)


class Trial:
    """Decodes events one after another, and counts."""

    def __init__(self, classes: Iterable[type], sample: int) -> None:
        self.declared: dict[str, Declaration[Any]] = {}
        for cls in classes:
            declaration: Declaration[Any] = declaration_of(cls)
            self.declared[declaration.type] = declaration
        if not self.declared:
            raise InvalidInput("classes", "at least 1 event class is needed")
        if sample < 1:
            raise InvalidInput("sample", f"at least 1 is needed, not {sample}")
        self.decoded = dict.fromkeys(sorted(self.declared), 0)
        self.unreadable: list[Unreadable] = []
        self._sample = sample
        self._met = dict.fromkeys(self.declared, 0)

    def add(self, event: SequencedEvent) -> None:
        """Decode an event of one of the classes, unless it is left out of the sample."""
        met = self._met[event.type]
        self._met[event.type] = met + 1
        if met % self._sample:
            return
        try:
            self.declared[event.type].decode(event)
            self.decoded[event.type] += 1
        except EventUnreadable as error:
            self.unreadable.append(Unreadable(event.position, event.type, error.problem))


def event_classes(module: ModuleType) -> list[type]:
    """The event classes that a module defines or imports."""
    found: dict[int, type] = {}
    for each in vars(module).values():
        if isinstance(each, type):
            declaration: Any = getattr(each, "__event__", None)
            if declaration is not None and declaration.cls is each:  # a subclass inherits the attribute
                found[id(each)] = each
    return list(found.values())
