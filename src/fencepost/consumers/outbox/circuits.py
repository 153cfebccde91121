"""The circuit breaker of an outbox: a publisher that keeps failing is left alone for a while, then tested.

The circuit is *closed* while messages flow. After `failures` failures in a row it is *open*: the outbox does not call
the publisher for `base_s`. Then it is *half-open*: one message is sent as a test. If that succeeds the circuit is
closed, otherwise it is open again for twice as long, up to `cap_s`. Each outbox has a circuit of its own, so other
topics and publishers go on. tests/consumers/outbox/test_circuits.py holds the transitions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock
from time import monotonic
from typing import Literal, TypeAlias

from ...engine import Observation
from ...errors import InvalidInput
from .publisher import PublisherUnavailable, log

State: TypeAlias = Literal["closed", "open", "half-open"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Breaker:
    """When the circuit opens, and for how long."""

    failures: int = 5
    base_s: float = 1.0
    cap_s: float = 60.0

    def __post_init__(self) -> None:
        if self.failures < 1:
            raise InvalidInput("failures", f"at least 1 is needed, not {self.failures}")
        if not 0 < self.base_s <= self.cap_s:
            raise InvalidInput("base_s", f"{self.base_s} is not between 0 and cap_s, which is {self.cap_s}")


@dataclass(frozen=True, slots=True)
class CircuitChanged(Observation):
    """The circuit of an outbox changed its state; `error` is the last failure."""

    consumer: str
    state: State
    failures: int
    error: str | None


@dataclass(frozen=True, slots=True)
class MessagesPublished(Observation):
    """A publisher has accepted messages of an outbox."""

    consumer: str
    messages: int
    elapsed_s: float


class Circuit:
    """The state of the circuit of one outbox in this process. Thread-safe."""

    def __init__(self, owner: str, breaker: Breaker, *, clock: Callable[[], float] = monotonic) -> None:
        self.state: State = "closed"
        self.failures = 0
        self.error: str | None = None
        self._owner = owner
        self._breaker = breaker
        self._clock = clock
        self._open_s = breaker.base_s
        self._retry_at = 0.0
        self._lock = Lock()

    def admit(self) -> CircuitChanged | None:
        """Called before the publisher. Raises `PublisherUnavailable` while the circuit is open."""
        with self._lock:
            if self.state != "open":
                return None
            if self._clock() < self._retry_at:
                raise self._refusal()
            return self._change("half-open")

    def succeeded(self) -> CircuitChanged | None:
        """The publisher has accepted messages, or refused one that it has looked at."""
        with self._lock:
            self.failures, self._open_s = 0, self._breaker.base_s
            return None if self.state == "closed" else self._change("closed")

    def failed(self, error: str, *, retry_after_s: float = 0.0) -> CircuitChanged | None:
        """The publisher has failed. It is not tried for `retry_after_s`, even if the circuit were closed otherwise."""
        with self._lock:
            self.failures += 1
            self.error = error
            if self.state == "closed" and self.failures < self._breaker.failures and not retry_after_s:
                return None
            self._retry_at = self._clock() + max(self._open_s, min(retry_after_s, self._breaker.cap_s))
            self._open_s = min(self._open_s * 2, self._breaker.cap_s)
            return None if self.state == "open" else self._change("open")

    @property
    def refusal(self) -> PublisherUnavailable | None:
        """Why the publisher is not called now, and for how long; None if the circuit is not open."""
        with self._lock:
            return self._refusal() if self.state == "open" else None

    def _refusal(self) -> PublisherUnavailable:
        rest_s = max(0.0, self._retry_at - self._clock())
        return PublisherUnavailable(
            f"the circuit is open after {self.failures} failures, for another {rest_s:.1f} s: {self.error}",
            retry_after_s=rest_s,
        )

    def _change(self, state: State) -> CircuitChanged:
        self.state = state
        if state == "open":
            log.warning("outbox %r: circuit open after %d failures: %s", self._owner, self.failures, self.error)
        else:
            log.info("outbox %r: circuit %s", self._owner, state)
        return CircuitChanged(self._owner, state, self.failures, self.error)
