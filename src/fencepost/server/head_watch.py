"""New heads, for all requests that wait for one.

One thread waits for the engine, as the store's own follower does. It tells the event loop of each new head, and the
loop wakes the requests that wait. So a thousand waiting clients cost one thread and one look at the engine.
"""

from __future__ import annotations

import asyncio
import threading
from bisect import bisect_right
from contextlib import suppress
from operator import itemgetter
from time import monotonic
from typing import Final

from ..engine import Engine, pause
from ..errors import StoreError

LOOK_S: Final = 1.0  # one call of the engine's `wait`, so that the thread ends soon after `stop`
AFTER_ERROR_S: Final = 0.5
# While no request waits for a head, the thread looks for one this often, since waking it costs the thread that commits.
REST_S: Final = 0.02
RESTS_AFTER_S: Final = 1.0  # a client that waits again and again is answered at once
SAMPLE_S: Final = 0.1  # new heads within this time count as one
MOST_SAMPLES: Final = 4_096


class Times:
    """When the head passed a position: a bounded list of times and heads, less exact for the distant past."""

    def __init__(self) -> None:
        self._samples: list[tuple[float, int]] = []

    def add(self, head: int, now: float) -> None:
        if self._samples and now - self._samples[-1][0] < SAMPLE_S:
            self._samples[-1] = (self._samples[-1][0], head)
            return
        self._samples.append((now, head))
        if len(self._samples) > MOST_SAMPLES:
            half = MOST_SAMPLES // 2
            self._samples[:half] = self._samples[:half:2]

    def age_s(self, position: int, now: float) -> float:
        """How long ago the head passed the position, as far as it is known; 0 if it did not."""
        index = bisect_right(self._samples, position, key=itemgetter(1))
        return now - self._samples[index][0] if index < len(self._samples) else 0.0


class HeadWatch:
    """The newest head that is known, and a way to wait for the next one."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()
        self._stopped = False
        self._times = Times()
        self._waiting = 0  # requests
        self._waited = monotonic()
        self.head = 0
        self._thread = threading.Thread(target=self._watch, name="fencepost-heads", daemon=True)
        self._thread.start()

    async def above(self, after: int, timeout_s: float) -> int:
        """The head, as soon as it is above `after`, or when the time is over or the server stops."""
        self._waiting += 1
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    while self.head <= after and not self._stopped:
                        changed = self._changed
                        await changed.wait()
        finally:
            self._waiting -= 1
            self._waited = monotonic()
        return self.head

    def age_s(self, position: int) -> float:
        """How long ago the head passed the position; since the start of the server at most."""
        return self._times.age_s(position, monotonic())

    def stop(self) -> None:
        """Answer all requests that wait, and end the thread."""
        self._stopped = True
        self._wake(self.head)

    def _watch(self) -> None:
        head = 0
        while not self._stopped:
            try:
                found = self._engine.wait(head, LOOK_S)
            except StoreError:
                pause(AFTER_ERROR_S)  # requests report the error; here there is only to try again
                continue
            if found > head:
                head = found
                with suppress(RuntimeError):  # the loop is closed, so no request waits
                    self._loop.call_soon_threadsafe(self._wake, head)
                if not self._waiting and monotonic() > self._waited + RESTS_AFTER_S:
                    pause(REST_S)

    def _wake(self, head: int) -> None:
        if head > self.head:
            self.head = head
            self._times.add(head, monotonic())
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
