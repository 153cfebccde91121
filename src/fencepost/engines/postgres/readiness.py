"""Waiting on the event loop for what libpq waits for: that a connection's socket can be written to, or read from."""

from __future__ import annotations

import asyncio

from psycopg.pq.abc import PGconn, PGresult


class Ready:
    """Waits for a connection's socket, which is watched until `close`."""

    def __init__(self, file: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._file = file
        self._waiting: asyncio.Future[None] | None = None
        self._loop.add_reader(file, self._settle)

    async def to_read(self) -> None:
        self._waiting = self._loop.create_future()
        await self._waiting

    async def to_write(self) -> None:
        """Or to read: a server that cannot send does not take anything either."""
        self._loop.add_writer(self._file, self._settle)
        try:
            await self.to_read()
        finally:
            self._loop.remove_writer(self._file)

    def close(self) -> None:
        self._loop.remove_reader(self._file)

    def _settle(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)


async def flush(pgconn: PGconn, ready: Ready) -> None:
    """Until everything is sent."""
    while pgconn.flush():
        await ready.to_write()
        pgconn.consume_input()


async def next_result(pgconn: PGconn, ready: Ready) -> PGresult:
    """In a pipeline libpq gives nothing, once, between the results of two calls."""
    while True:
        result = await following_result(pgconn, ready)
        if result is not None:
            return result


async def following_result(pgconn: PGconn, ready: Ready) -> PGresult | None:
    """The next result of a call; None when there is no other one."""
    while pgconn.is_busy():
        await ready.to_read()
        pgconn.consume_input()
    return pgconn.get_result()
