"""What an append writes: worked out once, put into each transaction that tries to store it.

Positions are not known before the commit, so keys and values have a gap where the database puts
the versionstamp. What does not fit into a transaction is refused here, before one is begun.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Final

from ...core.verdicts import Append, Changes, keys_of
from ...errors import InvalidInput
from ...model import Put
from .binding import Writes
from .layout import (
    POSITION_BYTES,
    REVISION_BYTES,
    Keys,
    packed,
    pieces_of,
    stamped_key,
    stamped_value,
    value_of_record,
)

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
        self._stamped_keys: list[tuple[bytes, bytes]] = []
        self._keys = keys
        self._stamped_values = [(self.token, stamped_value(keys.place(partition, max(events - 1, 0))))]
        self._conflicts: dict[bytes, None] = {}
        self.size = _ranges_size([self.token, *reads])  # at least what the database counts against its limit
        self._add_events(append, partition)
        # Such a key is written, with a position or revision, and reading and writing it conflict.
        read_and_written = [key for key, _ in self._stamped_values] + [keys.record(name) for name in keys_of(append)]
        self.size += len(read_and_written) * (2 + POSITION_BYTES + 4 + MUTATION_BYTES + 2 * RANGE_BYTES)
        self.size += 5 * sum(map(len, read_and_written))
        self.size += sum(len(change.value) + REVISION_BYTES for change in append.records if isinstance(change, Put))
        self._check_size()

    @property
    def mutations(self) -> list[bytes]:
        """The key of each write, with a gap for the versionstamp where it has one."""
        return [key for key, _ in (*self._stamped_keys, *self._stamped_values)]

    @property
    def stored_keys(self) -> int:
        """How many keys are there for good once the append is stored; token and head do not stay."""
        return len(self._stamped_keys) + len(self._stamped_values) - 2 if self._stamped_keys else 0

    @property
    def conflict_keys(self) -> int:
        return len(self._conflicts)

    def writes(self, reads: Iterable[bytes], changes: Changes, cleared: Sequence[bytes]) -> Writes:
        """What a try writes that reads these conflict keys, and clears these tokens of earlier appends."""
        records = [(self._keys.record(name), record) for name, record in changes.items()]
        return Writes(
            (self.token, *reads),
            self._stamped_keys,
            self._stamped_values,
            [(key, value_of_record(record)) for key, record in records if record is not None],
            [*cleared, *(key for key, record in records if record is None)],
            list(self._conflicts),
        )

    def _add_events(self, append: Append, partition: int) -> None:
        recorded_at = time.time_ns() // 1_000
        keys = self._keys
        log = keys.logs[partition]
        for index, event in enumerate(append.events):
            place = keys.place(partition, index)
            postings, conflict_keys = keys.index(event, partition)
            added = [
                (stamped_key(log, place, packed(number) if number else b""), piece)
                for number, piece in enumerate(pieces_of(event, recorded_at))
            ]
            added += [(stamped_key(prefix, place), value) for prefix, value in postings]
            self._stamped_keys += added
            if event.id is not None:
                self._stamped_values.append((keys.id(event.id), stamped_value(place)))
            new = conflict_keys if index == 0 else [key for key in conflict_keys if key not in self._conflicts]
            self._conflicts.update(dict.fromkeys(new))
            self.size += sum([3 * len(key) + len(value) for key, value in added])
            self.size += len(added) * (MUTATION_BYTES + RANGE_BYTES) + _ranges_size(new)
            self._check_size()
        if append.events:
            last = keys.place(partition, len(append.events) - 1)
            self._stamped_values.append((keys.heads[partition], stamped_value(last)))

    def _check_size(self) -> None:
        if self.size > self._limit:
            raise InvalidInput(
                "events",
                f"with its postings and conflict keys the append has more than {self._limit} bytes, the limit of a "
                f"transaction in this store: append fewer or smaller events at a time, or open the store with a larger "
                f"transaction_bytes (at most {MAX_TRANSACTION_BYTES})",
            )


def _ranges_size(keys: Sequence[bytes]) -> int:
    """What conflict ranges of one key each count."""
    return 2 * sum(map(len, keys)) + len(keys) * (1 + RANGE_BYTES)
