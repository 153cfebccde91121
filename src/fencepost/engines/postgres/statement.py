"""Statements that a store sends again and again: prepared, and passed to libpq directly.

With one caller, psycopg's cursors spend more time on a small read or append than the rest of the client, and in a
pipeline three times as much (docs/decisions/092). So arguments are encoded here. psycopg's generators exchange the
messages, and its functions for waiting run them in a thread or in an asyncio task.

The server sends the result of a function before it commits. If the commit then fails (a deferred constraint, a full
notification queue, the end of the connection), the error arrives as a second result. So a result counts only if no
error follows it. tests/postgres/test_async_appends.py checks this for tasks, tests/postgres/test_faults.py for threads.

Behind a pooler in transaction mode, a connection may have lost its prepared statements. The server then refuses the
call before it does anything. The call is sent again as text, and is never prepared again. A prepared statement is
named after its text, so two stores cannot use the same name for different statements.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import Any, Final, TypeAlias

import psycopg
from psycopg.abc import PQGen
from psycopg.generators import execute, fetch_many, send
from psycopg.pq import ConnStatus, DiagnosticField, ExecStatus, Format
from psycopg.pq.abc import PGresult
from psycopg.waiting import wait, wait_async

from .connection_pool import PooledConnection

Arguments: TypeAlias = Sequence[bytes | None]
Rows: TypeAlias = list[tuple[Any, ...]]

NOT_PREPARED: Final = (b"26000", b"42P05")  # the statement does not exist, or another client has prepared it already
SUCCESSES: Final = (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK)
WAKE_UP_S: Final = 3_600.0  # psycopg wakes up a waiting caller at this interval, for signals; the core handles those


class Statement:
    """A statement with parameters $1, $2, ..., which are passed as text, or in binary where `formats` says so.

    A statement inside a longer transaction must not be prepared, because after an error it could not be sent again.
    """

    def __init__(self, text: str, formats: Sequence[Format] | None = None, *, prepare: bool = True) -> None:
        self._text = text.encode()
        self._formats = formats
        self._name = b"fencepost_" + sha256(self._text).hexdigest()[:40].encode()
        self.prepares = prepare

    def rows(self, pooled: PooledConnection, arguments: Arguments) -> Rows:
        """Execute it on a connection that no other caller uses meanwhile."""
        return _rows(pooled, self._execute(pooled, arguments))

    def value(self, pooled: PooledConnection, arguments: Arguments) -> bytes:
        """As `rows`, for a function that returns one value other than NULL."""
        return _value(pooled, self._execute(pooled, arguments))

    async def value_async(self, pooled: PooledConnection, arguments: Arguments) -> bytes:
        exchange = self._exchange(pooled, arguments)
        return _value(pooled, await wait_async(exchange, pooled.pgconn.socket, WAKE_UP_S))

    async def pipeline_async(
        self, pooled: PooledConnection, calls: Sequence[Arguments], deliver: Callable[[int, Rows], None]
    ) -> None:
        """Execute it once for each of the arguments, in one round trip; deliver rows, with an index, as they arrive."""
        await wait_async(self._pipeline(pooled, calls, deliver), pooled.pgconn.socket, WAKE_UP_S)

    def _execute(self, pooled: PooledConnection, arguments: Arguments) -> PGresult:
        if self.prepares and self._name in pooled.prepared:
            values: Any = arguments  # as in _send_prepared
            # libpq's own blocking call takes 3 us less than an exchange, and means the same.
            result = pooled.pgconn.exec_prepared(self._name, values, self._formats, Format.BINARY)
            if self._counts(result):
                return result
        return wait(self._exchange(pooled, arguments), pooled.pgconn.socket, WAKE_UP_S)

    def _exchange(self, pooled: PooledConnection, arguments: Arguments) -> PQGen[PGresult]:
        """Send the call and wait for its result and its commit."""
        pgconn = pooled.pgconn
        if self.prepares:
            result = yield from self._exchange_prepared(pooled, arguments)
            if self._counts(result):
                return result
        pgconn.send_query_params(self._text, arguments, param_formats=self._formats, result_format=Format.BINARY)
        return _final((yield from execute(pgconn)))

    def _exchange_prepared(self, pooled: PooledConnection, arguments: Arguments) -> PQGen[PGresult]:
        if self._name not in pooled.prepared:
            pooled.pgconn.send_prepare(self._name, self._text)
            result = _final((yield from execute(pooled.pgconn)))
            if result.status != ExecStatus.COMMAND_OK:
                return result
            pooled.prepared.add(self._name)
        self._send_prepared(pooled, arguments)
        return _final((yield from execute(pooled.pgconn)))

    def _pipeline(
        self, pooled: PooledConnection, calls: Sequence[Arguments], deliver: Callable[[int, Rows], None]
    ) -> PQGen[None]:
        pgconn = pooled.pgconn
        pgconn.enter_pipeline_mode()
        is_new = self._name not in pooled.prepared
        if is_new:
            pgconn.send_prepare(self._name, self._text)
        for arguments in calls:
            self._send_prepared(pooled, arguments)
        pgconn.pipeline_sync()
        yield from send(pgconn)
        if is_new:
            _check(pooled, _final((yield from fetch_many(pgconn))), ExecStatus.COMMAND_OK)
            pooled.prepared.add(self._name)
        for index in range(len(calls)):
            deliver(index, _rows(pooled, _final((yield from fetch_many(pgconn)))))
        (synced,) = yield from fetch_many(pgconn)
        _check(pooled, synced, ExecStatus.PIPELINE_SYNC)
        pgconn.exit_pipeline_mode()

    def _send_prepared(self, pooled: PooledConnection, arguments: Arguments) -> None:
        values: Any = arguments  # None is NULL, as in send_query_params, although the annotation omits it
        pooled.pgconn.send_query_prepared(self._name, values, self._formats, Format.BINARY)

    def _counts(self, result: PGresult) -> bool:
        """Whether this is the call's result. False: the server did not find the statement, so it is sent as text."""
        if result.status == ExecStatus.TUPLES_OK or result.error_field(DiagnosticField.SQLSTATE) not in NOT_PREPARED:
            return True
        self.prepares = False
        return False


def _final(results: Sequence[PGresult]) -> PGresult:
    """The first error of a statement or its commit, or the last result if there is no error."""
    return next((result for result in results if result.status not in SUCCESSES), results[-1])


def _rows(pooled: PooledConnection, result: PGresult) -> Rows:
    _check(pooled, result, ExecStatus.TUPLES_OK)
    transformer = pooled.transformer
    transformer.set_pgresult(result)
    try:
        return transformer.load_rows(0, result.ntuples, tuple)
    finally:
        transformer.set_pgresult(None)


def _value(pooled: PooledConnection, result: PGresult) -> bytes:
    _check(pooled, result, ExecStatus.TUPLES_OK)
    value = result.get_value(0, 0)
    assert value is not None
    return value


def _check(pooled: PooledConnection, result: PGresult, expected: ExecStatus) -> None:
    """Raise what the server or libpq reports instead of the expected result."""
    if result.status == expected:
        return
    # libpq reports the end of the connection in a result of its own, without a SQLSTATE.
    if pooled.pgconn.status != ConnStatus.OK or result.error_field(DiagnosticField.SQLSTATE) is None:
        pooled.connection.close()  # it must not be lent again, whatever its transaction status says
        answer = result.get_error_message() if result.error_message else ExecStatus(result.status).name
        raise psycopg.OperationalError(answer)
    raise psycopg.errors.error_from_result(result)
