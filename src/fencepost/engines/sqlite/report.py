"""The report of `verify`: what was counted, what is wrong and where, and which events are whole."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, TypeAlias

PROBLEMS: Final = 100  # enough to see what happened; a damaged file could have millions

FILE, LOG, INDEX, CHECKPOINTS, CONDITIONS = "file", "log", "index", "checkpoints", "conditions"

Range: TypeAlias = tuple[int, int]
"""A first and a last position."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that is wrong, and where. `part` is one of file, log, index, checkpoints and conditions."""

    where: str
    what: str
    part: str = LOG

    def __str__(self) -> str:
        return f"{self.where}: {self.what}"


@dataclass(slots=True)
class Report:
    """A store without problems is sound, as far as its rows have checksums."""

    path: str
    events: int = 0
    postings: int = 0
    appends: int = 0
    checkpoints: int = 0
    problems: list[Problem] = field(default_factory=list)
    unchecked: list[str] = field(default_factory=list)  # rows of format 1, which has no checksum for them
    whole: list[Range] = field(default_factory=list)  # events that are as they were stored

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


def extend(ranges: list[Range], position: int) -> None:
    """Add a position above all others to the ranges."""
    if ranges and ranges[-1][1] == position - 1:
        ranges[-1] = (ranges[-1][0], position)
    else:
        ranges.append((position, position))
