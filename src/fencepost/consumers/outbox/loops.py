"""What publishers over libraries that use asyncio share: an event loop in a thread of its own.

A connection to a broker must answer heartbeats while the outbox has nothing to send. So its event loop runs in a
thread until the publisher is closed, and `call` runs one coroutine on it. When `call` raises, the coroutine has ended
or was cancelled: nothing that it does can happen later. The messages of a round are sent together, and the next round
waits until the broker has accepted them.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Sequence
from concurrent.futures import CancelledError
from contextlib import suppress
from typing import Any, Final, TypeVar

from .messages import Message, Mode
from .publisher import Address, OneAtATime, PublisherUnavailable, checked_timeout, rounds

Result = TypeVar("Result")
GRACE_S: Final = 5.0
TOGETHER: Final = 64  # unacknowledged messages at once


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


class AsyncioPublisher(OneAtATime):
    """Connects when it has something to publish. `lost` are the errors that say that the broker cannot be used."""

    _broker: str

    def __init__(
        self,
        address: Address | None,
        mode: Mode,
        timeout_s: float,
        options: dict[str, Any],
        lost: tuple[type[Exception], ...],
    ) -> None:
        super().__init__()
        self._address = address
        self._mode = mode
        self._timeout_s = checked_timeout(timeout_s)
        self._options = options
        self._lost = lost
        self._thread: LoopThread | None = None
        self._connection: Any = None

    def _publish(self, messages: Sequence[Message]) -> None:
        if self._thread is None:
            self._thread = LoopThread(f"fencepost-outbox-{self._broker.lower()}")
        try:
            if self._connection is None or not self._is_connected():
                self._thread.call(self._connect(), self._timeout_s)
            for each in rounds(messages):
                for at in range(0, len(each), TOGETHER):
                    self._thread.call(self._send(each[at : at + TOGETHER]), self._timeout_s)
        except self._lost as error:
            raise PublisherUnavailable(f"{self._broker}: {type(error).__name__}: {error}") from error

    async def _send(self, messages: Sequence[Message]) -> None:
        sent = await asyncio.gather(*(self._send_one(each) for each in messages), return_exceptions=True)
        for error in sent:
            if isinstance(error, BaseException):
                raise error

    def _close(self) -> None:
        thread, connection = self._thread, self._connection
        self._thread = self._connection = None
        if thread is not None:
            if connection is not None:
                with suppress(Exception):  # it may be broken already
                    thread.call(connection.close(), self._timeout_s)
            thread.close()

    def _is_connected(self) -> bool:
        raise NotImplementedError

    async def _connect(self) -> None:
        """Set `_connection`."""
        raise NotImplementedError

    async def _send_one(self, message: Message) -> None:
        raise NotImplementedError
