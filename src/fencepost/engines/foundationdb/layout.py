"""Where everything is, what a position is, and how an event is stored.

    e/<p>/<versionstamp>       an event, in pieces: the first one here, the others at e/<p>/<versionstamp>/<n>
    e/<p>/h                    the position of the partition's last event; its appends write it, watches wait for it
    e/<p>/o/<token>            an append that was stored, until its caller has been told
    t/<type>/<p>/<versionstamp>       nothing: the event has that type
    g/<tag>/<type>/<versionstamp>     nothing: the event has that tag and type
    g/<tag>/ANY/<versionstamp>        the event's type: the event has that tag
    i/<id>                     the position of the event with that id
    k/<key>                    a record, checkpoints among them: eight bytes of revision, then the value
    f                          the format, and the number of partitions
    c/<bucket>                 never stored: conflict keys, one for each bucket of the kernel

All keys are tuples of FoundationDB's tuple layer below ("fencepost", namespace), so that no two
strings can collide. Each append goes to one partition `p`, so that the end of the log is in as many
places as there are partitions, and no shard gets all writes (docs/decisions/043).

A position is the 96 bits of a tuple layer's versionstamp as a number: 64 of the commit version, 16 of the order in its
batch, and 16 that are the partition and, below it, the event's place in its append. Numbers order as the bytes do, and
that is the order of commits. A position also says in which partition its event is.

Buckets of up to `SUBSET_TAGS` tags are conflict keys. When no item names more, that is exact
(theorem `exact_up_to`). An item that names more reads the bucket of two of its tags, which every event
that it matches writes too, so nothing is missed.
"""

from __future__ import annotations

from itertools import combinations
from typing import Final
from uuid import UUID

import fdb.tuple as tuple_layer
import msgspec

from ...buckets import ANY, Bucket, Classified
from ...errors import FormatUnsupported, InvalidInput, StoreCorrupt
from ...model import MAX_POSITION, Event, Record, SequencedEvent, encode_tags

FORMAT: Final = 1
PARTITIONS: Final = 16
MAX_PARTITIONS: Final = 64
SUBSET_TAGS: Final = 2  # part of the format: writers and readers must agree on it
MAX_NAMESPACE_BYTES: Final = 512
STAMP_BYTES: Final = 10
POSITION_BYTES: Final = 12
REVISION_BYTES: Final = 8
PLACE_BITS: Final = 16  # of a position below its stamp
VERSIONSTAMP: Final = bytes([tuple_layer.VERSIONSTAMP_CODE])
NESTED: Final = bytes([tuple_layer.NESTED_CODE])  # begins a tuple in a tuple, which a NUL ends
PACKED_ANY: Final = bytes([tuple_layer.NULL_CODE])
UNSTAMPED: Final = b"\xff" * STAMP_BYTES
GAP: Final = VERSIONSTAMP + UNSTAMPED
PIECE_BYTES: Final = 90_000  # a value may have 100,000

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(tuple[str, str, int, bytes | None, str | None, bytes]).decode


def packed(value: object) -> bytes:
    result: bytes = tuple_layer.pack((value,))
    return result


def packed_text(text: str) -> bytes:
    """As `packed`, for strings, of which an append has many: the tuple layer takes ten times as long."""
    return b"\x02" + text.encode().replace(b"\0", b"\0\xff") + b"\0"


def packed_bytes(value: bytes) -> bytes:
    """As `packed`, for bytes."""
    return b"\x01" + value.replace(b"\0", b"\0\xff") + b"\0"


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
        self._packed_partitions = [packed(p) for p in self.partitions]
        self.heads = [log + packed("h") for log in self.logs]
        self.tokens = [log + packed("o") for log in self.logs]
        self._types, self._tags, self._ids = self.below("t"), self.below("g"), self.below("i")
        self._records, self._nested_buckets = self.below("k"), self.below("c") + NESTED

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

    def type_in_partitions(self, type: str) -> list[bytes]:
        """The postings of a type in each partition."""
        postings = self._types + packed_text(type)
        return [postings + partition for partition in self._packed_partitions]

    def tag(self, tag: str, type: str | None = ANY) -> bytes:
        """The postings of a tag, with that type or with any."""
        return self._tags + packed_text(tag) + (PACKED_ANY if type is ANY else packed_text(type))

    def id(self, id: UUID) -> bytes:
        return self._ids + packed(id)

    def record(self, key: str) -> bytes:
        return self._records + packed_text(key)

    def record_at(self, key: bytes, value: bytes) -> Record:
        """The record that is stored at this key of the database."""
        (name,) = tuple_layer.unpack(key, len(self._records))
        return Record(name, value[REVISION_BYTES:], int.from_bytes(value[:REVISION_BYTES], "big"))

    def token(self, partition: int, token: bytes) -> bytes:
        return self.tokens[partition] + packed_bytes(token)

    def bucket(self, bucket: Bucket) -> bytes:
        """The conflict key of a bucket."""
        tags, type = bucket
        parts = b"".join(map(packed_text, tags)) + b"\0"
        return self._nested_buckets + parts + (PACKED_ANY if type is ANY else packed_text(type))

    def index(self, event: Classified, partition: int) -> tuple[list[tuple[bytes, bytes]], list[bytes]]:
        """What an append writes for an event besides the event: its postings, and its conflict keys.

        The postings are prefixes with values. The conflict keys are those of `write_buckets(event, up_to=SUBSET_TAGS)`.
        There are many of both, of few strings: each is packed once.
        """
        tags = [packed_text(tag) for tag in sorted(event.tags)]
        type, name = packed_text(event.type), event.type.encode()
        postings = [(self._types + type + self._packed_partitions[partition], b"")]
        for tag in tags:
            postings.append((self._tags + tag + PACKED_ANY, name))
            postings.append((self._tags + tag + type, b""))
        conflict_keys: list[bytes] = []
        for size in range(SUBSET_TAGS + 1):
            for chosen in combinations(tags, size):
                bucket = self._nested_buckets + b"".join(chosen) + b"\0"
                conflict_keys += (bucket + type, bucket + PACKED_ANY)
        return postings, conflict_keys


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
    return prefix + GAP + place + suffix + (len(prefix) + 1).to_bytes(4, "little")


def stamped_value(place: bytes) -> bytes:
    """The template of which `set_versionstamped_value` makes the position of the event at that place."""
    return UNSTAMPED + place + bytes(4)


def position_of_value(value: bytes | None) -> int:
    return 0 if value is None else int.from_bytes(value, "big")


def value_of_record(record: Record) -> bytes:
    return record.revision.to_bytes(REVISION_BYTES, "big") + record.value


def version_of(position: int) -> int:
    """The version of the commit that gave out the position."""
    return position >> 32


def last_position_at(version: int) -> int:
    """The highest position that a commit at the version can have given out."""
    return ((version + 1) << 32) - 1


def pieces_of(event: Event, recorded_at: int) -> list[bytes]:
    """The event as bytes, in pieces that fit into values.

    The first byte of the first piece says how many further ones there are, so that an event is known to be whole. Type,
    tags, time, id, metadata and data follow, as MessagePack.
    """
    id = None if event.id is None else event.id.bytes
    metadata = event.raw_metadata
    encoded = _encode((event.type, encode_tags(event.tags), recorded_at, id, metadata, event.data))
    further = len(encoded) // PIECE_BYTES
    assert further < 256
    encoded = bytes([further]) + encoded
    return [encoded[start : start + PIECE_BYTES] for start in range(0, len(encoded), PIECE_BYTES)]


def event_of(position: int, pieces: list[bytes]) -> SequencedEvent:
    if not pieces or not pieces[0] or pieces[0][0] != len(pieces) - 1:
        raise StoreCorrupt(f"the event at position {position} is not whole: {len(pieces)} pieces of it are there")
    try:
        type, tags, recorded_at, id, metadata, data = _decode(b"".join(pieces)[1:])
    except msgspec.MsgspecError as error:
        raise StoreCorrupt(f"the event at position {position} cannot be decoded: {error}") from error
    return SequencedEvent(position, type, tags, data, recorded_at, id, metadata)
