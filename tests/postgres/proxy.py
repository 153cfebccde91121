"""A proxy between a client and the server that breaks connections on demand."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress


class Proxy:
    """Forwards connections to a port of this machine; `url` leads through it.

    `lose_answers(n)`: of the next connections that say something, n never hear the answer. It has reached
    this proxy by then, so the server has done what it was asked.
    """

    def __init__(self, port: int) -> None:
        self._target = port
        self._losses = 0
        self._lock = threading.Lock()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def lose_answers(self, count: int) -> None:
        with self._lock:
            self._losses = count

    def lose(self, data: bytes) -> None:
        """Called with what a client sends; a subclass may decide to lose the answer to it."""

    def close(self) -> None:
        self._listening.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                server = socket.create_connection(("127.0.0.1", self._target))
                threading.Thread(target=self._pump, args=(client, server, False), daemon=True).start()
                threading.Thread(target=self._pump, args=(server, client, True), daemon=True).start()

    def _pump(self, source: socket.socket, target: socket.socket, answers: bool) -> None:
        with suppress(OSError):
            while data := source.recv(65_536):
                if not answers:
                    self.lose(data)
                elif self._is_lost():
                    break
                target.sendall(data)
        for end in (source, target):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def _is_lost(self) -> bool:
        with self._lock:
            lost = self._losses > 0
            self._losses -= lost
            return lost
