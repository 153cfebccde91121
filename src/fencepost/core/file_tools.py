"""`verify`, `backup` and `salvage`: what the engine of a file offers besides a store, found by the kind of an address.

A `Kind` names the module of its engine that has these three functions. A kind without such a module offers none.
Tools for stores of every kind are in `fencepost.tools`. tests/unit/test_file_tools.py checks this.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Final, TypeAlias

from ..errors import InvalidInput
from .address import Address

PROBLEMS: Final = 100  # enough to see what happened; a damaged file could have millions

FILE, LOG = "file", "log"

Range: TypeAlias = tuple[int, int]
"""A first and a last position."""

Progress: TypeAlias = Callable[[int, int], None]
"""`on_progress(done, all)`, called from time to time."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that is wrong, and where. `part` is one of file, log, index, records and conditions."""

    where: str
    what: str
    part: str = LOG

    def __str__(self) -> str:
        return f"{self.where}: {self.what}"


@dataclass(slots=True)
class Report:
    """What was counted, what is wrong and where, and which events can be read. Without problems a store is sound."""

    path: str
    events: int = 0
    postings: int = 0
    appends: int = 0
    checkpoints: int = 0
    records: int = 0
    problems: list[Problem] = field(default_factory=list)
    whole: list[Range] = field(default_factory=list)  # events that can be read

    @property
    def sound(self) -> bool:
        return not self.problems

    @property
    def log_is_sound(self) -> bool:
        """Whether no event is damaged or lost: damage elsewhere can be repaired from the log."""
        return not any(problem.part in (FILE, LOG) for problem in self.problems)

    def add(self, part: str, where: str, what: str) -> None:
        if len(self.problems) < PROBLEMS:
            self.problems.append(Problem(where, what, part))


@dataclass(slots=True)
class Salvage:
    """What was saved, and what was not."""

    path: str
    to: str
    head: int = 0
    events: int = 0  # saved, without placeholders
    appends: int = 0
    checkpoints: int = 0
    records: int = 0
    lost: list[Range] = field(default_factory=list)  # first and last position, each now a placeholder
    ahead: list[str] = field(default_factory=list)  # checkpoints above the head: events may be lost at the end
    unreadable: list[str] = field(default_factory=list)  # tables besides the events that could not be read to the end

    @property
    def complete(self) -> bool:
        """Whether nothing is known to be lost. Events that were lost at the end show only in `ahead`."""
        return not self.lost and not self.ahead and not self.unreadable


def verify(store: str | os.PathLike[str] | Address, *, on_progress: Progress | None = None) -> Report:
    """Check the whole file and return a report, whatever the bytes are. Other processes may write meanwhile."""
    report: Report = _offered(store, "verify")(on_progress=on_progress)
    return report


def backup(store: str | os.PathLike[str] | Address, to: str | os.PathLike[str]) -> int:
    """Copy the store to a new file while other processes go on writing; returns the head of the copy."""
    head: int = _offered(store, "backup")(to)
    return head


def salvage(
    store: str | os.PathLike[str] | Address,
    to: str | os.PathLike[str],
    *,
    head: int | None = None,
    on_progress: Progress | None = None,
) -> Salvage:
    """Copy what can be read of a damaged file into a new store. `head`: the last position that was ever assigned."""
    saved: Salvage = _offered(store, "salvage")(to, head=head, on_progress=on_progress)
    return saved


def _offered(store: str | os.PathLike[str] | Address, name: str) -> Callable[..., Any]:
    """The engine's function of this name, for this store."""
    address = Address.parse(store)
    if not address.kind.file_tools:
        raise InvalidInput("address", f"{address}: {name} works on files, but this is a {address.kind.name} store")
    function: Callable[..., Any] = getattr(import_module(address.kind.file_tools), name)
    return lambda *args, **options: function(address, *args, **options)
