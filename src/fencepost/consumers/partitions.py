"""Divisions: how the events of a consumer are split into partitions, so that several workers share its load.

An event belongs to the partition that a hash of its key, the value of one tag, gives. The hash is BLAKE2b, the same in
every process, Python and machine. An event without the key belongs to partition 0. An event with several values of the
key may belong to several partitions. The lowest of them, its *owner*, handles it, and the others wait for that
(`batches`).

A consumer without partitions has one, number 0. Each partition has a lease and a checkpoint of its own, under the name
that `lease_name` gives. Changing a division begins new names, and the old checkpoints say what was handled before
(tests/consumers/test_partitions.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Final

import msgspec

from .. import SequencedEvent
from ..engine import checked_name
from ..errors import InvalidInput

MOST_PARTITIONS: Final = 1_024


class Division(msgspec.Struct, frozen=True):
    """The number of partitions, the name of the tag, and the position of the record that began this division."""

    partitions: int = 1
    key: str = ""
    since: int = 0

    def is_like(self, other: Division) -> bool:
        """Whether both put every event into the same partition."""
        return (self.partitions, self.key) == (other.partitions, other.key)

    def lease_name(self, consumer: str, number: int) -> str:
        """What the lease and the checkpoint of a partition are called. Names of consumers contain no #."""
        if self.partitions == 1 and self.since == 0:
            return consumer
        name = f"{consumer}#{number}of{self.partitions}"
        return name if self.since == 0 else f"{name}.{self.since}"

    def lease_names(self, consumer: str) -> list[str]:
        return [self.lease_name(consumer, number) for number in range(self.partitions)]

    def partition_of(self, value: str) -> int:
        """The partition of a value of the key."""
        return int.from_bytes(blake2b(value.encode(), digest_size=8).digest()) % self.partitions

    def of(self, event: SequencedEvent) -> Sequence[int]:
        """The partitions of an event, the owner first."""
        if self.partitions == 1:
            return (0,)
        prefix = f"{self.key}:"
        cut = len(prefix)
        values = [tag[cut:] for tag in event.tags if tag.startswith(prefix)]
        if len(values) == 1:
            return (self.partition_of(values[0]),)
        return sorted({self.partition_of(value) for value in values}) if values else (0,)

    def text(self) -> str:
        return "no partitions" if self.partitions == 1 else f"{self.partitions} partitions by the tag {self.key!r}"


UNDIVIDED: Final = Division()


def checked_division(partitions: int, key: str | None) -> Division:
    """The division that a declaration or a command asks for."""
    if not 1 <= partitions <= MOST_PARTITIONS:
        raise InvalidInput("partitions", f"1 to {MOST_PARTITIONS:,} are possible, not {partitions}")
    if (partitions > 1) != (key is not None):
        raise InvalidInput(
            "key", "a consumer with partitions needs the name of the tag that splits its events, and others have none"
        )
    if key is not None:
        checked_name(key, "key")
        if ":" in key:
            raise InvalidInput("key", f"{key!r}: the name of a tag, as before the colon of 'wallet:w1'")
    return Division(partitions, key or "")


class HandledBefore:
    """What was handled before the division was changed: the last checkpoints of the earlier divisions."""

    def __init__(self, consumer: str, checkpoints: Mapping[Division, Mapping[str, int]]) -> None:
        self._divisions = [
            (division, [found[name] for name in division.lease_names(consumer)])
            for division, found in checkpoints.items()
        ]
        self.up_to = max((max(positions) for _, positions in self._divisions), default=0)
        self.start = max((min(positions) for _, positions in self._divisions), default=0)

    def __contains__(self, event: SequencedEvent) -> bool:
        if event.position > self.up_to:
            return False
        return any(positions[division.of(event)[0]] >= event.position for division, positions in self._divisions)
