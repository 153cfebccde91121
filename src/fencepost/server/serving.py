"""One server process: the store, the sockets, and an orderly end.

On SIGTERM or SIGINT the server stops accepting connections, ends subscriptions and waiting requests, lets the requests
in flight finish for `drain_s` seconds, and closes the store. An append whose answer was sent is durable; one whose
request was read is answered before the process ends. tests/server/test_kill.py holds this under load.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import uvicorn

from .. import aio
from ..address import MEMORY, REMOTE, Address
from ..engines.remote.transport import is_this_machine
from ..errors import InvalidInput
from .app import App
from .connections import Connection
from .http2.listening import Listener
from .listening import Sockets, listen
from .metrics import Shared
from .settings import Settings
from .tls import Certificate

log: Final = logging.getLogger("fencepost.server")

TICKS_BETWEEN_LOOKS: Final = 10  # at the files of the certificate, and between snapshots of metrics


def check(settings: Settings) -> None:
    """Refuse settings that would expose the store by accident."""
    if not settings.store:
        raise InvalidInput("store", "the address of a store is needed")
    kind = Address.parse(settings.store).kind
    if kind is REMOTE:
        raise InvalidInput("store", "this is the address of a server; a server serves a store of its own")
    if settings.workers > 1 and kind is MEMORY:
        raise InvalidInput("workers", "a store in memory belongs to one process; several need a file or a database")
    if is_this_machine(settings.host) or settings.insecure:
        return
    if not settings.keys:
        raise InvalidInput(
            "host", f"{settings.host} can be reached from elsewhere, so API keys are needed (--keys), or --insecure"
        )
    if not settings.has_tls:
        raise InvalidInput(
            "host", f"API keys would travel to {settings.host} unencrypted: give --tls-certificate, or --insecure"
        )


def runner() -> Callable[[Coroutine[Any, Any, None]], None]:
    """What runs the server's coroutine: uvloop, where it exists."""
    try:
        from uvloop import run
    except ImportError:  # there is none for Windows
        return asyncio.run
    return run


class Server(uvicorn.Server):
    """As uvicorn's, with an application that is told to drain before connections are waited for."""

    def __init__(self, app: App, on_ready: Callable[[int], None]) -> None:
        settings = app.settings
        config = uvicorn.Config(
            app,
            host=settings.host,
            port=settings.port,
            lifespan="off",
            access_log=False,  # the application writes its own
            http=Connection,
            ws="none",
            log_config=None,
            proxy_headers=False,
            server_header=False,
            timeout_keep_alive=75,
            timeout_graceful_shutdown=max(1, int(settings.drain_s)),
        )
        super().__init__(config)
        self.certificate = Certificate(settings) if settings.has_tls else None
        if self.certificate is not None:
            config.ssl_context_factory = lambda *_: self.certificate.context  # type: ignore[union-attr]
        self._app = app
        self._on_ready = on_ready

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """As uvicorn's, which raises the signal again afterwards: the process would end before the store is closed."""
        with super().capture_signals():
            try:
                yield
            finally:
                self._captured_signals.clear()

    async def startup(self, sockets: list[Any] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._on_ready(self.servers[0].sockets[0].getsockname()[1])

    async def on_tick(self, counter: int) -> bool:
        """uvicorn calls this ten times a second."""
        if counter % TICKS_BETWEEN_LOOKS == 0:
            self._publish_metrics()
            if self.certificate is not None:
                self.certificate.reload()
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[Any] | None = None) -> None:
        self._app.drain()
        await super().shutdown(sockets)
        self._publish_metrics()

    def _publish_metrics(self) -> None:
        if self._app.shared is not None:
            self._app.shared.publish()


async def serve(
    settings: Settings,
    *,
    on_ready: Callable[[int], None] | None = None,
    sockets: Sockets | None = None,
    shared: tuple[Path, int] | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT. `on_ready` is called with the port, which may have been 0 in the settings.

    A worker process gets the sockets that all workers share, and the folder of their metrics with its own number.
    """
    check(settings)
    options = {"create": False} if Address.parse(settings.store).kind.is_path else {}
    async with await aio.open(settings.store, **options) as store:
        app = App(store, settings)

        def ready(port: int) -> None:
            log.info("serving %s on %s:%s", Address.parse(settings.store), settings.host, port)
            if on_ready is not None:
                on_ready(port)

        if shared is not None:
            app.shared = Shared(*shared, app.metrics)
        listening = listen(settings) if sockets is None else sockets
        grpc = await start_grpc(app, store, listening.grpc) if listening.grpc else None
        await Server(app, ready).serve([*listening.http, *listening.metrics])
        app.drain()
        if grpc is not None:
            await grpc.stop(settings.drain_s)


async def start_grpc(app: App, store: aio.AsyncEventStore, sockets: Sequence[socket.socket]) -> Listener:
    """Serve UmaDB's interface on these sockets."""
    from .umadb.service import UmadbService

    listener = Listener(app, UmadbService(store, app).serve)
    await listener.start(sockets)
    log.info("serving UmaDB's interface on %s:%s", app.settings.host, app.settings.grpc_port)
    return listener
