"""What goes wrong, and when: scripted for one case, or drawn from a seed for many.

Every call into the simulated cluster asks at its step whether it fails. A failing commit has a
fate besides its code: the request may be lost, stored with its reply lost, or still be on its
way when the client has given up, to arrive any time later or never.
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass
from enum import Enum
from typing import Final

from .errors import (
    BATCH_THROTTLED,
    CLUSTER_VERSION_CHANGED,
    COMMIT_PROXY_MEMORY_LIMIT,
    COMMIT_UNKNOWN_RESULT,
    FUTURE_VERSION,
    GRV_PROXY_MEMORY_LIMIT,
    NOT_COMMITTED,
    PROCESS_BEHIND,
    PROXY_TAG_THROTTLED,
    TAG_THROTTLED,
    TOO_OLD,
    TRANSACTION_TIMED_OUT,
)


class Fate(Enum):
    """What becomes of a commit whose caller is told of an error."""

    LOST = "it never arrives"
    STORED = "it is judged as usual, and the reply is lost"
    IN_FLIGHT = "it arrives later, or never"


@dataclass(frozen=True, slots=True)
class Fault:
    code: int
    fate: Fate = Fate.LOST


READ_FAULTS: Final = (Fault(TOO_OLD), Fault(FUTURE_VERSION), Fault(PROCESS_BEHIND))
VERSION_FAULTS: Final = (
    Fault(PROCESS_BEHIND),
    Fault(BATCH_THROTTLED),
    Fault(GRV_PROXY_MEMORY_LIMIT),
    Fault(TAG_THROTTLED),
    Fault(PROXY_TAG_THROTTLED),
)
COMMIT_FAULTS: Final = (
    Fault(NOT_COMMITTED),  # resolvers may report conflicts without a cause
    Fault(TOO_OLD),
    Fault(COMMIT_PROXY_MEMORY_LIMIT),
    Fault(COMMIT_UNKNOWN_RESULT, Fate.LOST),
    Fault(COMMIT_UNKNOWN_RESULT, Fate.STORED),
    Fault(TRANSACTION_TIMED_OUT, Fate.LOST),
    Fault(TRANSACTION_TIMED_OUT, Fate.STORED),
    Fault(TRANSACTION_TIMED_OUT, Fate.IN_FLIGHT),
    Fault(CLUSTER_VERSION_CHANGED, Fate.STORED),
    Fault(CLUSTER_VERSION_CHANGED, Fate.IN_FLIGHT),
)
POSSIBLE: Final = {"read_version": VERSION_FAULTS, "read": READ_FAULTS, "commit": COMMIT_FAULTS}


class Faults:
    """`rate` is the chance that a step fails; `script` puts faults at its next occurrences instead."""

    def __init__(self, seed: int = 0, *, rate: float = 0.0) -> None:
        self._random = random.Random(seed)
        self._rate = rate
        self._scripts: dict[str, deque[Fault | None]] = {}

    def script(self, step: str, *faults: Fault | None) -> None:
        """The next occurrences of the step fail like this; None lets one pass."""
        assert step in POSSIBLE
        self._scripts.setdefault(step, deque()).extend(faults)

    def at(self, step: str) -> Fault | None:
        script = self._scripts.get(step)
        if script:
            return script.popleft()
        if self._rate and self._random.random() < self._rate:
            return self._random.choice(POSSIBLE[step])
        return None
