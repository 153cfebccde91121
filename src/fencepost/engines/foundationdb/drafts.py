"""What an append writes: worked out once, put into each transaction that tries to store it.

Positions are not known before the commit, so keys and values have a gap where the database puts
the versionstamp. What does not fit into a transaction is refused here, before one is begun.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Final

from ...core.judging import Append
from ...errors import InvalidInput
from .binding import Transaction
from .keys import POSITION_BYTES, Keys, packed, stamped_key, stamped_value, value_of_position
from .pieces import pieces_of

MAX_TRANSACTION_BYTES: Final = 10_000_000  # FoundationDB's own limit
TRANSACTION_BYTES: Final = 1_000_000  # above this, FoundationDB's documentation says, a cluster may suffer

# What the database counts for a mutation and for a conflict range besides their keys and values is
# not documented; these are above what its client library does.
MUTATION_BYTES: Final = 48
RANGE_BYTES: Final = 32


class Draft:
    """The writes of one append. `token` tells it from every other one, `partition` is where its events go.

    `reads` are conflict keys as long as those that its conditions read, for counting.
    """

    def __init__(
        self,
        append: Append,
        keys: Keys,
        token: bytes,
        *,
        partition: int = 0,
        reads: Iterable[bytes] = (),
        transaction_bytes: int = TRANSACTION_BYTES,
    ) -> None:
        events = len(append.events)
        if events > keys.events_per_append:
            raise InvalidInput(
                "events",
                f"{events} events, the limit of a FoundationDB store with {len(keys.partitions)} partitions is "
                f"{keys.events_per_append}",
            )
        # A single event of legal size is always stored.
        self._limit = transaction_bytes if events > 1 else MAX_TRANSACTION_BYTES
        self.token = keys.token(partition, token)
        self.first_place = keys.place(partition, 0)  # the end of the first event's position
        self.size = 0  # at least the bytes that the database counts against its limit
        self._keys = keys
        self._partition = partition
        self._stamped_keys: list[tuple[bytes, bytes]] = []
        self._stamped_values: list[tuple[bytes, bytes]] = []
        self._sets: list[tuple[bytes, bytes]] = []
        self._writes: dict[bytes, None] = {}
        for key in (self.token, *reads):
            self._grow_by_range(key)
        self._stamp_value(self.token, max(events - 1, 0))
        self._add_events(append)
        if append.checkpoint is not None:
            name, position = append.checkpoint
            self._sets.append((keys.checkpoint(name), value_of_position(position)))
            self._grow_by_key(keys.checkpoint(name))

    @property
    def mutations(self) -> list[bytes]:
        """The key of each write, with a gap for the versionstamp where it has one."""
        return [key for key, _ in (*self._stamped_keys, *self._stamped_values, *self._sets)]

    @property
    def stored_keys(self) -> int:
        """How many keys are there for good once the append is stored; token and head do not stay."""
        return len(self._stamped_keys) + len(self._stamped_values) - 2 if self._stamped_keys else 0

    @property
    def conflict_keys(self) -> int:
        return len(self._writes)

    def write(self, transaction: Transaction, reads: Sequence[bytes]) -> None:
        # First what is read: the client takes a read conflict on a key that the transaction has already
        # written for a read of its own write, and drops it.
        for key in (self.token, *reads):
            transaction.add_read_conflict_key(key)
        for key, value in self._stamped_keys:
            transaction.set_versionstamped_key(key, value)
        for key, value in self._stamped_values:
            transaction.set_versionstamped_value(key, value)
        for key, value in self._sets:
            transaction.set(key, value)
        for key in self._writes:
            transaction.add_write_conflict_key(key)

    def _add_events(self, append: Append) -> None:
        recorded_at = time.time_ns() // 1_000
        keys, partition = self._keys, self._partition
        log = keys.logs[partition]
        for index, event in enumerate(append.events):
            place = keys.place(partition, index)
            for number, piece in enumerate(pieces_of(event, recorded_at)):
                self._stamp_key(stamped_key(log, place, packed(number) if number else b""), piece)
            self._stamp_key(stamped_key(keys.type(event.type, partition), place), b"")
            type = event.type.encode()
            for tag in event.tags:
                self._stamp_key(stamped_key(keys.tag(tag), place), type)
                self._stamp_key(stamped_key(keys.tag(tag, event.type), place), b"")
            if event.id is not None:
                self._stamp_value(keys.id(event.id), index)
            for key in keys.written_buckets(event):
                if key not in self._writes:
                    self._writes[key] = None
                    self._grow_by_range(key)
        if append.events:
            self._stamp_value(keys.heads[partition], len(append.events) - 1)

    def _stamp_key(self, key: bytes, value: bytes) -> None:
        self._stamped_keys.append((key, value))
        self._grow(3 * len(key) + len(value) + MUTATION_BYTES + RANGE_BYTES)

    def _stamp_value(self, key: bytes, index: int) -> None:
        self._stamped_values.append((key, stamped_value(self._keys.place(self._partition, index))))
        self._grow_by_key(key)

    def _grow_by_key(self, key: bytes) -> None:
        """For a key that is written, with a position, and whose reading and writing conflict."""
        self._grow(5 * len(key) + 2 + POSITION_BYTES + 4 + MUTATION_BYTES + 2 * RANGE_BYTES)

    def _grow_by_range(self, key: bytes) -> None:
        self._grow(2 * len(key) + 1 + RANGE_BYTES)

    def _grow(self, size: int) -> None:
        self.size += size
        if self.size > self._limit:
            raise InvalidInput(
                "events",
                f"with its postings and conflict keys the append has more than {self._limit} bytes, the limit of a "
                f"transaction in this store: append fewer or smaller events at a time, or open the store with a larger "
                f"transaction_bytes (at most {MAX_TRANSACTION_BYTES})",
            )
