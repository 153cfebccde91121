"""How a message exchange with the server proceeds, described once for threads and for asyncio tasks.

An *exchange* is a generator that calls libpq's non-blocking functions. It yields `READABLE` or `WRITABLE` when it
cannot continue before the socket of its connection is. Two functions run exchanges: `run` blocks the calling thread,
`run_async` suspends the calling task. Neither knows what is exchanged.

The server sends the result of a function before it commits. If the commit then fails (a deferred constraint, a full
notification queue, the end of the connection), the error arrives as a second result. `final_result` therefore reads
up to the end of the answer, and a result counts only if no error follows it. tests/postgres/test_async_appends.py
checks that for tasks, tests/postgres/test_faults.py for threads.

An exchange that returns leaves its connection idle. A caller that abandons an exchange (an interrupt, a cancelled
task) leaves the connection in another state, which `Connections.give_back` recognises and answers by closing the
connection.
"""

from __future__ import annotations

import asyncio
import select
from collections.abc import Generator
from contextlib import suppress
from typing import Final, TypeAlias, TypeVar

import psycopg
from psycopg.pq import ConnStatus, ExecStatus
from psycopg.pq.abc import PGconn, PGresult

Result = TypeVar("Result")

READABLE: Final = select.POLLIN
# Also readable: a server whose answer is not read may not accept more input either.
WRITABLE: Final = select.POLLIN | select.POLLOUT

Exchange: TypeAlias = Generator[int, None, Result]

SUCCESSES: Final = (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK)


def flush(pgconn: PGconn) -> Exchange[None]:
    """Send everything that libpq has buffered."""
    while pgconn.flush():
        yield WRITABLE
        pgconn.consume_input()


def next_result(pgconn: PGconn) -> Exchange[PGresult | None]:
    """The next result of a command; None after its last one."""
    while pgconn.is_busy():
        yield READABLE
        pgconn.consume_input()
    return pgconn.get_result()


def next_pipelined_result(pgconn: PGconn) -> Exchange[PGresult]:
    """The next result in pipeline mode, where libpq returns None once between the results of two commands."""
    while True:
        result = yield from next_result(pgconn)
        if result is not None:
            return result


def final_result(pgconn: PGconn) -> Exchange[PGresult]:
    """Send a command; return the first error of the command or its commit, or the last result if there is no error."""
    yield from flush(pgconn)
    result = yield from next_result(pgconn)
    assert result is not None
    while result.status in SUCCESSES:
        following = yield from next_result(pgconn)
        if following is None:
            return result
        result = following
    # Read the rest, so that the connection can be used again. If the connection ends here, the error above still says
    # what happened. A connection that libpq has found to be broken has no socket to wait for.
    with suppress(psycopg.OperationalError):
        while pgconn.status == ConnStatus.OK and (yield from next_result(pgconn)) is not None:
            pass
    return result


def run(exchange: Exchange[Result], socket: int) -> Result:
    """Run the exchange in this thread.

    Inside `with shielded:` a signal does not end the wait. An interrupt is raised afterwards, when the outcome of the
    exchange is known.
    """
    try:
        while True:
            events = next(exchange)
            ready = select.poll()
            ready.register(socket, events)
            ready.poll()
    except StopIteration as ended:
        result: Result = ended.value
        return result


async def run_async(exchange: Exchange[Result], socket: int) -> Result:
    """Run the exchange in this task."""
    loop = asyncio.get_running_loop()
    ready = loop.create_future()

    def wake() -> None:
        if not ready.done():
            ready.set_result(None)

    loop.add_reader(socket, wake)  # for the whole exchange, which is cheaper than for each wait
    try:
        while True:
            events = next(exchange)
            ready = loop.create_future()
            if events == WRITABLE:
                loop.add_writer(socket, wake)
            await ready
            if events == WRITABLE:
                loop.remove_writer(socket)
    except StopIteration as ended:
        result: Result = ended.value
        return result
    finally:
        if not loop.is_closed():
            loop.remove_reader(socket)
            loop.remove_writer(socket)
