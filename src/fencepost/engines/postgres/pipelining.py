"""Reads of asyncio tasks, several in one round trip.

Switching to a thread and back costs more than a small read, and half of the time of a small read goes into waking the
server and the client. So a task sends the request for the first page of a reading on the event loop. Requests that
other tasks make while the connections are busy are gathered, and then sent together in libpq's pipeline mode.

The unusual cases are left to a thread, which can wait for a connection and try again: no connection is idle, the call
cannot be prepared, or a call fails. Two connections are enough for the pipelines, since a call costs less the more of
them travel together. The other connections are left to threads, so that no append has to wait for reads. If a thread
waits for a connection, a pipeline gives its connection back after the current batch.
tests/postgres/test_async_reads.py checks this.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final, NamedTuple

import psycopg

from .calls import Arguments, Call, Rows, pipeline
from .connections import Connections, Session
from .exchanges import run_async

PIPELINES: Final = 2  # connections in use at a time: the server can work on one while the client works on the other
BATCH_CALLS: Final = 16  # calls that are sent together; the server delivers the answers when the last call is done


class PendingCall(NamedTuple):
    """A call, and the future of the task that awaits its rows. None stands for "use a thread"."""

    call: Call
    arguments: Arguments
    future: asyncio.Future[Rows | None]

    def resolve(self, rows: Rows | None) -> None:
        """Idempotent. The future of a cancelled task is done already."""
        if not self.future.done():
            self.future.set_result(rows)


class PipelinedReads:
    """Sends reads of asyncio tasks through at most `limit` connections of a store."""

    def __init__(self, connections: Connections, *, limit: int) -> None:
        self._connections = connections
        self._limit = min(limit, PIPELINES)
        self._queue: LoopQueue | None = None

    async def rows(self, call: Call, arguments: Arguments) -> Rows | None:
        """The rows of the call; None if a thread must make the call."""
        if not call.prepares:
            return None
        loop = asyncio.get_running_loop()
        queue = self._queue
        if queue is None or queue.loop is not loop:
            queue = self._queue = LoopQueue(loop, self._connections, self._limit)
        return await queue.add(call, arguments)


class LoopQueue:
    """The pending calls of one event loop, and the tasks that send them."""

    def __init__(self, loop: asyncio.AbstractEventLoop, connections: Connections, limit: int) -> None:
        self.loop = loop
        self._connections = connections
        self._limit = limit
        self._pending: deque[PendingCall] = deque()
        self._senders: set[asyncio.Task[None]] = set()
        self._start_is_scheduled = False

    def add(self, call: Call, arguments: Arguments) -> asyncio.Future[Rows | None]:
        pending = PendingCall(call, arguments, self.loop.create_future())
        self._pending.append(pending)
        if not self._start_is_scheduled and len(self._senders) < self._limit:
            self._start_is_scheduled = True
            self.loop.call_soon(self._start)  # after the other tasks that are ready have added their calls
        return pending.future

    def _start(self) -> None:
        self._start_is_scheduled = False
        if self._pending and len(self._senders) < self._limit:
            self.loop.create_task(self._send())  # the task keeps a reference to itself in `_senders`

    async def _send(self) -> None:
        sender = asyncio.current_task()
        assert sender is not None
        # The task adds itself: if tasks start eagerly, it may be finished when `create_task` returns.
        self._senders.add(sender)
        session = self._connections.take_idle()
        try:
            while self._pending:
                batch = [self._pending.popleft() for _ in range(min(BATCH_CALLS, len(self._pending)))]
                try:
                    if session is not None:
                        await _send_batch(session, batch)
                except psycopg.Error:
                    session = self._replace(session)
                finally:
                    for pending in batch:
                        pending.resolve(None)  # those without rows: a thread will report the reason
                if session is not None and self._connections.waiting:
                    self._connections.give_back(session)
                    session = self._connections.take_idle()  # None while threads wait: the pipeline does not overtake
        finally:
            if session is not None:
                self._connections.give_back(session)  # which closes it if this task was cancelled in an exchange
            # Now, not when the task is done: a call that is added in between would wait for a task that has ended.
            self._senders.discard(sender)
            while self._pending:  # this task was cancelled, so threads take over
                self._pending.popleft().resolve(None)

    def _replace(self, session: Session | None) -> Session | None:
        """Close a connection on which a call failed, since its state is unknown, and take another."""
        if session is not None:
            session.connection.close()
            self._connections.give_back(session)
        return self._connections.take_idle()


async def _send_batch(session: Session, batch: list[PendingCall]) -> None:
    requests = [(pending.call, pending.arguments) for pending in batch]
    exchange = pipeline(session, requests, lambda index, rows: batch[index].resolve(rows))
    await run_async(exchange, session.pgconn.socket)
