"""Recorded conditions: stored in the transaction that stores the events of their append, and read in pages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from ...model import RecordedAppend
from .connection_pool import Connection, ConnectionPool, PooledConnection
from .statement import Statement

PAGE_APPENDS: Final = 1_024


class RecordedAppends:
    """The recorded appends of a store. `name` is the quoted name of its schema."""

    def __init__(self, name: str) -> None:
        self._record = Statement(f"SELECT {name}.record_appends($1)", prepare=False)
        self._page = (
            f"SELECT first, last, conditions::text, unless::text FROM {name}.append"
            f" WHERE last > %s AND last <= %s ORDER BY last LIMIT {PAGE_APPENDS}"
        ).encode()
        self._restore = f"INSERT INTO {name}.append (first, last, conditions, unless) VALUES (%s, %s, %s, %s)".encode()

    def keep(self, pooled: PooledConnection, records: Sequence[RecordedAppend]) -> None:
        """Record appends in the open transaction of the connection, which has stored their events."""
        if records:
            self._record.value(pooled, [msgspec.json.encode([_document(append) for append in records])])

    def restore(self, connection: Connection, records: Sequence[RecordedAppend]) -> None:
        """Store appends that another store has recorded, as the owner of the table.

        Their events may have been restored in earlier transactions.
        """
        with connection.cursor() as cursor:
            cursor.executemany(
                self._restore, [(each.first, each.last, each.conditions_json, each.unless_json) for each in records]
            )

    def page(self, pool: ConnectionPool, after: int, up_to: int) -> list[RecordedAppend]:
        return [RecordedAppend(*row) for row in pool.rows(self._page, [after, up_to])]


def _document(append: RecordedAppend) -> dict[str, Any]:
    unless = None if append.unless_json is None else msgspec.Raw(append.unless_json.encode())
    conditions = msgspec.Raw(append.conditions_json.encode())
    return {"first": append.first, "last": append.last, "conditions": conditions, "unless": unless}
