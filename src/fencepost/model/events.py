"""Events: `Event` is what a caller appends, `SequencedEvent` is what a store returns.

A program may read millions of events at once and use few fields of each. So a `SequencedEvent` keeps the stored form of
its tags, time, id and metadata, and decodes each when it is first accessed. tests/unit/test_model.py holds that an
event in stored form equals the decoded one, and that a field that cannot be decoded raises `StoreCorrupt`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

import msgspec

from ..errors import StoreCorrupt
from .checks import checked_data, checked_id, checked_metadata, checked_tags, checked_type
from .encodings import (
    NOT_DECODABLE,
    decode_metadata,
    decode_moment,
    decode_tags,
    encode_metadata,
    encode_moment,
    encode_tags,
)


@dataclass(frozen=True, slots=True, init=False)
class Event:
    """Something that happened, to be stored.

    >>> Event("WalletOpened", data=b'{"owner": "Ada"}', tags={"wallet:w1"}).tags
    frozenset({'wallet:w1'})
    """

    type: str
    data: bytes
    tags: frozenset[str]
    id: UUID | None
    metadata: Mapping[str, str] = field(hash=False)

    def __init__(
        self,
        type: str,
        *,
        data: bytes = b"",
        tags: Iterable[str] = frozenset(),
        id: UUID | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> None:
        put = object.__setattr__
        put(self, "type", checked_type(type, "type"))
        put(self, "data", checked_data(data))
        put(self, "tags", checked_tags(tags, "tags"))
        put(self, "id", checked_id(id))
        put(self, "metadata", checked_metadata(metadata) if metadata else {})


def event_of(type: str, data: bytes, tags: Iterable[str], metadata: Mapping[str, str] | None) -> Event:
    """Create an event without an id, whose type has been checked before. Faster than `Event`, for declared events."""
    event, put = object.__new__(Event), object.__setattr__
    put(event, "type", type)
    put(event, "data", checked_data(data))
    put(event, "tags", checked_tags(tags, "tags"))
    put(event, "id", None)
    put(event, "metadata", checked_metadata(metadata) if metadata else {})
    return event


class SequencedEvent(msgspec.Struct, eq=False, gc=False):
    """A stored event: the fields of `Event`, with its position and the time at which it was stored.

    An engine creates it from the columns that it stores, in this order. Each `raw_` field holds the stored form until
    the property of the same name is first accessed, and the decoded value from then on; an engine may pass either. Code
    that copies or compares many events can use the `raw_` fields to save the decoding. Others use the properties.
    """

    position: int
    type: str
    raw_tags: str | frozenset[str]  # stored as a JSON array
    data: bytes
    raw_recorded_at: int | datetime  # stored as microseconds since 1970, UTC
    raw_id: bytes | UUID | None = None  # stored as 16 bytes
    raw_metadata: str | Mapping[str, str] | None = None  # stored as a JSON object, or None if empty

    @property
    def tags(self) -> frozenset[str]:
        tags = self.raw_tags
        if isinstance(tags, str):
            try:
                tags = self.raw_tags = decode_tags(tags)
            except NOT_DECODABLE as error:
                raise self._corrupt("tags", error) from None
        return tags

    @property
    def recorded_at(self) -> datetime:
        moment = self.raw_recorded_at
        if isinstance(moment, int):
            try:
                moment = self.raw_recorded_at = decode_moment(moment)
            except NOT_DECODABLE as error:
                raise self._corrupt("recorded_at", error) from None
        return moment

    @property
    def id(self) -> UUID | None:
        id = self.raw_id
        if isinstance(id, bytes):
            try:
                id = self.raw_id = UUID(bytes=id)
            except NOT_DECODABLE as error:
                raise self._corrupt("id", error) from None
        return id

    @property
    def metadata(self) -> Mapping[str, str]:
        metadata = self.raw_metadata
        if not isinstance(metadata, Mapping):
            try:
                metadata = self.raw_metadata = decode_metadata(metadata)
            except NOT_DECODABLE as error:
                raise self._corrupt("metadata", error) from None
        return metadata

    @property
    def stored(self) -> tuple[int, str, str, bytes, int, bytes | None, str | None]:
        """All fields in stored form, encoded where they have been decoded."""
        tags, at, metadata = self.raw_tags, self.raw_recorded_at, self.raw_metadata
        return (
            self.position,
            self.type,
            tags if isinstance(tags, str) else encode_tags(tags),
            self.data,
            at if isinstance(at, int) else encode_moment(at),
            self.stored_id,
            metadata if metadata is None or isinstance(metadata, str) else encode_metadata(metadata),
        )

    @property
    def stored_id(self) -> bytes | None:
        """The id in stored form: 16 bytes, or None."""
        return self.raw_id.bytes if isinstance(self.raw_id, UUID) else self.raw_id

    @property
    def event(self) -> Event:
        """The event that was appended, without position and time."""
        return Event(self.type, data=self.data, tags=self.tags, id=self.id, metadata=self.metadata)

    def _corrupt(self, field: str, error: Exception) -> StoreCorrupt:
        return StoreCorrupt(f"the {field} of the event at position {self.position} cannot be decoded: {error}")

    def _values(self) -> tuple[object, ...]:
        return self.position, self.type, self.tags, self.data, self.recorded_at, self.id, self.metadata

    def __eq__(self, other: object) -> bool:
        return self._values() == other._values() if isinstance(other, SequencedEvent) else NotImplemented

    def __ne__(self, other: object) -> bool:  # msgspec.Struct defines its own, which does not use `__eq__`
        return not self == other

    def __hash__(self) -> int:
        return hash((self.position, self.type, self.data))

    def __repr__(self) -> str:
        return (
            f"SequencedEvent(position={self.position}, type={self.type!r}, tags={sorted(self.tags)}, "
            f"data={self.data!r}, recorded_at={self.recorded_at.isoformat()}, id={self.id}, metadata={self.metadata})"
        )
