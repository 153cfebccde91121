"""How a decision retries after a conflict: for how long, after which waits, and in which order.

A conflict means that another append was committed first. Without an order, a decision that competes with many others
may lose on every attempt. So after its first conflict a decision joins a queue, first in, first out, and retries when
its turn comes. There is one queue for each store object and bucket; the bucket is the tags of the query item that the
conflicting event matches. Further conflicts come from other processes: from the third on, a decision also waits for a
random time below a bound that doubles ("full jitter").

Queues affect fairness only: the store checks the condition of every append as usual. A turn ends after `TURN_S` even if
its holder has not finished, so a slow rule does not block the queue. A decision holds at most one turn, and a decision
that a rule makes while its own decision holds a turn does not queue, so turns cannot deadlock:
tests/decisions/test_retry_queues.py. Exceptions of the rule are never retried.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from threading import Lock
from time import monotonic
from typing import Any, Final
from weakref import WeakKeyDictionary

from ..buckets import ANY, Bucket, Classified, matches
from ..core.interrupts import Wakeup, shielded
from ..errors import InvalidInput
from ..model import Query, query_of_items

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


# A turn that has lasted this long ends, and the turn of the next decision in the queue begins.
TURN_S: Final = 1.0

_in_turn: Final[ContextVar[bool]] = ContextVar("fencepost-in-turn", default=False)


def contended_bucket(boundary: Query, conflict: Classified) -> Bucket:
    """The tags of the conflict: those of the item with the fewest tags that the event matches. Types are left out.

    >>> from fencepost import Event
    >>> contended_bucket(Query.of(types={"Joined"}, tags={"course:1"}), Event("Joined", tags={"course:1", "student:2"}))
    (('course:1',), None)
    """
    matched = [item for item in boundary.items if matches(conflict, query_of_items((item,)))]
    assert matched, "a conflict matches the boundary"
    widest = min(matched, key=lambda item: (len(item.tags), sorted(item.tags)))
    return tuple(sorted(widest.tags)), conflict.type if widest.types and not widest.tags else ANY


class Turn:
    """A step that waits at most `limit_s` for a turn in the queue of the bucket. Call `leave` afterwards.

    `held` is True while the turn lasts.
    """

    __slots__ = ("_queues", "_wake", "bucket", "held", "limit_s")

    def __init__(self, bucket: Bucket, limit_s: float) -> None:
        self.bucket = bucket
        self.limit_s = limit_s
        self.held = False
        self._queues: RetryQueues | None = None
        self._wake: Callable[[], None] = lambda: None

    def run(self, store: object, /) -> None:
        wakeup = Wakeup()
        self._wake = wakeup.set
        with shielded:
            for wait_s in self._waits(store):
                if wakeup.wait(wait_s) and self.held:
                    return

    async def run_async(self, store: object, /) -> None:
        woken = asyncio.Event()
        self._wake = woken.set  # all turns of an asyncio store are taken on its one loop
        for wait_s in self._waits(store):
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await woken.wait()
                    return

    def _waits(self, store: object) -> Iterator[float]:
        """Join the queue. Yields how long to wait before the next check, until the turn comes or `limit_s` passes."""
        if _in_turn.get():
            return
        self._queues = _queues.setdefault(store, RetryQueues())
        first = self._queues.join(self)
        until = monotonic() + self.limit_s
        while first is not self:
            left_s = until - monotonic()
            if left_s <= 0:
                self.leave()
                return
            yield min(left_s, TURN_S)
            first = self._queues.overtake(self, first) if left_s > TURN_S else first

    def wake(self) -> None:
        """Start this turn. Idempotent."""
        self.held = True
        self._wake()

    def leave(self) -> None:
        """End this turn, or leave the queue, and start the next turn. Idempotent."""
        if self._queues is not None:
            with shielded:
                self._queues.leave(self)


class RetryQueues:
    """The queues of one store, by bucket. The first turn in a queue is held; an empty queue is removed."""

    __slots__ = ("_by_bucket", "_lock")

    def __init__(self) -> None:
        self._lock = Lock()
        self._by_bucket: dict[Bucket, deque[Turn]] = {}

    def join(self, turn: Turn) -> Turn:
        """Add the turn to its queue. Returns the first turn in the queue, which is this one if the queue was empty."""
        with self._lock:
            queue = self._by_bucket.setdefault(turn.bucket, deque())
            queue.append(turn)
            return self._first(queue)

    def overtake(self, turn: Turn, first: Turn) -> Turn:
        """End the turn `first` if it is still the first in the queue. Returns the turn that is first afterwards."""
        with self._lock:
            queue = self._by_bucket.get(turn.bucket)
            if queue is None or turn not in queue:
                return turn  # this turn came and ended in the meantime
            if queue[0] is first:
                first.held = False
                queue.popleft()
            return self._first(queue)

    def leave(self, turn: Turn) -> None:
        with self._lock:
            turn.held = False
            queue = self._by_bucket.get(turn.bucket)
            if queue is None:
                return
            if turn in queue:
                queue.remove(turn)
            if queue:
                self._first(queue)
            else:
                del self._by_bucket[turn.bucket]

    def _first(self, queue: deque[Turn]) -> Turn:
        queue[0].wake()
        return queue[0]


_queues: Final[WeakKeyDictionary[Any, RetryQueues]] = WeakKeyDictionary()


@contextmanager
def in_turn(turn: Turn | None) -> Iterator[None]:
    """A context for calling a rule. If its decision holds a turn, decisions that the rule makes do not queue."""
    before = _in_turn.get()
    _in_turn.set(before or (turn is not None and turn.held))
    try:
        yield
    finally:
        _in_turn.set(before)
