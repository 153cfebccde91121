"""The sockets that a server listens on.

They are made before the server and can be passed to it, so that several worker processes accept connections from the
same sockets. A connection that waits to be accepted then survives the end of a worker: another worker takes it.
"""

from __future__ import annotations

import os
import socket
from contextlib import ExitStack
from typing import Final, NamedTuple

from ..errors import StoreUnavailable
from .settings import Settings

BACKLOG: Final = 2_048


class Sockets(NamedTuple):
    """The sockets for HTTP, and those for metrics if they have a port of their own. grpcio opens its own."""

    http: list[socket.socket]
    metrics: list[socket.socket]

    @property
    def all(self) -> list[socket.socket]:
        return [*self.http, *self.metrics]

    @property
    def port(self) -> int:
        port: int = self.http[0].getsockname()[1]
        return port

    def close(self) -> None:
        for each in self.all:
            each.close()


def listen(settings: Settings) -> Sockets:
    """Listen as the settings say, or raise `StoreUnavailable`."""
    with ExitStack() as opened:
        http = _listen_on(opened, settings.host, settings.port)
        metrics = _listen_on(opened, settings.metrics_host, settings.metrics_port) if settings.metrics_port else []
        opened.pop_all()
        return Sockets(http, metrics)


def _listen_on(opened: ExitStack, host: str, port: int) -> list[socket.socket]:
    """A socket for each address of the host, all on the same port."""
    sockets: list[socket.socket] = []
    try:
        found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, kind, protocol, _, address in dict.fromkeys(found):
            made = opened.enter_context(socket.socket(family, kind, protocol))
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            made.bind((address[0], port, *address[2:]))
            made.listen(BACKLOG)
            made.setblocking(False)
            port = made.getsockname()[1]  # port 0 means any; then the others take the same one
            sockets.append(made)
    except OSError as error:
        raise StoreUnavailable(f"{host}:{port}: cannot listen there: {os.strerror(error.errno or 0)}") from error
    return sockets
