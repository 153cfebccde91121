"""Reads of asyncio tasks, several in one round trip.

Switching to a thread and back costs more than a small read, and half of the time of a small read goes into waking the
server and the client. So a task sends the request for the first page of a reading on the event loop. Requests that
other tasks make while the connections are busy are gathered, and then sent together in libpq's pipeline mode.

The unusual cases are left to a thread, which can wait for a connection and try again: no connection is idle, the
statement cannot be prepared, or a call fails. Two connections are enough for the pipelines, since a call costs less the
more of them travel together. The other connections are left to threads, so that no append has to wait for reads. If a
thread waits for a connection, a pipeline gives its connection back after the current batch.
tests/postgres/test_async_reads.py checks this.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final, NamedTuple

import psycopg

from .connection_pool import ConnectionPool, PooledConnection
from .statement import Arguments, Rows, Statement

PIPELINES: Final = 2  # connections in use at a time: the server can work on one while the client works on the other
BATCH_CALLS: Final = 16  # calls that are sent together; the server delivers the answers when the last call is done


class PendingRead(NamedTuple):
    """A call, and the future of the task that awaits its rows. None stands for "use a thread"."""

    arguments: Arguments
    future: asyncio.Future[Rows | None]

    def resolve(self, rows: Rows | None) -> None:
        """Idempotent. The future of a cancelled task is done already."""
        if not self.future.done():
            self.future.set_result(rows)


class ReadPipeline:
    """Sends calls of one statement, for the tasks of one event loop, through at most `limit` connections."""

    def __init__(self, pool: ConnectionPool, statement: Statement, *, limit: int) -> None:
        self._pool = pool
        self._statement = statement
        self._limit = min(limit, PIPELINES)
        self._pending: deque[PendingRead] = deque()
        self._senders: set[asyncio.Task[None]] = set()
        self._start_is_scheduled = False

    async def rows(self, arguments: Arguments) -> Rows | None:
        """The rows of the call; None if a thread must make the call."""
        if not self._statement.prepares:
            return None
        loop = asyncio.get_running_loop()
        pending = PendingRead(arguments, loop.create_future())
        self._pending.append(pending)
        if not self._start_is_scheduled and len(self._senders) < self._limit:
            self._start_is_scheduled = True
            loop.call_soon(self._start, loop)  # after the other tasks that are ready have added their calls
        return await pending.future

    def _start(self, loop: asyncio.AbstractEventLoop) -> None:
        self._start_is_scheduled = False
        if self._pending and len(self._senders) < self._limit:
            loop.create_task(self._send())  # the task keeps a reference to itself in `_senders`

    async def _send(self) -> None:
        sender = asyncio.current_task()
        assert sender is not None
        # The task adds itself: if tasks start eagerly, it may be finished when `create_task` returns.
        self._senders.add(sender)
        pooled = self._pool.take_idle()
        try:
            while self._pending:
                batch = [self._pending.popleft() for _ in range(min(BATCH_CALLS, len(self._pending)))]
                try:
                    if pooled is not None:
                        await self._send_batch(pooled, batch)
                except psycopg.Error:
                    pooled = self._replace(pooled)
                finally:
                    for pending in batch:
                        pending.resolve(None)  # those without rows: a thread will report the reason
                if pooled is not None and self._pool.waiting:
                    self._pool.give_back(pooled)
                    pooled = self._pool.take_idle()  # None while threads wait: the pipeline does not overtake
        finally:
            if pooled is not None:
                self._pool.give_back(pooled)  # which closes it if this task was cancelled in an exchange
            # Now, not when the task is done: a call that is added in between would wait for a task that has ended.
            self._senders.discard(sender)
            while self._pending:  # this task was cancelled, so threads take over
                self._pending.popleft().resolve(None)

    async def _send_batch(self, pooled: PooledConnection, batch: list[PendingRead]) -> None:
        calls = [pending.arguments for pending in batch]
        await self._statement.pipeline_async(pooled, calls, lambda index, rows: batch[index].resolve(rows))

    def _replace(self, pooled: PooledConnection | None) -> PooledConnection | None:
        """Close a connection on which a call failed, since its state is unknown, and take another."""
        if pooled is not None:
            pooled.connection.close()
            self._pool.give_back(pooled)
        return self._pool.take_idle()
