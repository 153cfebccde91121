"""`/v1/verify`: checks the whole store while it is served, and streams how far it is.

An SQLite file is checked by its own `verify`: every checksum, the index, checkpoints and recorded conditions. A store
of another engine is read as a whole and checked as `fencepost verify` does. One check runs at a time, in a thread, with
bounded memory. It ends when its client disconnects or the server drains. tests/server/test_verify.py damages stores.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from typing import Any, Final

from ..engine import Address, verify
from ..errors import FencepostError
from ..tools import check_log, to_wire
from .access import Access, Right
from .admission import Admission, Refused
from .request import NDJSON, Request, Stream, encode_json
from .wire.problems import BUSY, UNAVAILABLE, problem, problem_of

PROGRESS_S: Final = 1.0  # how often a line says how far the check is
MEMORY_BYTES: Final = 64_000_000  # for comparing the ids of events
RETRY_S: Final = 30


class Stopped(Exception):
    """The check ends early, because its result is not wanted any more."""


class Progress:
    """How far the check is. The thread that checks calls it, and stops when the result is not wanted any more."""

    def __init__(self) -> None:
        self.done = self.total = 0
        self.wanted = True

    def __call__(self, done: int, total: int) -> None:
        self.done, self.total = done, total
        if not self.wanted:
            raise Stopped


class Verification:
    def __init__(self, admission: Admission) -> None:
        self._admission = admission
        self._store = admission.store.blocking
        self._address = Address.parse(admission.settings.store)
        self._running = False

    async def verify(self, request: Request, access: Access) -> Stream:
        """Lines of JSON: how far the check is, about every second, then the result."""
        access.check(Right.ADMIN)
        access.check_unlimited("a verification")
        if self._running:
            raise Refused(BUSY, "a verification is running; one at a time is allowed", retry_after_s=RETRY_S)
        return Stream(self._lines(), NDJSON, headers={"x-accel-buffering": "no"})

    async def _lines(self) -> AsyncGenerator[bytes, None]:
        if self._running:  # a second request came before the first one's stream began
            yield _line({"error": problem(BUSY, "a verification is running; one at a time is allowed")})
            return
        self._running = True
        progress = Progress()
        check = asyncio.create_task(asyncio.to_thread(self._checked, progress))
        try:
            while not check.done() and not self._admission.draining:
                await asyncio.wait([check], timeout=PROGRESS_S)
                if not check.done():
                    yield _line({"done": to_wire(progress.done), "of": to_wire(progress.total)})
            if check.done():
                yield _line(check.result())
            else:
                yield _line({"error": problem(UNAVAILABLE, "the server is draining, so the check was not finished")})
        except FencepostError as error:
            yield _line({"error": problem_of(error)})
        finally:
            progress.wanted = False
            with suppress(Stopped, FencepostError):
                await check
            self._running = False

    def _checked(self, on_progress: Callable[[int, int], None]) -> dict[str, Any]:
        if self._address.kind.file_tools:
            report = verify(self._address, on_progress=on_progress)
            counted = {name: getattr(report, name) for name in ("sound", "events", "appends", "checkpoints", "records")}
            return {**counted, "problems": [str(each) for each in report.problems]}
        found = check_log(
            self._store, gapless=not self._address.kind.has_gaps, memory_bytes=MEMORY_BYTES, on_progress=on_progress
        )
        counted = {
            name: getattr(found, name) for name in ("sound", "events", "appends", "checkpoints", "records", "problems")
        }
        return {**counted, "head": to_wire(found.head)}


def _line(value: Any) -> bytes:
    return encode_json(value) + b"\n"
