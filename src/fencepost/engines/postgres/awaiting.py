"""Calls awaited on the event loop instead of in a thread, and several of them in one round trip.

To get to a thread and back costs more than a small read does, and half of a small read is what it takes to wake
the server and to be woken. So the first page of a reading is asked for on the loop, and what concurrent tasks ask for
while the connections are busy travels together: libpq's pipeline mode sends the calls in one go and the server
answers them in one. Whatever is not as simple as that, and whatever fails, is left to a thread, which knows patience.
Few connections are enough for that, and the more calls travel together the less each of them costs; the others are
left to threads, so that no append waits behind readings. Where all are busy, one is given back after each batch.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any, Final, TypeAlias

import psycopg
from psycopg.pq import ExecStatus

from .calls import Arguments, Call
from .connections import Connections, Session
from .readiness import Ready, flush, next_result

PIPELINES: Final = 2  # so many connections at a time: while one is waited for, another one can be at work
BATCH: Final = 16  # so many calls travel together: the first of them is answered when the last one is done

Rows: TypeAlias = list[tuple[Any, ...]]


class Asked:
    """A call, and the task that waits for its rows."""

    __slots__ = ("arguments", "call", "future")

    def __init__(self, call: Call, arguments: Arguments, future: asyncio.Future[Rows | None]) -> None:
        self.call = call
        self.arguments = arguments
        self.future = future

    def answer(self, rows: Rows | None) -> None:
        if not self.future.done():  # who was cancelled does not care any more
            self.future.set_result(rows)


class Awaiting:
    """Calls awaited on the connections of a store, on `most` of them at most: who comes meanwhile waits on the loop."""

    def __init__(self, connections: Connections, most: int) -> None:
        self._connections = connections
        self._most = min(most, PIPELINES)
        self._pipelines: Pipelines | None = None

    async def rows(self, call: Call, arguments: Arguments) -> Rows | None:
        """The rows of the call; None if it cannot be made here."""
        if not call.prepares:
            return None
        loop = asyncio.get_running_loop()
        pipelines = self._pipelines
        if pipelines is None or pipelines.loop is not loop:
            pipelines = self._pipelines = Pipelines(loop, self._connections, self._most)
        return await pipelines.ask(call, arguments)


class Pipelines:
    """What the tasks of one loop ask for, gathered while it is their turn, sent when it is the loop's."""

    def __init__(self, loop: asyncio.AbstractEventLoop, connections: Connections, most: int) -> None:
        self.loop = loop
        self._connections = connections
        self._most = most
        self._asked: deque[Asked] = deque()
        self._running: set[asyncio.Task[None]] = set()
        self._due = False

    def ask(self, call: Call, arguments: Arguments) -> asyncio.Future[Rows | None]:
        asked = Asked(call, arguments, self.loop.create_future())
        self._asked.append(asked)
        if not self._due and len(self._running) < self._most:
            self._due = True
            self.loop.call_soon(self._begin)
        return asked.future

    def _begin(self) -> None:
        """Whoever has asked by now goes together."""
        self._due = False
        if self._asked and len(self._running) < self._most:
            self.loop.create_task(self._run())  # which keeps itself in `_running`

    async def _run(self) -> None:
        running = asyncio.current_task()
        assert running is not None
        # By itself, since a task that starts eagerly may be over before its maker has it.
        self._running.add(running)
        session = self._connections.take_idle()
        try:
            while self._asked:
                batch = [self._asked.popleft() for _ in range(min(BATCH, len(self._asked)))]
                try:
                    if session is not None:
                        await _answer(session, batch)
                except psycopg.Error:
                    session = self._exchanged(session)  # after a failure nothing is certain about it
                finally:
                    for asked in batch:
                        asked.answer(None)  # those that have no answer yet: a thread will find out why
                if session is not None and self._connections.wanted:
                    self._connections.give_back(session)
                    session = self._connections.take_idle()  # none, as long as somebody waits: all stand in one line
        finally:
            if session is not None:
                self._connections.give_back(session)  # what was broken off in the middle will be closed
            # At once, and not when the task is over: who asks in between would wait for somebody who has left.
            self._running.discard(running)
            while self._asked:  # it was broken off; a thread will do
                self._asked.popleft().answer(None)

    def _exchanged(self, session: Session | None) -> Session | None:
        if session is not None:
            session.connection.close()
            self._connections.give_back(session)
        return self._connections.take_idle()


async def _answer(session: Session, batch: list[Asked]) -> None:
    """Send the calls, and hand out the answers as they come."""
    pgconn = session.pgconn
    pgconn.enter_pipeline_mode()
    prepares = [asked.call.send(session, asked.arguments) for asked in batch]
    pgconn.pipeline_sync()
    ready = Ready(pgconn.socket)
    try:
        await flush(pgconn, ready)
        for asked, prepare in zip(batch, prepares, strict=True):
            if prepare:
                result = await next_result(pgconn, ready)
                if result.status != ExecStatus.COMMAND_OK:
                    raise psycopg.errors.error_from_result(result)
            asked.answer(asked.call.loaded(session, await next_result(pgconn, ready)))
        result = await next_result(pgconn, ready)
        if result.status != ExecStatus.PIPELINE_SYNC:  # the connection ended, or the commit failed, of what only read
            raise psycopg.errors.error_from_result(result)
    finally:
        ready.close()
    pgconn.exit_pipeline_mode()
