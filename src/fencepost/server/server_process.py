"""One server process: the store, the sockets, and an orderly end.

On SIGTERM or SIGINT the server stops accepting connections over both interfaces, ends subscriptions and waiting
requests, lets the requests in flight finish for `drain_s` seconds, and closes the store. An append whose answer was
sent is durable; one whose request was read is answered before the process ends. tests/server/test_kill.py checks this
under load.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import uvicorn

from .. import aio
from ..engine import MEMORY, Address
from ..errors import InvalidInput
from .admission import Admission
from .app import App
from .certificate import Certificate
from .http_connection import make_connection
from .keys import KeyFile
from .metrics import Shared
from .remote import REMOTE
from .remote.transport import is_this_machine
from .settings import Settings
from .sockets import Sockets, listen
from .streams import Streams

if TYPE_CHECKING:
    from .umadb.service import GrpcServer

log: Final = logging.getLogger("fencepost.server")

TICKS_BETWEEN_LOOKS: Final = 10  # at the files of the certificate, and between snapshots of metrics


def check_settings(settings: Settings) -> None:
    """Refuse settings that cannot work, or that would expose the store by accident."""
    if not settings.store:
        raise InvalidInput("store", "the address of a store is needed")
    kind = Address.parse(settings.store).kind
    if kind is REMOTE:
        raise InvalidInput("store", "this is the address of a server; a server serves a store of its own")
    if settings.workers > 1 and kind is MEMORY:
        raise InvalidInput("workers", "a store in memory belongs to one process; several need a file or a database")
    is_safe = is_this_machine(settings.host) or settings.insecure
    if not settings.keys and not is_safe:
        raise InvalidInput(
            "host", f"{settings.host} can be reached from elsewhere, so API keys are needed (--keys), or --insecure"
        )
    if not settings.has_tls and not is_safe:
        raise InvalidInput(
            "host", f"API keys would travel to {settings.host} unencrypted: give --tls-certificate, or --insecure"
        )
    if settings.keys:
        KeyFile(settings.keys)
    if settings.has_tls:
        Certificate(settings)


def runner() -> Callable[[Coroutine[Any, Any, None]], None]:
    """What runs the server's coroutine: uvloop, where it exists."""
    try:
        from uvloop import run
    except ImportError:  # there is none for Windows
        return asyncio.run
    return run


class HttpServer(uvicorn.Server):
    """As uvicorn's, with a call before connections are waited for at the end."""

    def __init__(
        self,
        app: App,
        sockets: list[socket.socket],
        on_ready: Callable[[int], None],
        on_shutdown: Callable[[], Awaitable[None]],
    ) -> None:
        settings = app.settings
        config = uvicorn.Config(
            app,
            host=settings.host,
            port=settings.port,
            lifespan="off",
            access_log=False,  # the application writes its own
            http=make_connection,  # type: ignore[arg-type]
            ws="none",
            log_config=None,
            proxy_headers=False,
            server_header=False,
            timeout_keep_alive=75,
            timeout_graceful_shutdown=max(1, int(settings.drain_s)),
        )
        super().__init__(config)
        self.app = app
        self.sockets = sockets
        self._on_ready = on_ready
        self._on_shutdown = on_shutdown

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
            if self.app.certificate is not None:
                self.app.certificate.reload()
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[Any] | None = None) -> None:
        # Both interfaces drain at the same time, in the same time.
        await asyncio.gather(self._on_shutdown(), super().shutdown(sockets))
        self._publish_metrics()

    def _publish_metrics(self) -> None:
        if self.app.shared is not None:
            self.app.shared.publish()


@asynccontextmanager
async def served(
    store: aio.AsyncEventStore,
    settings: Settings,
    *,
    on_ready: Callable[[int], None],
    sockets: Sockets | None = None,
    shared: tuple[Path, int] | None = None,
) -> AsyncIterator[HttpServer]:
    """The server of the store, to be started with `serve`. gRPC is served from the beginning."""
    admission = Admission(store, settings)
    try:
        streams = Streams(admission)
        app = App(admission, streams)
        if shared is not None:
            app.shared = Shared(*shared, app.metrics)
        listening = listen(settings) if sockets is None else sockets
        grpc = await start_grpc(admission, streams) if settings.grpc_port else None

        async def drain() -> None:
            admission.drain()
            if grpc is not None:
                await grpc.stop(settings.drain_s)

        yield HttpServer(app, listening.all, on_ready, drain)
        await drain()
    finally:
        admission.close()


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
    check_settings(settings)
    options = {"create": False} if Address.parse(settings.store).kind.is_path else {}

    def ready(port: int) -> None:
        log.info("serving %s on %s:%s", Address.parse(settings.store), settings.host, port)
        if on_ready is not None:
            on_ready(port)

    async with (
        aio.open(settings.store, **options) as store,
        served(store, settings, on_ready=ready, sockets=sockets, shared=shared) as server,
    ):
        await server.serve(server.sockets)


async def start_grpc(admission: Admission, streams: Streams) -> GrpcServer:
    """Serve UmaDB's interface. grpcio is imported only for this."""
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # or its C core writes lines of its own to standard error
    from .umadb.service import GrpcServer

    server = GrpcServer(admission, streams)
    await server.start()
    return server
