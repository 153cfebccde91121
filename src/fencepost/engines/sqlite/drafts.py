"""What a batch is judged against, and the rows that it leads to.

A condition is answered from memory if it begins in the tail, or in the one before it; from the
generations on disk if it is older.
"""

from __future__ import annotations

from time import time_ns
from typing import TypeAlias
from uuid import UUID
from zlib import crc32

import apsw

from ...commit import Append
from ...model import Query, encode_metadata, encode_tags
from .files import snapshot, value
from .generations import Types, position_of, ready_parts, shortlist
from .search import search
from .tail import Tail

Row: TypeAlias = tuple[int, str, str, bytes, int, bytes | None, str | None, int]


class Draft:
    """The ledger of one batch: the tail and the generations, and what the batch adds to the tail."""

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
            return short[0] if short else None
        with snapshot(self._connection):
            for part in ready_parts(self._connection, self._types, after, self._tail.floor):
                for position in search(part, query):
                    return position
        return None

    def position_of(self, id: UUID) -> int | None:
        position = self._tail.position_of(id.bytes)
        return position_of(self._connection, id.bytes) if position is None and self._tail.floor else position

    def checkpoint(self, name: str) -> int:
        return self.checkpoints[name] if name in self.checkpoints else checkpoint_of(self._connection, name)

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
            self.rows.append((*content, checksum(*content)))
        if append.checkpoint is not None:
            name, position = append.checkpoint
            self.checkpoints[name] = position


def checksum(
    position: int, type: str, tags: str, data: bytes, recorded_at: int, id: bytes | None, metadata: str | None
) -> int:
    """CRC-32 of a row. NUL separates the fields, which cannot contain it, and the data comes last."""
    rest = f"{position}\0{type}\0{tags}\0{recorded_at}\0{id.hex() if id else ''}\0{metadata or ''}\0"
    return crc32(data, crc32(rest.encode()))


def checkpoint_of(connection: apsw.Connection, name: str) -> int:
    return int(value(connection, "SELECT position FROM checkpoints WHERE name = ?", (name,)) or 0)
