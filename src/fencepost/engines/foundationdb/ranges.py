"""Range reads: begun at once, taken reply by reply.

A read that is begun and not taken yet costs no waiting, so several are begun before the first is taken. The database
answers a long range in several replies. If one of them fails, the read fails as a whole, and the next
try of the transaction begins it again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from .binding import Connection, KeyValue, Reads, Reply
from .waiting import Steps, result


class RangeRead:
    def __init__(
        self, connection: Connection, reads: Reads, begin: bytes, end: bytes, limit: int = 0, reverse: bool = False
    ) -> None:
        self._connection = connection
        self._reads = reads  # the client cancels the read when its transaction is collected
        self._range = begin, end, limit, reverse
        self._reply = connection.begin_range(reads, *self._range)

    def rows(self) -> Steps[list[KeyValue]]:
        begin, end, limit, reverse = self._range
        found: list[KeyValue] = []
        while True:
            reply: Reply = yield from result(self._reply)
            rows, count, more = reply
            found += rows
            if not more or not count or limit == count:
                return found
            limit = limit - count if limit else 0
            begin, end = (begin, rows[-1].key) if reverse else (rows[-1].key + b"\0", end)
            self._reply = self._connection.begin_range(self._reads, begin, end, limit, reverse)


Fetch: TypeAlias = Callable[[bytes, bytes, int, bool], RangeRead]
"""Begins to read a range: from, up to and without, the number of rows at most (0 for all), and whether from the end."""
