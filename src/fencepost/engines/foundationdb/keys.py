"""Where everything is, and what a position is.

    e/<p>/<versionstamp>       an event, in pieces: the first one here, the others at e/<p>/<versionstamp>/<n>
    e/<p>/h                    the position of the partition's last event; its appends write it, watches wait for it
    e/<p>/o/<token>            an append that was stored, until its caller has been told
    t/<type>/<p>/<versionstamp>       nothing: the event has that type
    g/<tag>/<type>/<versionstamp>     nothing: the event has that tag and type
    g/<tag>/ANY/<versionstamp>        the event's type: the event has that tag
    i/<id>                     the position of the event with that id
    k/<name>                   a checkpoint
    f                          the format, and the number of partitions
    c/<bucket>                 never stored: conflict keys, one for each bucket of the kernel

All keys are tuples of FoundationDB's tuple layer below ("fencepost", namespace), so that no two
strings can collide. Each append goes to one partition `p`, so that the end of the log is in as many
places as there are partitions, and no shard gets all writes (docs/decisions/043).

A position is the 96 bits of a tuple layer's versionstamp as a number: 64 of the commit version, 16 of the order in its
batch, and 16 that are the partition and, below it, the event's place in its append. Numbers order as the bytes do, and
that is the order of commits. A position also says in which partition its event is.

Buckets of up to `SUBSET_TAGS` tags are conflict keys. When no item names more, that is exact
(theorem `exact_upto`). An item that names more reads the bucket of two of its tags, which every event
that it matches writes too, so nothing is missed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final
from uuid import UUID

import fdb.tuple as tuple_layer

from ...buckets import ANY, Bucket, Classified, write_buckets
from ...errors import FormatUnsupported, InvalidInput
from ...model import MAX_POSITION

FORMAT: Final = 2
PARTITIONS: Final = 16
MAX_PARTITIONS: Final = 64
SUBSET_TAGS: Final = 2  # part of the format: writers and readers must agree on it
MAX_NAMESPACE_BYTES: Final = 512
STAMP_BYTES: Final = 10
POSITION_BYTES: Final = 12
PLACE_BITS: Final = 16  # of a position below its stamp
VERSIONSTAMP: Final = bytes([tuple_layer.VERSIONSTAMP_CODE])
NESTED: Final = bytes([tuple_layer.NESTED_CODE])
UNSTAMPED: Final = b"\xff" * STAMP_BYTES


def packed(value: object) -> bytes:
    result: bytes = tuple_layer.pack((value,))
    return result


class Namespace:
    """The keys of a namespace that are the same whatever the number of partitions."""

    def __init__(self, namespace: str) -> None:
        if not isinstance(namespace, str):
            raise InvalidInput("namespace", f"a str is needed, not {type(namespace).__name__}")
        if not namespace or "\0" in namespace or len(namespace.encode()) > MAX_NAMESPACE_BYTES:
            raise InvalidInput(
                "namespace", f"1 to {MAX_NAMESPACE_BYTES} bytes without NUL are needed: {namespace!r:.80}"
            )
        self.name = namespace
        self.prefix: bytes = tuple_layer.pack(("fencepost", namespace))
        self.format = self.below("f")

    def below(self, name: str) -> bytes:
        return self.prefix + packed(name)


class Keys(Namespace):
    """The keys of one namespace whose log has that number of partitions."""

    def __init__(self, namespace: str, partitions: int = PARTITIONS) -> None:
        super().__init__(namespace)
        self.partitions: Final = range(checked_partitions(partitions))
        self._index_bits = PLACE_BITS - (partitions.bit_length() - 1)
        self.logs = [self.below("e") + packed(p) for p in self.partitions]
        self.heads = [log + packed("h") for log in self.logs]
        self.tokens = [log + packed("o") for log in self.logs]
        self._types, self._tags, self._ids = self.below("t"), self.below("g"), self.below("i")
        self._checkpoints, self._buckets = self.below("k"), self.below("c")

    @property
    def events_per_append(self) -> int:
        """How many events of one append the last bits of a position can tell apart."""
        return 1 << self._index_bits

    def place(self, partition: int, index: int) -> bytes:
        """The last two bytes of the position of an append's event number `index`."""
        return (partition << self._index_bits | index).to_bytes(2, "big")

    def log_of(self, position: int) -> bytes:
        """The partition of the log that has the event at the position."""
        return self.logs[(position & (1 << PLACE_BITS) - 1) >> self._index_bits]

    def type(self, type: str, partition: int) -> bytes:
        """The postings of a type in a partition."""
        return self._types + packed(type) + packed(partition)

    def tag(self, tag: str, type: str | None = ANY) -> bytes:
        """The postings of a tag, with that type or with any."""
        return self._tags + packed(tag) + packed(type)

    def id(self, id: UUID) -> bytes:
        return self._ids + packed(id)

    def checkpoint(self, name: str) -> bytes:
        return self._checkpoints + packed(name)

    def token(self, partition: int, token: bytes) -> bytes:
        return self.tokens[partition] + packed(token)

    def bucket(self, bucket: Bucket) -> bytes:
        """The conflict key of a bucket."""
        tags, type = bucket
        return self._buckets + packed(tags) + packed(type)

    def written_buckets(self, event: Classified) -> Iterator[bytes]:
        """The conflict keys that the event's append writes, as `bucket` makes them.

        There are many, of few strings: each is packed once. A tuple within a tuple is its packed
        elements between a code and a NUL.
        """
        parts = {tag: packed(tag) for tag in event.tags}
        types = {event.type: packed(event.type), ANY: packed(ANY)}
        for tags, type in write_buckets(event, upto=SUBSET_TAGS):
            yield self._buckets + NESTED + b"".join([parts[tag] for tag in tags]) + b"\0" + types[type]


def checked_partitions(partitions: int) -> int:
    powers = [1 << power for power in range(MAX_PARTITIONS.bit_length())]
    if partitions not in powers:
        raise InvalidInput("partitions", f"one of {', '.join(map(str, powers))} is needed: {partitions!r:.80}")
    return partitions


def format_of(partitions: int) -> bytes:
    """What is stored at the format's key."""
    result: bytes = tuple_layer.pack(("fencepost", FORMAT, partitions))
    return result


def partitions_in(format: bytes) -> int:
    """How many partitions a store with this format has."""
    try:
        name, number, partitions = tuple_layer.unpack(format)
    except Exception:  # the tuple layer raises whatever its decoding meets
        name, number, partitions = None, None, None
    if (name, number) != ("fencepost", FORMAT) or not isinstance(partitions, int):
        raise FormatUnsupported(f"the store has format {format!r:.80}, this version of Fencepost knows format {FORMAT}")
    return partitions


def at(prefix: bytes, position: int) -> bytes:
    """The key below the prefix for a position; for one beyond the last, the end of them all."""
    if position > MAX_POSITION:
        return prefix + VERSIONSTAMP + b"\xff" * (POSITION_BYTES + 1)
    return prefix + VERSIONSTAMP + position.to_bytes(POSITION_BYTES, "big")


def position_in(key: bytes, prefix: bytes) -> int:
    """The position that a key below the prefix is for."""
    start = len(prefix) + 1
    return int.from_bytes(key[start : start + POSITION_BYTES], "big")


def stamped_key(prefix: bytes, place: bytes, suffix: bytes = b"") -> bytes:
    """The template of which `set_versionstamped_key` makes the key for an event at that place."""
    offset = (len(prefix) + 1).to_bytes(4, "little")
    return prefix + VERSIONSTAMP + UNSTAMPED + place + suffix + offset


def stamped_value(place: bytes) -> bytes:
    """The template of which `set_versionstamped_value` makes the position of the event at that place."""
    return UNSTAMPED + place + bytes(4)


def position_of_value(value: bytes | None) -> int:
    return 0 if value is None else int.from_bytes(value, "big")


def value_of_position(position: int) -> bytes:
    return position.to_bytes(POSITION_BYTES, "big")


def version_of(position: int) -> int:
    """The version of the commit that gave out the position."""
    return position >> 32


def last_position_at(version: int) -> int:
    """The highest position that a commit at the version can have given out."""
    return ((version + 1) << 32) - 1
