"""What a batch is judged against, and the rows that it adds.

A condition that begins in the tail, or in the tail before it, is answered from memory. An older condition is answered
from the generations on disk. tests/sqlite/test_matching.py holds both to the definition of matching.
"""

from __future__ import annotations

from time import time_ns
from uuid import UUID

import apsw

from ...core.judging import Append
from ...errors import StoreCorrupt
from ...model import Query, encode_metadata, encode_tags
from .checkpoints import read_checkpoint
from .checksums import WHAT_TO_DO
from .connections import snapshot
from .fetching import EventRows
from .generations import Types, position_of, ready_parts, shortlist
from .layout import Row
from .search import search
from .tail import Tail


class BatchLedger:
    """The ledger of one batch: the tail, the generations, and what the batch adds to the tail."""

    def __init__(self, tail: Tail, older: Tail | None, connection: apsw.Connection, types: Types) -> None:
        self.rows: list[Row] = []
        self.checkpoints: dict[str, int] = {}
        self._tail = tail
        self._older = older
        self._connection = connection
        self._types = types
        self._now = time_ns() // 1000

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
            return self._checked(short[0], query) if short else None
        with snapshot(self._connection):
            for part in ready_parts(self._connection, self._types, after, self._tail.floor):
                for position in search(part, query):
                    return self._checked(position, query)
        return None

    def _checked(self, position: int, query: Query) -> int:
        """The position, after checking that its event exists and matches: a posting alone must not refuse an append."""
        rows = EventRows(self._connection.filename)
        rows.check_matches(rows.at(self._connection, [position]), query)
        return position

    def position_of(self, id: UUID) -> int | None:
        position = self._tail.position_of(id.bytes)
        if position is not None or not self._tail.floor:
            return position
        position = position_of(self._connection, id.bytes)
        if position is not None:
            (event,) = EventRows(self._connection.filename).at(self._connection, [position])
            if event.id != id:
                raise StoreCorrupt(
                    f"{self._connection.filename}: the index says that event {position} has the id {id}, which it "
                    f"does not have; {WHAT_TO_DO}"
                )
        return position

    def checkpoint(self, name: str) -> int:
        return self.checkpoints[name] if name in self.checkpoints else read_checkpoint(self._connection, name)

    def stage(self, append: Append) -> None:
        for event in append.events:
            id = None if event.id is None else event.id.bytes
            content = (
                self._tail.head + 1,
                event.type,
                encode_tags(event.tags),
                event.data,
                self._now,
                id,
                encode_metadata(event.metadata),
            )
            self._tail.add(event.type, event.tags, id, content)
            self.rows.append(content)
        if append.checkpoint is not None:
            name, position = append.checkpoint
            self.checkpoints[name] = position
