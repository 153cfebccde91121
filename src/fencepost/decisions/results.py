"""The result of a decision, and the observations that observers receive while it runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

import msgspec

from ..model import Query, SequencedEvent
from ..observing import Observation
from .errors import RetriesExhausted

E_co = TypeVar("E_co", covariant=True)


class Decided(msgspec.Struct, Generic[E_co], frozen=True):
    """The result of a decision: its events, and their first and last position.

    If `already` is True, an earlier call took the decision: these are the events of that call, and this call wrote
    nothing. If the rule returned no event, `events` is empty and `position` is the head that the decision read.
    """

    events: tuple[E_co, ...]
    first: int
    position: int
    already: bool = False

    @property
    def event(self) -> E_co:
        """The only event. Raises ValueError if the decision has no event or several."""
        if len(self.events) != 1:
            found = f"{len(self.events)} events" if self.events else "no event"
            raise ValueError(f".event: the decision has {found}, not exactly 1; use .events")
        return self.events[0]


@dataclass(frozen=True, slots=True)
class ConflictMet(Observation):
    """The append of an attempt was refused because of an event that was stored after the attempt's read.

    `attempt` counts from 1. `conflict` is the event, `boundary` the query that it matches, and `after` the position up
    to which the attempt had read. `elapsed_s` is the time since the call.
    """

    decision: str
    attempt: int
    boundary: Query
    after: int
    conflict: SequencedEvent
    elapsed_s: float


@dataclass(frozen=True, slots=True)
class DecisionEnded(Observation):
    """A call of a decision has ended, after `attempts` and `elapsed_s`.

    It returned `decided`, or it raised `error`: an exception of its rule, `RetriesExhausted`, or an error of the store.
    """

    decision: str
    attempts: int
    elapsed_s: float
    decided: Decided[object] | None = None
    error: Exception | None = None

    @property
    def exhausted(self) -> bool:
        """Whether the call ended because every attempt met a conflict."""
        return isinstance(self.error, RetriesExhausted)
