"""Several processes that serve one store: `fencepost serve --workers N`.

The first process listens, starts the workers and passes them the sockets. It does not open the store. A worker that
ends is replaced. On SIGTERM or SIGINT every worker drains, as a server of one process does, and is killed if it takes
too long. A worker whose first process has ended drains by itself: it notices that its standard input is closed.

The settings travel through standard input, because a password in the address of the store must not be seen in a list
of processes. tests/server/test_workers.py kills workers under load and checks that nothing acknowledged is lost.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import tempfile
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any, Final

import msgspec

from ..errors import StoreUnavailable
from .settings import Settings
from .sockets import Sockets, listen

log: Final = logging.getLogger("fencepost.server")

READY: Final = "ready"
LONGER_S: Final = 5.0  # added to `drain_s`, the time in which a worker must end
PAUSES_S: Final = (0.0, 0.1, 0.5, 1.0, 5.0)  # before the place of a worker that ended is taken


class Task(msgspec.Struct):
    """What a worker is told: the settings, its number, the file numbers of `Sockets`, and the folder of metrics."""

    settings: dict[str, Any]
    number: int
    sockets: list[list[int]]
    folder: str


class Supervisor:
    """Keeps the workers running."""

    def __init__(self, settings: Settings, sockets: Sockets, folder: Path) -> None:
        self._settings = settings
        self._sockets = sockets
        self._folder = folder
        self._processes: dict[int, Process] = {}
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        """End all workers in an orderly way. Idempotent."""
        self._stopping.set()
        self._sockets.close()
        for process in list(self._processes.values()):
            _signal(process, signal.SIGTERM)

    async def run(self, on_ready: Callable[[], None]) -> None:
        """Serve until `stop`. Raises `StoreUnavailable` if a worker fails before all were ready once."""
        started = await asyncio.gather(*map(self._start, range(self._settings.workers)), return_exceptions=True)
        failures = [each for each in started if isinstance(each, BaseException)]
        if failures:
            asked_to_stop = self._stopping.is_set()
            self.stop()
            await asyncio.gather(*map(self._ended_in_time, self._processes.values()))
            if not asked_to_stop:
                raise failures[0]
            return
        if not self._stopping.is_set():
            on_ready()
        await asyncio.gather(*map(self._keep, range(self._settings.workers)))

    async def _keep(self, number: int) -> None:
        """Replace the worker whenever it ends."""
        failures = 0
        while True:
            process = self._processes[number]
            code = await self._end_of(process)
            if self._stopping.is_set():
                return
            log.warning("worker %s (process %s) ended with code %s; starting another", number, process.pid, code)
            await asyncio.sleep(PAUSES_S[min(failures, len(PAUSES_S) - 1)])
            if self._stopping.is_set():
                return
            try:
                await self._start(number)
                failures = 0
            except StoreUnavailable as error:
                failures += 1
                log.error("worker %s does not start: %s", number, error)

    async def _end_of(self, process: Process) -> int:
        """Wait for the process, or, once the workers are told to end, for it in time."""
        waiting = [asyncio.ensure_future(process.wait()), asyncio.ensure_future(self._stopping.wait())]
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        for each in waiting:
            each.cancel()
        return process.returncode if process.returncode is not None else await self._ended_in_time(process)

    async def _ended_in_time(self, process: Process) -> int:
        try:
            return await asyncio.wait_for(process.wait(), self._settings.drain_s + LONGER_S)
        except TimeoutError:
            log.error("process %s does not end, and is killed", process.pid)
            _signal(process, signal.SIGKILL)
            return await process.wait()

    async def _start(self, number: int) -> None:
        """Start a worker and wait until it serves."""
        descriptors = [each.fileno() for each in self._sockets.all]
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "fencepost.server.worker"),
            stdin=PIPE,
            stdout=PIPE,
            pass_fds=descriptors,
            start_new_session=True,  # Ctrl-C in a terminal reaches the first process alone
        )
        self._processes[number] = process
        assert process.stdin is not None
        assert process.stdout is not None
        values = {each.name: getattr(self._settings, each.name) for each in fields(self._settings)}
        sockets = [[each.fileno() for each in group] for group in self._sockets]
        process.stdin.write(msgspec.json.encode(Task(values, number, sockets, str(self._folder))) + b"\n")
        said = (await process.stdout.readline()).decode().strip()
        if said != READY:
            code = await process.wait()
            raise StoreUnavailable(said or f"a worker ended with code {code} before it was ready; the log says why")
        if self._stopping.is_set():
            _signal(process, signal.SIGTERM)


async def supervise(settings: Settings, *, on_ready: Callable[[int], None]) -> None:
    """Serve with several processes until SIGTERM or SIGINT."""
    sockets = listen(settings)
    port = sockets.port
    with tempfile.TemporaryDirectory(prefix="fencepost-") as folder:
        supervisor = Supervisor(settings, sockets, Path(folder))
        loop = asyncio.get_running_loop()
        for each in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(each, supervisor.stop)

        def ready() -> None:
            log.info("%s workers serve %s on %s:%s", settings.workers, settings.shown()["store"], settings.host, port)
            on_ready(port)

        try:
            await supervisor.run(ready)
        finally:
            sockets.close()


def _signal(process: Process, number: int) -> None:
    if process.returncode is None:
        os.kill(process.pid, number)
