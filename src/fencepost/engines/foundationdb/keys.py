"""Where everything is, and what a position is.

    e/<versionstamp>         the event, in pieces: the first one here, the others at e/<versionstamp>/<n>
    t/<type>/<versionstamp>  nothing: the event has that type
    g/<tag>/<versionstamp>   the event's type: the event has that tag
    i/<id>                   the position of the event with that id
    k/<name>                 a checkpoint
    h                        the position of the last event; every append writes it, watches wait for it
    o/<token>                an append that was stored, until its caller has been told
    f                        the format
    c/<bucket>               never stored: conflict keys, one for each bucket of the kernel

All keys are tuples of FoundationDB's tuple layer below ("fencepost", namespace), so that no two
strings can collide. A position is the 96 bits of a tuple layer's versionstamp as a number: 64 of
the commit version, 16 of the order in its batch, 16 of the event's place in its append. Numbers
order as the bytes do, which is the order of commits.

Buckets of up to `SUBSET_TAGS` tags are conflict keys. When no item names more, that is exact
(theorem `exact_upto`); one that names more reads the bucket of its first ones, which every event
that it matches writes too, so that nothing is missed and at worst a transaction tries once more.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final
from uuid import UUID

import fdb.tuple as tuple_layer

from ...buckets import ANY, Bucket, Classified, read_targets, write_buckets
from ...errors import InvalidInput
from ...model import MAX_POSITION, Query

FORMAT: Final = b"fencepost 1"
SUBSET_TAGS: Final = 2  # part of the format: who writes and who reads must agree on it
MAX_NAMESPACE_BYTES: Final = 512
STAMP_BYTES: Final = 10
POSITION_BYTES: Final = 12
VERSIONSTAMP: Final = bytes([tuple_layer.VERSIONSTAMP_CODE])
UNSTAMPED: Final = b"\xff" * STAMP_BYTES


class Keys:
    """The keys of one namespace."""

    def __init__(self, namespace: str) -> None:
        if not namespace or "\0" in namespace or len(namespace.encode()) > MAX_NAMESPACE_BYTES:
            raise InvalidInput(
                "namespace", f"1 to {MAX_NAMESPACE_BYTES} bytes without NUL are needed: {namespace!r:.80}"
            )
        self.prefix: bytes = tuple_layer.pack(("fencepost", namespace))
        self.log = self._below("e")
        self.head = self._below("h")
        self.format = self._below("f")
        self._types, self._tags, self._ids = self._below("t"), self._below("g"), self._below("i")
        self._checkpoints, self._tokens, self._buckets = self._below("k"), self._below("o"), self._below("c")

    def _below(self, name: str) -> bytes:
        return self.prefix + packed(name)

    def type(self, type: str) -> bytes:
        """The postings of a type."""
        return self._types + packed(type)

    def tag(self, tag: str) -> bytes:
        """The postings of a tag."""
        return self._tags + packed(tag)

    def id(self, id: UUID) -> bytes:
        return self._ids + packed(id)

    def checkpoint(self, name: str) -> bytes:
        return self._checkpoints + packed(name)

    def token(self, token: bytes) -> bytes:
        return self._tokens + packed(token)

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

    def read_buckets(self, query: Query) -> Iterator[bytes]:
        """The conflict keys that a condition on the query reads."""
        for tags, type in read_targets(query):
            yield self.bucket((tags[:SUBSET_TAGS], type))


def packed(value: object) -> bytes:
    result: bytes = tuple_layer.pack((value,))
    return result


NESTED: Final = bytes([tuple_layer.NESTED_CODE])


def at(prefix: bytes, position: int) -> bytes:
    """The key below the prefix for a position; for one beyond the last, the end of them all."""
    if position > MAX_POSITION:
        return prefix + VERSIONSTAMP + b"\xff" * (POSITION_BYTES + 1)
    return prefix + VERSIONSTAMP + position.to_bytes(POSITION_BYTES, "big")


def position_in(key: bytes, prefix: bytes) -> int:
    """The position that a key below the prefix is for."""
    start = len(prefix) + 1
    return int.from_bytes(key[start : start + POSITION_BYTES], "big")


def stamped_key(prefix: bytes, index: int, suffix: bytes = b"") -> bytes:
    """What `set_versionstamped_key` makes the key of the append's event number `index` of."""
    offset = (len(prefix) + 1).to_bytes(4, "little")
    return prefix + VERSIONSTAMP + UNSTAMPED + index.to_bytes(2, "big") + suffix + offset


def stamped_value(index: int) -> bytes:
    """What `set_versionstamped_value` makes the position of the append's event number `index` of."""
    return UNSTAMPED + index.to_bytes(2, "big") + bytes(4)


def position_of_value(value: bytes | None) -> int:
    return 0 if value is None else int.from_bytes(value, "big")


def value_of_position(position: int) -> bytes:
    return position.to_bytes(POSITION_BYTES, "big")


def last_position_at(version: int) -> int:
    """The highest position that a commit at the version can have given out."""
    return ((version + 1) << 32) - 1
