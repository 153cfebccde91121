"""Events: `Event` is what a caller appends, `SequencedEvent` is what a store returns.

A program may read millions of events at once and use few fields of each. So a `SequencedEvent` keeps the stored form of
its tags, time, id and metadata, and decodes each when it is first accessed. tests/unit/test_model.py checks that an
event in stored form equals the decoded one, and that a field that cannot be decoded raises `StoreCorrupt`.

Neither kind of event can be changed. Metadata is kept as JSON text, and each access of `metadata` decodes a new dict.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import final
from uuid import UUID

import msgspec
from msgspec.structs import force_setattr

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


@final
@dataclass(frozen=True, slots=True, init=False, repr=False)
class Event:
    """Something that happened, to be stored.

    >>> Event("WalletOpened", data=b'{"owner": "Ada"}', tags={"wallet:w1"}).tags
    frozenset({'wallet:w1'})
    """

    type: str
    data: bytes
    tags: frozenset[str]
    id: UUID | None
    raw_metadata: str | None
    """The metadata in stored form: a JSON object, or None if it is empty."""

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
        put(self, "raw_metadata", checked_metadata(metadata))

    @property
    def metadata(self) -> dict[str, str]:
        """A new dict on each access; changing it does not change the event."""
        return decode_metadata(self.raw_metadata)

    def __repr__(self) -> str:
        return (
            f"Event(type={self.type!r}, data={self.data!r}, tags={sorted(self.tags)}, id={self.id}, "
            f"metadata={self.metadata})"
        )


def event_of(type: str, data: bytes, tags: Iterable[str], metadata: Mapping[str, str] | None) -> Event:
    """Create an event without an id, whose type has been checked before. Faster than `Event`, for declared events."""
    event, put = object.__new__(Event), object.__setattr__
    put(event, "type", type)
    put(event, "data", checked_data(data))
    put(event, "tags", checked_tags(tags, "tags"))
    put(event, "id", None)
    put(event, "raw_metadata", checked_metadata(metadata))
    return event


class SequencedEvent(msgspec.Struct, frozen=True, eq=False, gc=False):
    """A stored event: the fields of `Event`, with its position and the time at which it was stored.

    An engine creates it from the columns that it stores, in this order. Each `raw_` field holds the stored form until
    the property of the same name is first accessed, and the decoded value from then on, except for metadata; an engine
    may pass either. Code that copies or compares many events can use the `raw_` fields to save the decoding. Others use
    the properties.
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
                tags = decode_tags(tags)
                force_setattr(self, "raw_tags", tags)
            except NOT_DECODABLE as error:
                raise self._corrupt("tags", error) from None
        return tags

    @property
    def recorded_at(self) -> datetime:
        moment = self.raw_recorded_at
        if isinstance(moment, int):
            try:
                moment = decode_moment(moment)
                force_setattr(self, "raw_recorded_at", moment)
            except NOT_DECODABLE as error:
                raise self._corrupt("recorded_at", error) from None
        return moment

    @property
    def id(self) -> UUID | None:
        id = self.raw_id
        if isinstance(id, bytes):
            try:
                id = UUID(bytes=id)
                force_setattr(self, "raw_id", id)
            except NOT_DECODABLE as error:
                raise self._corrupt("id", error) from None
        return id

    @property
    def metadata(self) -> dict[str, str]:
        """A new dict on each access; changing it does not change the event."""
        metadata = self.raw_metadata
        try:
            return decode_metadata(metadata) if metadata is None or isinstance(metadata, str) else dict(metadata)
        except NOT_DECODABLE as error:
            raise self._corrupt("metadata", error) from None

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
