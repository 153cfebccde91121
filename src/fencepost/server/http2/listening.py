"""A port on which connections are accepted, and the orderly end of all of them.

When the server stops, each client is told with a GOAWAY which calls will be answered, calls without an end are ended,
and a connection is closed after its last answer. Clients that do not read are disconnected when the time is over.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from typing import Final

from ..tls import Certificate
from .connection import Connection
from .hosting import Host

BACKLOG: Final = 1_024  # connections that the system accepts before we do
LOOK_S: Final = 1.0  # how often the files of the certificate are looked at


class Listener:
    """Without a certificate, connections are not encrypted."""

    def __init__(self, host: Host, certificate: Certificate | None) -> None:
        self._host = host
        self._certificate = certificate
        self._servers: list[asyncio.Server] = []
        self._look: asyncio.TimerHandle | None = None

    async def start(self, sockets: Sequence[socket.socket]) -> None:
        """Accept connections from these sockets, which `stop` closes."""
        loop = asyncio.get_running_loop()
        tls = None
        if self._certificate is not None:
            tls = self._certificate.context
            tls.set_alpn_protocols(["h2"])
            self._look = loop.call_later(LOOK_S, self._look_at_certificate)
        for each in sockets:
            server = await loop.create_server(lambda: Connection(self._host), sock=each, ssl=tls, backlog=BACKLOG)
            self._servers.append(server)

    async def stop(self, grace_s: float) -> None:
        """Accept no more, let the calls in flight end for `grace_s` seconds, then disconnect the clients."""
        if self._look is not None:
            self._look.cancel()
        for server in self._servers:
            server.close()
        for connection in list(self._host.connections):
            connection.drain()
        tasks = [
            stream.task
            for connection in self._host.connections
            for stream in connection.streams.values()
            if stream.task is not None
        ]
        if tasks and grace_s > 0:
            await asyncio.wait(tasks, timeout=grace_s)
        await asyncio.sleep(0)  # the last answers are written
        for connection in list(self._host.connections):
            connection.close()

    def _look_at_certificate(self) -> None:
        assert self._certificate is not None
        self._certificate.reload()
        self._look = asyncio.get_running_loop().call_later(LOOK_S, self._look_at_certificate)
