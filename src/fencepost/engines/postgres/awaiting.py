"""A call awaited on the event loop instead of in a thread.

To get to a thread and back costs more than a small read does. So the first page of a reading is asked for on
the loop, if a connection is at hand on which the statement is prepared; whatever is not as simple as that, and
whatever fails, is left to a thread, which knows patience. Half of the connections are left to threads, so that no
append waits behind readings.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import psycopg
from psycopg.pq.abc import PGresult

from .calls import Arguments, Call
from .connections import Connections, Session


class Awaiting:
    """Calls awaited on the connections of a store, `most` of them at a time: the others wait their turn on the loop."""

    def __init__(self, connections: Connections, most: int) -> None:
        self._connections = connections
        self._most = most
        self._turns: tuple[asyncio.AbstractEventLoop, asyncio.Semaphore] | None = None

    async def rows(self, call: Call, arguments: Arguments) -> list[tuple[Any, ...]] | None:
        """The rows of the call; None if it cannot be made here."""
        loop = asyncio.get_running_loop()
        if self._turns is None or self._turns[0] is not loop:
            self._turns = loop, asyncio.Semaphore(self._most)
        async with self._turns[1]:
            return await self._rows(call, arguments)

    async def _rows(self, call: Call, arguments: Arguments) -> list[tuple[Any, ...]] | None:
        session = self._connections.take_idle()
        if session is None:
            return None
        try:
            if not call.send(session, arguments):
                return None
            return call.loaded(session, await _result(session))
        except psycopg.Error:
            return None
        finally:
            self._connections.give_back(session)  # who was cancelled in the middle leaves one that will be closed


async def _result(session: Session) -> PGresult:
    pgconn, loop = session.pgconn, asyncio.get_running_loop()
    while pgconn.flush():
        await _ready(loop.add_writer, loop.remove_writer, pgconn.socket)
    while pgconn.is_busy():
        await _ready(loop.add_reader, loop.remove_reader, pgconn.socket)
        pgconn.consume_input()
    result = pgconn.get_result()
    assert result is not None
    while pgconn.get_result() is not None:
        pass
    return result


async def _ready(add: Callable[..., object], remove: Callable[[int], object], file: int) -> None:
    """Until the file can be written to, or read from."""
    ready = asyncio.get_running_loop().create_future()
    add(file, _settle, ready)
    try:
        await ready
    finally:
        remove(file)


def _settle(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)
