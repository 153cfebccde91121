"""What appends were conditional on: kept in the transaction that stores their events, read in pages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from ...model import RecordedAppend
from .calls import Call
from .connections import Connection, Session

PAGE_APPENDS: Final = 1_024


class RecordDocument(msgspec.Struct):
    first: int
    last: int
    conditions: msgspec.Raw
    unless: msgspec.Raw | None


class Records:
    """The recorded appends of the store in a schema, whose quoted name is given."""

    def __init__(self, name: str) -> None:
        self._record = Call(f"SELECT {name}.record_appends($1)")
        self._page = (
            f"SELECT first, last, conditions::text, unless::text FROM {name}.append"
            f" WHERE last > %s AND last <= %s ORDER BY last LIMIT {PAGE_APPENDS}"
        ).encode()
        # In a transaction, nothing may fail: not even because a pooler has forgotten what was prepared.
        self._record.prepares = False

    def keep(self, session: Session, records: Sequence[RecordedAppend]) -> None:
        """In the transaction that the session is in."""
        if records:
            self._record.value(session, [msgspec.json.encode([_document(append) for append in records])])

    def page(self, connection: Connection, after: int, upto: int) -> list[RecordedAppend]:
        return [RecordedAppend(*row) for row in connection.execute(self._page, [after, upto])]


def _document(append: RecordedAppend) -> RecordDocument:
    unless = None if append.unless_json is None else msgspec.Raw(append.unless_json.encode())
    return RecordDocument(append.first, append.last, msgspec.Raw(append.conditions_json.encode()), unless)
