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
from ..address import REMOTE, Address
from ..engines.remote.transport import is_this_machine
from ..errors import InvalidInput
from .app import App
from .connections import Connection
from .http2.hosting import Host
from .http2.listening import Listener
from .listening import Sockets, listen
from .settings import Settings
from .sharing import Shared
from .tls import Certificate
from .workers import check_workers

log: Final = logging.getLogger("fencepost.server")

TICKS_BETWEEN_LOOKS: Final = 10  # at the files of the certificate, and between snapshots of metrics


def check(settings: Settings) -> None:
    """Refuse settings that would expose the store by accident."""
    if not settings.store:
        raise InvalidInput("store", "the address of a store is needed")
    if Address.parse(settings.store).kind is REMOTE:
        raise InvalidInput("store", "this is the address of a server; a server serves a store of its own")
    check_workers(settings)
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

    def __init__(
        self, config: uvicorn.Config, app: App, on_ready: Callable[[int], None], shared: Shared | None = None
    ) -> None:
        super().__init__(config)
        self._shared = shared
        self.certificate = Certificate(app.settings) if app.settings.has_tls else None
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
        if self._shared is not None and counter % TICKS_BETWEEN_LOOKS == 0:
            self._shared.publish()
        if self.certificate is not None and counter % TICKS_BETWEEN_LOOKS == 0:
            self.certificate.reload()
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[Any] | None = None) -> None:
        self._app.drain()
        await super().shutdown(sockets)
        if self._shared is not None:
            self._shared.publish()


def config_of(app: Any, settings: Settings) -> uvicorn.Config:
    return uvicorn.Config(
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
        grpc = await start_grpc(app, store, settings, listening.grpc) if listening.grpc else None
        await Server(config_of(app, settings), app, ready, app.shared).serve([*listening.http, *listening.metrics])
        app.drain()
        if grpc is not None:
            await grpc.stop(settings.drain_s)


async def start_grpc(
    app: App, store: aio.AsyncEventStore, settings: Settings, sockets: Sequence[socket.socket]
) -> Listener:
    """Serve UmaDB's interface on these sockets."""
    from .umadb.service import UmadbService

    host = Host(settings, app.metrics, app.bodies, UmadbService(store, app).serve)
    listener = Listener(host, Certificate(settings) if settings.has_tls else None)
    await listener.start(sockets)
    log.info("serving UmaDB's interface on %s:%s", settings.host, settings.grpc_port)
    return listener
