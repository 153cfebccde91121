"""An event loop in a thread of its own, for brokers whose libraries use asyncio.

A connection to a broker must answer heartbeats while the outbox has nothing to send. So its event loop runs in a
thread until the publisher is closed, and `call` runs one coroutine on it. When `call` raises, the coroutine has ended
or was cancelled: nothing that it does can happen later.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import CancelledError
from typing import Any, Final, TypeVar

Result = TypeVar("Result")
GRACE_S: Final = 5.0


class LoopThread:
    """Runs an event loop until `close`."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            left = asyncio.all_tasks(self._loop)
            for task in left:
                task.cancel()
            self._loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
            self._loop.close()

    def call(self, coroutine: Coroutine[Any, Any, Result], timeout_s: float) -> Result:
        """Run the coroutine; `TimeoutError` after `timeout_s`."""
        future = asyncio.run_coroutine_threadsafe(asyncio.wait_for(coroutine, timeout_s), self._loop)
        try:
            return future.result(timeout_s + GRACE_S)
        except CancelledError:
            raise ConnectionAbortedError("the publisher was closed") from None
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(GRACE_S)
