"""What PostgreSQL and the network say, as errors with a name.

The one question that matters after a failed commit is whether it may have been stored. An error that
the server reports while it works on a statement has ended the transaction: nothing was stored. When
the connection ends instead, nobody knows: the fault is `Lost`, and only event ids can settle it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from ...errors import FormatUnsupported, StoreCorrupt, StoreError, StoreUnavailable


class Lost(StoreUnavailable):
    """The connection ended in the middle of something that may or may not have been done."""


class Unreachable(StoreUnavailable):
    """No connection could be had, so nothing was done: by this try, not by one before it whose answer was lost."""


# By the first characters of the SQLSTATE, the longest that fits.
UNAVAILABLE = {
    "53": "the server is out of resources",
    "40": "the transaction was rolled back",
    "55P03": "a lock was not granted in time",
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
# The server ends the connection; it says so before, or in the middle of, or just after a commit.
ENDING = ("57P", "08")


@contextmanager
def translated() -> Iterator[None]:
    """Let what psycopg raises inside come out as one of our errors."""
    try:
        yield
    except psycopg.Error as error:
        raise translate(error) from error


def translate(error: psycopg.Error) -> StoreError:
    state = error.sqlstate or ""
    text = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    if isinstance(error, (psycopg.OperationalError, psycopg.InterfaceError)) and (
        not state or state.startswith(ENDING)
    ):
        return Lost(f"the connection to PostgreSQL ended: {text}")
    for table, kind in ((UNAVAILABLE, StoreUnavailable), (UNSUPPORTED, FormatUnsupported), (CORRUPT, StoreCorrupt)):
        for prefix, meaning in table.items():
            if state.startswith(prefix):
                return kind(f"{meaning} ({text}, SQLSTATE {state})")
    return StoreError(f"PostgreSQL refused: {text} (SQLSTATE {state})")
