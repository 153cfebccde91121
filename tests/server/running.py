"""A server on a real socket: in a thread of the test, or as a process that can be killed."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

from fencepost import aio
from fencepost.engine import Engine, open_engine
from fencepost.server.app import App
from fencepost.server.server_process import HttpServer, served
from fencepost.server.settings import Settings

STARTS_S = 20.0


def free_port() -> int:
    """A port that no program listens on at this moment."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port: int = listening.getsockname()[1]
        return port


class RunningServer:
    """A server in a thread, over an engine that the test can reach."""

    def __init__(self, address: str, *, engine: Engine | None = None, **settings: Any) -> None:
        self.engine = open_engine(address) if engine is None else engine
        self.settings = Settings(store=address, port=0, **settings)
        self.app: App | None = None
        self._server: HttpServer | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ready = threading.Event()
        self._failed: BaseException | None = None
        self.port = 0
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        assert self._ready.wait(STARTS_S), "the server does not start"
        if self._failed is not None:
            raise self._failed

    @property
    def url(self) -> str:
        return f"{'https' if self.settings.has_tls else 'http'}://127.0.0.1:{self.port}"

    def stop_soon(self) -> None:
        """As SIGTERM does."""
        if self._server is not None:
            self._server.should_exit = True

    def stop(self) -> None:
        self.stop_soon()
        self._thread.join(STARTS_S)
        assert not self._thread.is_alive(), "the server does not stop"
        if self._failed is not None:
            raise self._failed

    def __enter__(self) -> RunningServer:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        self.stop()

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:  # the test's thread raises it, from the constructor or from `stop`
            self._failed = error
            self._ready.set()

    async def _serve(self) -> None:
        async with (
            aio.AsyncEventStore(self.engine) as store,
            served(store, self.settings, on_ready=self._started) as self._server,
        ):
            self.app = self._server.app
            await self._server.serve(self._server.sockets)

    def _started(self, port: int) -> None:
        self.port = port
        self._ready.set()


class ServerProcess:
    """`fencepost serve` in a process of its own."""

    def __init__(
        self, store: str | Path, *flags: str, port: int = 0, environment: dict[str, str] | None = None
    ) -> None:
        command = [sys.executable, "-m", "fencepost.cli", "serve", str(store), "--port", str(port), *flags]
        self.process = subprocess.Popen(
            command, stderr=subprocess.PIPE, text=True, env={**os.environ, **(environment or {})}
        )
        assert self.process.stderr is not None
        self.output: list[str] = []
        for line in self.process.stderr:
            self.output.append(line)
            if line.startswith("listening on "):
                self.port = int(line.rpartition(":")[2])
                break
        else:
            raise AssertionError("".join(self.output))
        self._drain = threading.Thread(target=self._read, args=(self.process.stderr,), daemon=True)
        self._drain.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def _read(self, lines: Any) -> None:
        self.output.extend(lines)

    def joined(self) -> None:
        """Wait until all that the process has written is in `output`."""
        self._drain.join(STARTS_S)

    def end(self, how: Callable[[subprocess.Popen[str]], None]) -> int:
        how(self.process)
        return self.process.wait(STARTS_S)

    def __enter__(self) -> ServerProcess:
        return self

    def __exit__(self, *exc: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(STARTS_S)
