"""What observers and logs are told about consumers; see `fencepost.core.observers`."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Final, Literal

from ..engine import Observation

log: Final = logging.getLogger("fencepost.consumers")


@dataclass(frozen=True, slots=True)
class BatchHandled(Observation):
    """A batch was handled and its checkpoint saved."""

    consumer: str
    events: int
    position: int
    elapsed_s: float


@dataclass(frozen=True, slots=True)
class HandlingFailed(Observation):
    """A handler raised or timed out. `attempt` counts from 1."""

    consumer: str
    position: int
    attempt: int
    error: str


@dataclass(frozen=True, slots=True)
class HandlingGivenUp(Observation):
    """The consumer stopped at the event, or set it aside as a dead letter, as `outcome` says.

    `attempts` is 0 for an event that is held back behind an earlier one of the same key.
    """

    consumer: str
    position: int
    attempts: int
    error: str
    outcome: Literal["stopped", "set aside"]


@dataclass(frozen=True, slots=True)
class LeadChanged(Observation):
    """This process began or ceased to lead the consumer."""

    consumer: str
    leads: bool
    token: int


@dataclass(frozen=True, slots=True)
class Stalled(Observation):
    """The consumer has events to handle, and this process has made no progress with it for `seconds`."""

    consumer: str
    position: int
    seconds: float
    reason: str


@dataclass(frozen=True, slots=True)
class TimerFired(Observation):
    """The timer that the event at `position` began was handled, `late_s` after it was due."""

    consumer: str
    position: int
    late_s: float
