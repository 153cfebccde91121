"""What a batch is judged against, and the rows that it adds.

A condition that begins in the tail, or in the tail before it, is answered from memory. An older condition is answered
from the generations on disk. tests/sqlite/test_matching.py holds both to the definition of matching.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import time_ns
from typing import Final
from uuid import UUID

import apsw

from ...core.verdicts import Changes
from ...errors import StoreUnavailable
from ...model import Event, Query, Record, encode_tags
from .connections import snapshot
from .generations import Types, position_of, ready_parts, shortlist
from .layout import Row
from .records import read_record
from .search import search
from .tail import Tail

LATEST_US: Final = 253_402_300_799_999_999  # the end of the year 9999, which readers can still decode


class BatchLedger:
    """The ledger of one batch: the tail, the generations, and what the batch adds to the tail."""

    def __init__(self, tail: Tail, older: Tail | None, connection: apsw.Connection, types: Types) -> None:
        self.rows: list[Row] = []
        self.changes: dict[str, Record | None] = {}
        self._tail = tail
        self._older = older
        self._connection = connection
        self._types = types
        self._now = time_ns() // 1000
        if self._now > LATEST_US:
            raise StoreUnavailable("the clock is beyond the year 9999; nothing was written; set the clock")

    def head(self) -> int:
        return self._tail.head

    def first_match(self, query: Query, after: int) -> int | None:
        if after < self._tail.floor:
            position = self._first_indexed(query, after)
            if position is not None:
                return position
        return self._tail.first_match(query, after)

    def _first_indexed(self, query: Query, after: int) -> int | None:
        older = self._older
        if older is not None and older.floor <= after:
            return older.first_match(query, after)
        short = shortlist(self._connection, self._types, query, after, self._tail.floor)
        if short is not None and (not short or all(len(item.tags) == 1 for item in query.items)):
            return short[0] if short else None
        with snapshot(self._connection):
            for part in ready_parts(self._connection, self._types, after, self._tail.floor):
                for position in search(part, query):
                    return position
        return None

    def position_of(self, id: UUID) -> int | None:
        position = self._tail.position_of(id.bytes)
        if position is not None or not self._tail.floor:
            return position
        return position_of(self._connection, id.bytes)

    def record(self, key: str) -> Record | None:
        return self.changes[key] if key in self.changes else read_record(self._connection, key)

    def stage_records(self, changes: Changes) -> None:
        self.changes.update(changes)

    def stage(self, events: Sequence[Event]) -> None:
        for event in events:
            id = None if event.id is None else event.id.bytes
            content = (
                self._tail.head + 1,
                event.type,
                encode_tags(event.tags),
                event.data,
                self._now,
                id,
                event.raw_metadata,
            )
            self._tail.add(event.type, event.tags, id, content)
            self.rows.append(content)
