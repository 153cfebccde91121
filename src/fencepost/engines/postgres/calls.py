"""Calls of the server's functions, with as little overhead as possible.

A store with one caller spends more time around an append than in it. So the few statements that are sent again and
again are prepared, and go to libpq directly. Each method that returns an `Exchange` can run in a thread or in a task.

Behind a pooler in transaction mode, a connection may have lost its prepared statements. The server then refuses the
call before it does anything. The call is sent again as text, and is never prepared again. A prepared statement is
named after its text, so two stores cannot use the same name for different statements.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import Any, Final, TypeAlias

import psycopg
from psycopg.pq import ConnStatus, DiagnosticField, ExecStatus, Format
from psycopg.pq.abc import PGresult

from .connections import Session
from .exchanges import Exchange, final_result, flush, next_pipelined_result, run, run_async

Arguments: TypeAlias = Sequence[bytes | None]
Rows: TypeAlias = list[tuple[Any, ...]]

NOT_PREPARED: Final = (b"26000", b"42P05")  # the statement does not exist, or another client has prepared it already


class Call:
    """A statement with parameters $1, $2, ..., which are passed as text, or in binary where `formats` says so.

    A call inside a longer transaction must not be prepared, because after an error it could not be sent again.
    """

    def __init__(self, statement: str, formats: Sequence[Format] | None = None, *, prepare: bool = True) -> None:
        self._statement = statement.encode()
        self._formats = formats
        self._name = b"fencepost_" + sha256(self._statement).hexdigest()[:40].encode()
        self.prepares = prepare

    def rows(self, session: Session, arguments: Arguments) -> Rows:
        """Call it on a connection that no other caller uses meanwhile."""
        return self._load_rows(session, self._result(session, arguments))

    def value(self, session: Session, arguments: Arguments) -> bytes:
        """As `rows`, for a function that returns one value other than NULL."""
        return self._load_value(session, self._result(session, arguments))

    async def value_async(self, session: Session, arguments: Arguments) -> bytes:
        return self._load_value(session, await run_async(self._exchange(session, arguments), session.pgconn.socket))

    def send_pipelined(self, session: Session, arguments: Arguments) -> bool:
        """Send the prepared call in pipeline mode. True: the statement is prepared first, which has its own result."""
        is_new = self._name not in session.prepared
        if is_new:
            session.pgconn.send_prepare(self._name, self._statement)
            session.prepared.add(self._name)
        self._send_prepared(session, arguments)
        return is_new

    def receive_pipelined(self, session: Session, *, is_new: bool) -> Exchange[Rows]:
        """The rows of a call that `send_pipelined` has sent."""
        if is_new:
            _check(session, (yield from next_pipelined_result(session.pgconn)), ExecStatus.COMMAND_OK)
        return self._load_rows(session, (yield from next_pipelined_result(session.pgconn)))

    def _result(self, session: Session, arguments: Arguments) -> PGresult:
        """Call it in this thread. libpq's own blocking call takes 3 us less than an exchange, and means the same."""
        if self.prepares and self._name in session.prepared:
            values: Any = arguments  # as in _send_prepared
            result = session.pgconn.exec_prepared(self._name, values, self._formats, Format.BINARY)
            if self._counts(result):
                return result
        return run(self._exchange(session, arguments), session.pgconn.socket)

    def _exchange(self, session: Session, arguments: Arguments) -> Exchange[PGresult]:
        """Send the call and wait for its result and its commit."""
        pgconn = session.pgconn
        if self.prepares:
            result = yield from self._exchange_prepared(session, arguments)
            if self._counts(result):
                return result
        pgconn.send_query_params(self._statement, arguments, param_formats=self._formats, result_format=Format.BINARY)
        return (yield from final_result(pgconn))

    def _counts(self, result: PGresult) -> bool:
        """Whether this is the call's result. False: the server did not find the statement, so it is sent as text."""
        if result.status == ExecStatus.TUPLES_OK or result.error_field(DiagnosticField.SQLSTATE) not in NOT_PREPARED:
            return True
        self.prepares = False
        return False

    def _exchange_prepared(self, session: Session, arguments: Arguments) -> Exchange[PGresult]:
        if self._name not in session.prepared:
            session.pgconn.send_prepare(self._name, self._statement)
            result = yield from final_result(session.pgconn)
            if result.status != ExecStatus.COMMAND_OK:
                return result
            session.prepared.add(self._name)
        self._send_prepared(session, arguments)
        return (yield from final_result(session.pgconn))

    def _send_prepared(self, session: Session, arguments: Arguments) -> None:
        values: Any = arguments  # None is NULL, as in send_query_params, although the annotation omits it
        session.pgconn.send_query_prepared(self._name, values, self._formats, Format.BINARY)

    def _load_rows(self, session: Session, result: PGresult) -> Rows:
        _check(session, result, ExecStatus.TUPLES_OK)
        transformer = session.transformer
        transformer.set_pgresult(result)
        try:
            return transformer.load_rows(0, result.ntuples, tuple)
        finally:
            transformer.set_pgresult(None)

    def _load_value(self, session: Session, result: PGresult) -> bytes:
        _check(session, result, ExecStatus.TUPLES_OK)
        value = result.get_value(0, 0)
        assert value is not None
        return value


def pipeline(
    session: Session, requests: Sequence[tuple[Call, Arguments]], deliver: Callable[[int, Rows], None]
) -> Exchange[None]:
    """Send several read-only calls in one round trip; deliver the rows of each, with its index, as they arrive."""
    pgconn = session.pgconn
    pgconn.enter_pipeline_mode()
    new = [call.send_pipelined(session, arguments) for call, arguments in requests]
    pgconn.pipeline_sync()
    yield from flush(pgconn)
    for index, (call, _) in enumerate(requests):
        deliver(index, (yield from call.receive_pipelined(session, is_new=new[index])))
    _check(session, (yield from next_pipelined_result(pgconn)), ExecStatus.PIPELINE_SYNC)
    pgconn.exit_pipeline_mode()


def _check(session: Session, result: PGresult, expected: ExecStatus) -> None:
    """Raise what the server or libpq reports instead of the expected result."""
    if result.status == expected:
        return
    # libpq reports the end of the connection in a result of its own, without a SQLSTATE.
    if session.pgconn.status != ConnStatus.OK or result.error_field(DiagnosticField.SQLSTATE) is None:
        session.connection.close()  # it must not be lent again, whatever its transaction status says
        answer = result.get_error_message() if result.error_message else ExecStatus(result.status).name
        raise psycopg.OperationalError(answer)
    raise psycopg.errors.error_from_result(result)
