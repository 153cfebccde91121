"""Retry: how long a decision retries after conflicts, and when it waits before a retry.

A conflict means that another append was committed first. The decision reads the new events and retries as soon as its
turn in the retry queue comes (see `retry_queues.py`). The queue orders the decisions of one process, so further
conflicts come from other processes. From the third conflict on, the decision waits for a random time below a bound that
doubles ("full jitter"), so that competing processes do not collide again. Exceptions of the rule are never retried.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Final

from ..errors import InvalidInput

# From this number of conflicts on, a decision waits before it retries.
AT_ONCE: Final = 3


@dataclass(frozen=True, slots=True)
class Retry:
    """Retry until `deadline_s` have passed since the call or, if given, `attempts` have been made.

    From the third conflict on, a decision waits up to `base_s` before it retries, then up to twice that, and so on up
    to `cap_s`.

    If `unavailable` is True, an append that failed because the store was unavailable is sent again with the same event
    ids. If the first attempt was stored after all, nothing is written twice.
    """

    attempts: int | None = None
    base_s: float = 0.001
    cap_s: float = 0.05
    unavailable: bool = False
    deadline_s: float = 30.0

    def __post_init__(self) -> None:
        if self.attempts is not None and self.attempts < 1:
            raise InvalidInput("attempts", f"{self.attempts} is below the minimum of 1; use None for no limit")
        if not 0 <= self.base_s <= self.cap_s:
            raise InvalidInput("base_s", f"{self.base_s} is not between 0 and cap_s ({self.cap_s})")
        if not self.deadline_s >= 0:
            raise InvalidInput("deadline_s", f"{self.deadline_s} is not a number of seconds, 0 or more")

    def is_over(self, attempt: int, elapsed_s: float) -> bool:
        """Whether the given attempt, counted from 1, is the last."""
        return elapsed_s >= self.deadline_s or (self.attempts is not None and attempt >= self.attempts)

    def wait_s(self, wait: int) -> float:
        """A random duration for the given wait, counted from 1."""
        # Bounding the exponent keeps the power from growing without limit.
        return random.random() * min(self.cap_s, self.base_s * float(2 ** min(wait - 1, 32)))


NEVER = Retry(attempts=1)
