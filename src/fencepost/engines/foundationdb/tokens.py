"""The tokens of stored appends: cleared along with later appends, and swept when their process has died.

A token tells a later try of an append that an earlier one was stored. Once the caller has been told, the token is of no
use, and one of the next appends of this process clears it. A process that is killed leaves tokens behind. Opening a
store clears those older than an hour, counted in the cluster's versions.

An append must not miss its token because it was swept: a process can be suspended between two tries. So an append whose
first try began an hour ago gives up, with an unknown outcome, rather than trust that its token is absent. Within the
hour, no sweep that the last try can see has cleared the token, and a sweep that it cannot see yet conflicts with it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

from .binding import Connection, Transaction
from .keys import Keys, position_of_value, version_of
from .ranges import RangeRead
from .waiting import Steps, result

CLEARED: Final = 16  # tokens of earlier appends that an append takes along
SWEPT: Final = 256  # tokens of each partition that one opening looks at
LASTING_VERSIONS: Final = 3_600 * 1_000_000  # an hour


class Tokens:
    def __init__(self, keys: Keys) -> None:
        self._keys = keys
        self._told: deque[bytes] = deque()  # tokens of appends whose callers have been told

    def __bool__(self) -> bool:
        return bool(self._told)

    def take(self) -> list[bytes]:
        """Some tokens for an append to clear. Put them back with `add` if the append fails."""
        taken: list[bytes] = []
        with suppress(IndexError):
            while len(taken) < CLEARED:
                taken.append(self._told.popleft())
        return taken

    def add(self, tokens: Iterable[bytes]) -> None:
        self._told.extend(tokens)

    def clear(self, transaction: Transaction) -> Steps[None]:
        """Clear all of them."""
        for token in list(self._told):
            transaction.clear(token)
        yield from result(transaction.commit())

    def sweep(self, connection: Connection, transaction: Transaction) -> Steps[int]:
        """Clear tokens that processes which ended long ago have left behind, and return their number."""
        version = transaction.get_read_version()
        reads = [
            RangeRead(connection, transaction.snapshot, tokens, tokens + b"\xff", SWEPT) for tokens in self._keys.tokens
        ]
        oldest = (yield from result(version)) - LASTING_VERSIONS
        swept = 0
        for read in reads:
            rows = yield from read.rows()
            for row in rows:
                if version_of(position_of_value(row.value)) < oldest:
                    transaction.clear(row.key)
                    swept += 1
        if swept:
            yield from result(transaction.commit())
        return swept
