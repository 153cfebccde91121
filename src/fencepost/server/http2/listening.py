"""A port on which connections are accepted, what they share, and the orderly end of all of them.

When the server stops, each client is told with a GOAWAY which calls will be answered, calls without an end are ended,
and a connection is closed after its last answer. Clients that do not read are disconnected when the time is over.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Final

from .. import metrics
from ..tls import Certificate
from .connection import Connection
from .streams import Stream

if TYPE_CHECKING:
    from ..app import App

BACKLOG: Final = 1_024  # connections that the system accepts before we do
LOOK_S: Final = 1.0  # how often the files of the certificate are looked at


class Listener:
    """Has the limits, the metrics and the memory for bodies of the application. Without TLS, nothing is encrypted."""

    def __init__(self, app: App, serve: Callable[[Stream], Coroutine[Any, Any, None]]) -> None:
        self.settings = app.settings
        self.bodies = app.bodies
        self.serve = serve
        self.max_streams = app.settings.max_requests + app.settings.max_subscriptions
        self.connections: set[Connection] = set()
        self._metrics = app.metrics
        self._certificate = Certificate(app.settings) if app.settings.has_tls else None
        self._servers: list[asyncio.Server] = []
        self._look: asyncio.TimerHandle | None = None

    def count_refused(self, limit: str) -> None:
        self._metrics.add(metrics.REFUSED, limit)

    def count_reaped(self) -> None:
        self._metrics.add(metrics.REAPED)

    async def start(self, sockets: Sequence[socket.socket]) -> None:
        """Accept connections from these sockets, which `stop` closes."""
        loop = asyncio.get_running_loop()
        tls = None
        if self._certificate is not None:
            tls = self._certificate.context
            tls.set_alpn_protocols(["h2"])
            self._look = loop.call_later(LOOK_S, self._look_at_certificate)
        for each in sockets:
            server = await loop.create_server(lambda: Connection(self), sock=each, ssl=tls, backlog=BACKLOG)
            self._servers.append(server)

    async def stop(self, grace_s: float) -> None:
        """Accept no more, let the calls in flight end for `grace_s` seconds, then disconnect the clients."""
        if self._look is not None:
            self._look.cancel()
        for server in self._servers:
            server.close()
        for connection in list(self.connections):
            connection.drain()
        tasks = [
            stream.task
            for connection in self.connections
            for stream in connection.streams.values()
            if stream.task is not None
        ]
        if tasks and grace_s > 0:
            await asyncio.wait(tasks, timeout=grace_s)
        await asyncio.sleep(0)  # the last answers are written
        for connection in list(self.connections):
            connection.close()

    def _look_at_certificate(self) -> None:
        assert self._certificate is not None
        self._certificate.reload()
        self._look = asyncio.get_running_loop().call_later(LOOK_S, self._look_at_certificate)
