"""A proxy for HTTP that fails on purpose, by chance or on demand.

It takes a whole request from the client, then does one of these with it:

    pass         forward it, and return the answer
    delay        the same, after a while
    lose         reset the connection; the server never sees the request
    lose_answer  forward the request, and reset the connection instead of returning the answer
    half         return half of the answer, and close the connection
    twice        forward it twice, one after the other, and return the first answer

A request that waits for a new head is passed on without a fault as often as not, so that subscriptions get somewhere.
"""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections import Counter
from contextlib import suppress
from random import Random
from typing import Final

FAULTS: Final = ("delay", "lose", "lose_answer", "half", "twice")
LONGEST_DELAY_S: Final = 0.02


class FaultProxy:
    """Forwards requests to a port of this machine. `share` is the part of the requests that get a fault."""

    def __init__(self, port: int, *, faults: tuple[str, ...] = FAULTS, share: float = 0.0, seed: int = 1) -> None:
        self.target = port
        self.done: Counter[str] = Counter()
        self._faults = faults
        self._share = share
        self._random = Random(seed)
        self._planned: list[tuple[bytes, str]] = []
        self._lock = threading.Lock()
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port: int = self._listening.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def plan(self, path: str, *faults: str) -> None:
        """The next requests for the path get these faults."""
        with self._lock:
            self._planned += [(path.encode(), fault) for fault in faults]

    def close(self) -> None:
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)  # ends `accept`, which would take one more connection
        self._listening.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                threading.Thread(target=self._serve, args=[client], daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        server: socket.socket | None = None
        with suppress(OSError), client:
            while request := read_message(client):
                fault = self._fault(request)
                if fault == "lose":
                    reset(client)
                    return
                if fault == "delay":
                    time.sleep(self._random.uniform(0, LONGEST_DELAY_S))
                answer, server = self._forwarded(request, server)
                if fault == "twice":
                    _, server = self._forwarded(request, server)
                if fault == "lose_answer":
                    reset(client)
                    return
                client.sendall(answer[: len(answer) // 2] if fault == "half" else answer)
                if fault == "half" or not answer:
                    return
        if server is not None:
            server.close()

    def _fault(self, request: bytes) -> str:
        with self._lock:
            fault = "pass"
            for index, (path, planned) in enumerate(self._planned):
                if path in request.partition(b"\r\n")[0]:
                    del self._planned[index]
                    fault = planned
                    break
            else:
                waits = b"wait_s" in request[:200] and self._random.random() < 0.5
                if not waits and self._random.random() < self._share:
                    fault = self._random.choice(self._faults)
            self.done[fault] += 1
            return fault

    def _forwarded(self, request: bytes, server: socket.socket | None) -> tuple[bytes, socket.socket | None]:
        """The answer, or nothing if the server closed the connection or cannot be reached."""
        if server is None:
            server = socket.create_connection(("127.0.0.1", self.target))
        try:
            server.sendall(request)
            if answer := read_message(server):
                return answer, server
        except OSError:
            server.close()
            return b"", None
        server.close()
        return b"", None


def read_message(source: socket.socket) -> bytes:
    """A request or an answer with a Content-Length, whole; nothing if the connection ends before."""
    received = b""
    while b"\r\n\r\n" not in received:
        part = source.recv(65_536)
        if not part:
            return b""
        received += part
    head, _, body = received.partition(b"\r\n\r\n")
    length = 0
    for line in head.lower().split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name == b"content-length":
            length = int(value)
    parts, size = [received], len(body)
    while size < length:
        part = source.recv(65_536)
        if not part:
            return b""
        parts.append(part)
        size += len(part)
    return b"".join(parts)


def reset(connection: socket.socket) -> None:
    """Close the connection with RST, as a crashed machine or a firewall does."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()
