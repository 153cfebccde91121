"""Calling a function of the server in as little time as can be.

A store with one caller spends more time around an append than in it, so the few statements that are sent
again and again go to libpq directly, and prepared. The call blocks, without the interpreter's lock, until the
answer is there: an interrupt from the keyboard is heard afterwards, when the append's fate is known.

Behind a pooler in transaction mode a connection may not know what it has prepared. The server then refuses
before it does anything; the statement is sent as it is, and from then on nothing is prepared any more.
A prepared statement is named after its text, so nobody can run into another's under the same name.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import Any, Final, TypeAlias

import psycopg
from psycopg.pq import ConnStatus, ExecStatus, Format
from psycopg.pq.abc import PGresult

from .connections import Session

Arguments: TypeAlias = Sequence[bytes | None]

NOT_PREPARED: Final = (b"26000", b"42P05")  # it is not there; or somebody else's client has made it already


class Call:
    """A statement with parameters $1, $2, ..., which are given as text, or in binary where `formats` says so."""

    def __init__(self, statement: str, formats: Sequence[Format] | None = None) -> None:
        self._statement = statement.encode()
        self._formats = formats
        self._name = b"fencepost_" + sha256(self._statement).hexdigest()[:40].encode()
        self.prepares = True

    def rows(self, session: Session, arguments: Arguments) -> list[tuple[Any, ...]]:
        """Call it on a connection that nobody else uses meanwhile."""
        return self.loaded(session, self._execute(session, arguments))

    def send(self, session: Session, arguments: Arguments) -> bool:
        """Only send it, in a pipeline. True: it is prepared first, and that has a result of its own."""
        prepare = self._name not in session.prepared
        if prepare:
            session.pgconn.send_prepare(self._name, self._statement)
            session.prepared.add(self._name)
        values: Any = arguments
        session.pgconn.send_query_prepared(self._name, values, self._formats, Format.BINARY)
        return prepare

    def loaded(self, session: Session, result: PGresult) -> list[tuple[Any, ...]]:
        """The rows of an answer."""
        self._check(session, result)
        transformer = session.transformer
        transformer.set_pgresult(result)
        try:
            return transformer.load_rows(0, result.ntuples, tuple)
        finally:
            transformer.set_pgresult(None)

    def value(self, session: Session, arguments: Arguments) -> bytes:
        """Call it likewise; what it returns is one value, and not NULL."""
        return self.loaded_value(session, self._execute(session, arguments))

    def is_prepared(self, session: Session) -> bool:
        """Whether it can be sent on this connection as it is."""
        return self.prepares and self._name in session.prepared

    def loaded_value(self, session: Session, result: PGresult) -> bytes:
        """The one value of an answer."""
        self._check(session, result)
        value = result.get_value(0, 0)
        assert value is not None
        return value

    def _check(self, session: Session, result: PGresult) -> None:
        if result.status != ExecStatus.TUPLES_OK:
            if session.pgconn.status != ConnStatus.OK:  # libpq says so in a result of its own, without a SQLSTATE
                raise psycopg.OperationalError(result.get_error_message())
            raise psycopg.errors.error_from_result(result)

    def _execute(self, session: Session, arguments: Arguments) -> PGresult:
        if self.prepares:
            result = self._execute_prepared(session, arguments)
            if result.status == ExecStatus.TUPLES_OK or (
                result.error_field(psycopg.pq.DiagnosticField.SQLSTATE) not in NOT_PREPARED
            ):
                return result
            self.prepares = False
        return session.pgconn.exec_params(
            self._statement, arguments, param_formats=self._formats, result_format=Format.BINARY
        )

    def _execute_prepared(self, session: Session, arguments: Arguments) -> PGresult:
        if self._name not in session.prepared:
            result = session.pgconn.prepare(self._name, self._statement)
            if result.status != ExecStatus.COMMAND_OK:
                return result
            session.prepared.add(self._name)
        # None is NULL, as in exec_params; only the annotation does not say so.
        values: Any = arguments
        return session.pgconn.exec_prepared(self._name, values, self._formats, Format.BINARY)
