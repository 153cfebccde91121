"""Errors of PostgreSQL and the network, translated into Fencepost's errors.

After a failed commit, the caller must know whether the append may have been stored. If the server reports an error
for a statement, it has rolled the transaction back: nothing was stored. If the connection ends instead, the outcome
is unknown. That is the error `Lost`, after which only event ids can show what happened.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from ...errors import FormatUnsupported, StoreCorrupt, StoreError, StoreUnavailable


class Lost(StoreUnavailable):
    """The connection ended during a call, which the server may or may not have completed."""


class Unreachable(StoreUnavailable):
    """This attempt could not connect, so it changed nothing. An earlier attempt whose reply was lost may have."""


# By the first characters of the SQLSTATE.
UNAVAILABLE = {
    "53": "the server is out of resources",
    "40": "the transaction was rolled back",
    "55P03": "other clients held the lock of the store for longer than patience_s, or lock_timeout of the role",
    "25P03": "this process was suspended in the middle of a transaction, which the server has rolled back",
    "57014": "the statement took longer than statement_timeout, or was cancelled",
    "25006": "the server is a read-only standby: connect to the primary (target_session_attrs=read-write)",
    "58": "the server's storage failed",
}
UNSUPPORTED = {
    "3F000": "there is no Fencepost store in this schema",
    "42P01": "there is no Fencepost store in this schema",
    "42883": "the store in this schema was made by another version of Fencepost",
}
CORRUPT = {"XX001": "the data is corrupt", "XX002": "an index is corrupt"}
# The server closes the connection. It may report this before, during or just after a commit.
ENDING = ("57P", "08")
# psycopg raises these without a SQLSTATE before it sends anything. Any other error without a SQLSTATE comes from a
# connection that ended or violated the protocol: a pooler may report that it lost its connection to the server by two
# results where one was due.
RAISED_BY_PSYCOPG = (psycopg.ProgrammingError, psycopg.DataError, psycopg.NotSupportedError)


@contextmanager
def translated() -> Iterator[None]:
    """Raise an error of psycopg inside the block as one of Fencepost's errors."""
    try:
        yield
    except psycopg.Error as error:
        raise translate(error) from error


def translate(error: psycopg.Error) -> StoreError:
    state = error.sqlstate or ""
    text = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    if not (state or isinstance(error, RAISED_BY_PSYCOPG)) or (
        isinstance(error, (psycopg.OperationalError, psycopg.InterfaceError)) and state.startswith(ENDING)
    ):
        return Lost(f"the connection to PostgreSQL ended: {text}")
    for table, kind in ((UNAVAILABLE, StoreUnavailable), (UNSUPPORTED, FormatUnsupported), (CORRUPT, StoreCorrupt)):
        for prefix, meaning in table.items():
            if state.startswith(prefix):
                return kind(f"{meaning} ({text}, SQLSTATE {state})")
    if not state:
        return StoreError(f"psycopg refused the statement before sending it: {text}")
    return StoreError(f"PostgreSQL refused: {text} (SQLSTATE {state})")
