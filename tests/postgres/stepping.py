"""Two transactions, one step at a time.

`Hand` is a client whose transaction stays open until the test ends it. `wait_for_waiting` reads the lock table of the
server, so a test continues when a transaction waits for the lock, not after some time.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg

from fencepost.core.verdicts import Append, Verdict
from fencepost.engines.postgres.connection_pool import Connection
from fencepost.engines.postgres.install import LOCK_CLASS
from fencepost.engines.postgres.wire import decode_verdicts, encode_batch
from fencepost.testing.faults import PATIENCE_S


class Hand:
    """A writer that has judged and written, and neither commits nor rolls back by itself."""

    def __init__(self, database_url: str, schema: str) -> None:
        self.connection: Connection = psycopg.connect(database_url)
        self.schema = schema

    def append(self, *appends: Append) -> Sequence[Verdict]:
        statement = f'SELECT "{self.schema}".append_batch(%s::json, %s::boolean, %s::bigint)::text'.encode()
        arguments = [argument.decode() for argument in encode_batch(appends)]
        row = self.connection.execute(statement, arguments).fetchone()
        assert row is not None
        return decode_verdicts(appends, row[0].encode())

    def take_id(self) -> None:
        """Get a transaction id. Transactions that begin later get higher ids."""
        self.connection.execute("SELECT pg_current_xact_id()")


@contextmanager
def hand(database_url: str, schema: str) -> Iterator[Hand]:
    writer = Hand(database_url, schema)
    with writer.connection:
        yield writer


def wait_for_waiting(connection: psycopg.Connection[Any], count: int) -> list[int]:
    """Wait until `count` backends wait for the lock of a store; return their process ids."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        rows = connection.execute(
            "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND classid = %s AND NOT granted", [LOCK_CLASS]
        ).fetchall()
        if len(rows) >= count:
            return [row[0] for row in rows]
        assert time.monotonic() < deadline, f"{count} were to wait for the lock, {len(rows)} do"
        time.sleep(0.002)
