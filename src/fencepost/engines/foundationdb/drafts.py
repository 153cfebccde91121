"""What an append writes: worked out once, put into each transaction that tries to store it.

Positions are not known before the commit, so keys and values have a gap where the database puts
the versionstamp. What does not fit into a transaction is refused here, before one is begun.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Final

from ...commit import Append
from ...errors import InvalidInput
from .binding import Transaction
from .keys import POSITION_BYTES, Keys, packed, stamped_key, stamped_value, value_of_position
from .records import pieces_of

TRANSACTION_BYTES: Final = 10_000_000
EVENTS: Final = 65_536  # the places that the last 16 bits of a position can tell apart

# What the database counts for a mutation and for a conflict range besides their keys and values is
# not documented; these are above what its client library does.
MUTATION_BYTES: Final = 48
RANGE_BYTES: Final = 32


class Draft:
    """The writes and the conflict keys of one append. `token` tells it from every other one."""

    def __init__(self, append: Append, keys: Keys, token: bytes) -> None:
        if len(append.events) > EVENTS:
            raise InvalidInput("events", f"{len(append.events)} events, the limit of FoundationDB's engine is {EVENTS}")
        self.keys = keys
        self.token = keys.token(token)
        self._size = 0
        self._stamped_keys: list[tuple[bytes, bytes]] = []
        self._stamped_values: list[tuple[bytes, bytes]] = []
        self._sets: list[tuple[bytes, bytes]] = []
        self._reads: dict[bytes, None] = {}
        self._writes: dict[bytes, None] = {}
        self._conflict(self._reads, [self.token])
        self._stamp_value(self.token, max(len(append.events) - 1, 0))
        for query in filter(
            None, [append.unless, *(condition.fail_if_events_match for condition in append.conditions)]
        ):
            self._conflict(self._reads, keys.read_buckets(query))
        self._add_events(append)
        if append.checkpoint is not None:
            name, position = append.checkpoint
            self._set(keys.checkpoint(name), value_of_position(position))

    @property
    def stored_keys(self) -> int:
        """How many keys are there for good once the append is stored; the head, which is overwritten, is not one."""
        return len(self._stamped_keys) + len(self._stamped_values) - 2 if self._stamped_keys else 0

    @property
    def conflict_keys(self) -> int:
        return len(self._writes)

    @property
    def size(self) -> int:
        """At least the bytes that the database counts against its limit."""
        return self._size

    def write(self, transaction: Transaction) -> None:
        for key, value in self._stamped_keys:
            transaction.set_versionstamped_key(key, value)
        for key, value in self._stamped_values:
            transaction.set_versionstamped_value(key, value)
        for key, value in self._sets:
            transaction.set(key, value)
        for key in self._reads:
            transaction.add_read_conflict_key(key)
        for key in self._writes:
            transaction.add_write_conflict_key(key)

    def _add_events(self, append: Append) -> None:
        recorded_at = time.time_ns() // 1_000
        keys = self.keys
        for index, event in enumerate(append.events):
            for number, piece in enumerate(pieces_of(event, recorded_at)):
                self._stamp_key(stamped_key(keys.log, index, packed(number) if number else b""), piece)
            self._stamp_key(stamped_key(keys.type(event.type), index), b"")
            type = event.type.encode()
            for tag in event.tags:
                self._stamp_key(stamped_key(keys.tag(tag), index), type)
            if event.id is not None:
                self._stamp_value(keys.id(event.id), index)
            self._conflict(self._writes, keys.written_buckets(event))
        if append.events:
            self._stamp_value(keys.head, len(append.events) - 1)

    def _stamp_key(self, key: bytes, value: bytes) -> None:
        self._stamped_keys.append((key, value))
        self._grow(3 * len(key) + len(value) + MUTATION_BYTES + RANGE_BYTES)

    def _stamp_value(self, key: bytes, index: int) -> None:
        self._stamped_values.append((key, stamped_value(index)))
        self._grow_by_key(key)

    def _set(self, key: bytes, value: bytes) -> None:
        self._sets.append((key, value))
        self._grow_by_key(key)

    def _grow_by_key(self, key: bytes) -> None:
        """For a key that is written, with a position, and whose reading and writing conflict."""
        self._grow(5 * len(key) + 2 + POSITION_BYTES + 4 + MUTATION_BYTES + 2 * RANGE_BYTES)

    def _conflict(self, ranges: dict[bytes, None], keys: Iterable[bytes]) -> None:
        for key in keys:
            if key not in ranges:
                ranges[key] = None
                self._grow(2 * len(key) + 1 + RANGE_BYTES)

    def _grow(self, size: int) -> None:
        self._size += size
        if self._size > TRANSACTION_BYTES:
            raise InvalidInput(
                "events",
                f"with its postings and conflict keys the append has more than {TRANSACTION_BYTES} bytes, "
                "the limit of a FoundationDB transaction: append fewer or smaller events at a time",
            )
