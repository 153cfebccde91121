"""An append that is sent and awaited on the event loop, instead of in a thread.

To get to a thread and back costs a task more than its append costs the server. It is sent where a connection is at
hand on which the call is prepared; what is not as simple as that is left to a thread.

The server sends what the call returns before it commits. What fails in the commit (a deferred constraint, a full queue
of notifications, the end of the connection) comes as another result behind it: only the last one acknowledges.
"""

from __future__ import annotations

from psycopg.pq import ExecStatus
from psycopg.pq.abc import PGresult

from .calls import Arguments, Call
from .connections import Connections, Session
from .readiness import Ready, flush, following_result, next_result


async def sent(connections: Connections, call: Call, arguments: Arguments) -> bytes | None:
    """What the call returns; None if it was not sent. What psycopg raises, it raises: then its fate may be unknown."""
    session = connections.take_idle()
    if session is None:
        return None
    try:
        if not call.is_prepared(session):
            return None
        call.send(session, arguments)
        return call.loaded_value(session, await _result(session))
    finally:
        connections.give_back(session)  # one that was left in the middle will be closed


async def _result(session: Session) -> PGresult:
    """What the call and its commit came to: the first error, if there is one."""
    pgconn = session.pgconn
    ready = Ready(pgconn.socket)
    try:
        await flush(pgconn, ready)
        result = await next_result(pgconn, ready)
        while result.status == ExecStatus.TUPLES_OK:
            following = await following_result(pgconn, ready)
            if following is None:
                return result
            result = following
    finally:
        ready.close()
    # Behind an error nothing is waited for: libpq may close the socket, which nobody may be watching then.
    while not pgconn.is_busy() and pgconn.get_result() is not None:
        pass
    return result
