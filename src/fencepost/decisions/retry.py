"""Retry: how often a decision is taken again after a conflict, and how long it waits in between.

The wait is random between nothing and a bound that doubles ("full jitter"): those who met in one
conflict should not meet again in the next. Business errors are never retried, they are answers.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from ..errors import InvalidInput


@dataclass(frozen=True, slots=True)
class Retry:
    """At most `attempts` in all, with waits of up to `base_s`, twice that, and so on up to `cap_s`.

    With `unavailable`, an append that failed because the store was out of reach is sent again as it
    was, under the same event ids: if the first one had arrived after all, nothing is written twice.
    """

    attempts: int = 10
    base_s: float = 0.002
    cap_s: float = 0.25
    unavailable: bool = False

    def __post_init__(self) -> None:
        if self.attempts < 1:
            raise InvalidInput("attempts", f"at least 1 is needed, not {self.attempts}")
        if not 0 <= self.base_s <= self.cap_s:
            raise InvalidInput("base_s", f"{self.base_s} is not between 0 and cap_s, which is {self.cap_s}")

    def wait_s(self, attempt: int) -> float:
        """How long to wait after the given attempt, counted from 1, has failed."""
        # The exponent is bounded before the power is taken, which would grow without limit.
        return random.random() * min(self.cap_s, self.base_s * float(2 ** min(attempt - 1, 32)))


NEVER = Retry(attempts=1)
