"""What is sent over a connection: gathered for one turn of the event loop, and watched.

All frames that one turn of the loop writes go out with one call of the system. A client that takes no byte for
`stalled_client_s` is disconnected, and so is one that makes the server reply to so much that MAX_UNSENT_BYTES wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

MAX_UNSENT_BYTES: Final = 8 * 2**20


class Output:
    def __init__(self, transport: asyncio.Transport, stalled_client_s: float, on_reaped: Callable[[], None]) -> None:
        self._transport = transport
        self._stalled_client_s = stalled_client_s
        self._on_reaped = on_reaped
        self._loop = asyncio.get_running_loop()
        self._gathered: list[bytes | memoryview] = []
        self._unsent = 0
        self._watch: asyncio.TimerHandle | None = None
        self.paused = False  # whether the socket is full

    def write(self, data: bytes | memoryview) -> None:
        if not self._gathered:
            self._loop.call_soon(self.flush)
        self._gathered.append(data)

    def flush(self) -> None:
        if self._gathered and not self._transport.is_closing():
            self._transport.write(b"".join(self._gathered))
            if self.paused and self._transport.get_write_buffer_size() > MAX_UNSENT_BYTES:
                self.reap()
        self._gathered.clear()

    def pause(self) -> None:
        self.paused = True
        self._watch_reader()

    def resume(self) -> None:
        self.paused = False
        self.stop_watching()

    def close(self) -> None:
        """Disconnect the client after it has taken what was written."""
        self.flush()
        self._transport.close()

    def reap(self) -> None:
        """Disconnect a client that is too slow."""
        if not self._transport.is_closing():
            self._on_reaped()
            self._transport.abort()

    def stop_watching(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None

    def _watch_reader(self) -> None:
        self.stop_watching()
        self._unsent = self._transport.get_write_buffer_size()
        self._watch = self._loop.call_later(self._stalled_client_s, self._look_at_reader)

    def _look_at_reader(self) -> None:
        if self._transport.get_write_buffer_size() < self._unsent:
            self._watch_reader()
        else:
            self.reap()
