"""Stored events as the bytes of UmaDB's messages, written without message objects.

A reading of a million events spends most of its time on building one protobuf object for each event and each string.
This module writes the same bytes from the stored columns: a field is a tag byte, a length as a varint, and the
content. `ReadResponse` and `SubscribeResponse` hold their events in the same field, so both begin with `events_bytes`.

Invariant: the bytes are those that protobuf writes for the message of `mapping.sequenced_message`.
tests/server/test_umadb_encoding.py compares both for generated events, byte for byte.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from ...model import SequencedEvent
from ...model.encodings import NOT_DECODABLE
from .mapping import PRIVATE, checked_position, shown_metadata

# The tag byte of a field is its number, shifted by 3 bits, and its kind: 0 for a number, 2 for bytes with a length.
EVENTS: Final = b"\x0a"  # ReadResponse.events and SubscribeResponse.events
HEAD: Final = b"\x10"  # ReadResponse.head
POSITION: Final = b"\x08"  # SequencedEvent.position, AppendResponse.position, HeadResponse.position
EVENT: Final = b"\x12"  # SequencedEvent.event
TRACKING: Final = b"\x1a"  # SequencedEvent.tracking_info
TYPE: Final = b"\x0a"  # Event.event_type
TAG: Final = b"\x12"  # Event.tags
DATA: Final = b"\x1a"  # Event.data
UUID_TEXT: Final = b"\x22"  # Event.uuid
METADATA: Final = b"\x2a"  # Event.metadata
FIRST, SECOND = b"\x0a", b"\x12"  # MetadataEntry.key and value; TrackingInfo.source is FIRST
TRACKED: Final = b"\x10"  # TrackingInfo.position

MOST_TYPES: Final = 10_000  # that are remembered
SHORT: Final = 128  # lengths below this take one byte

_decode_tags: Final = msgspec.json.Decoder(list[str]).decode


def varint(number: int) -> bytes:
    """The number in groups of 7 bits, the lowest first; the top bit of a byte says that another one follows.

    >>> varint(300).hex()
    'ac02'
    """
    if number < SHORT:
        return _ONE_BYTE[number]
    if number < len(_SMALL):
        return _SMALL[number]
    groups = bytearray()
    while number >= SHORT:
        groups.append(number & 0x7F | 0x80)
        number >>= 7
    groups.append(number)
    return bytes(groups)


_ONE_BYTE: Final = [bytes((number,)) for number in range(SHORT)]
_SMALL: Final[list[bytes]] = []  # of 14 bits: nearly all lengths
_SMALL.extend([varint(number) for number in range(1 << 14)])
_LOWER: Final = [bytes((number & 0x7F | 0x80, number >> 7 | 0x80)) for number in range(1 << 14)]  # of a larger number
_SHORT_TAG: Final = [f"{TAG.decode()}{chr(length)}" for length in range(SHORT)]
_types: dict[str, bytes] = {}


def field_bytes(tag: bytes, content: bytes) -> bytes:
    """A field of text, of bytes or of a message."""
    return b"%b%b%b" % (tag, varint(len(content)), content)


def events_bytes(events: Iterable[SequencedEvent]) -> bytes:
    """The events as the repeated field of a response. `StoreCorrupt` if a field of one cannot be decoded."""
    parts: list[bytes] = []
    upper, upper_bits = b"", -1  # the upper part of a position, which neighbours share
    small, lower, short_tag, known, join = _SMALL, _LOWER, _SHORT_TAG, _types, "".join
    for event in events:
        type, tags, data, position = event.type, event.raw_tags, event.data, event.position
        size = len(data)
        # The common event: short tags in ASCII without escapes, data below 8 KiB, no id, no metadata.
        if (
            event.raw_id is not None
            or event.raw_metadata
            or size >= 8_192
            or not isinstance(tags, str)
            or len(tags) >= SHORT
            or not tags.isascii()
            or "\\" in tags
            or len(type) >= SHORT
        ):
            parts.append(_event_bytes(event))
            continue
        try:
            names = _decode_tags(tags)
        except NOT_DECODABLE:
            parts.append(_event_bytes(event))  # raises the error that names the event
            continue
        type_field = known.get(type) or _type_bytes(type)
        tags_field = join([short_tag[len(name)] + name for name in names]).encode("ascii")
        if position >> 14 != upper_bits:
            upper_bits = checked_position(position) >> 14
            upper = varint(upper_bits) if upper_bits else b""
        lowest = lower[position & 0x3FFF] if upper_bits else small[position]
        data_length = small[size] if size else b""
        data_tag = DATA if size else b""
        length = len(type_field) + len(tags_field) + len(data_tag) + len(data_length) + size
        event_length = small[length]
        outer = small[length + len(event_length) + len(lowest) + len(upper) + 2]  # and 2 tag bytes
        parts += (
            EVENTS, outer, POSITION, lowest, upper, EVENT, event_length,
            type_field, tags_field, data_tag, data_length, data,
        )  # fmt: skip
    return b"".join(parts)


def read_response_bytes(events: Iterable[SequencedEvent], head: int | None) -> bytes:
    """A ReadResponse. A head of 0 or None is left out."""
    return events_bytes(events) + (HEAD + varint(checked_position(head)) if head else b"")


def position_bytes(position: int | None) -> bytes:
    """An AppendResponse, HeadResponse or TrackingResponse. Position 0 or None is left out."""
    return POSITION + varint(checked_position(position)) if position else b""


def _event_bytes(event: SequencedEvent) -> bytes:
    """One event with everything that it may have."""
    metadata = event.raw_metadata
    uuid = "" if event.raw_id is None else str(event.id)
    shown: Iterable[tuple[str, str]] = ()
    tracking = None
    if metadata and (not isinstance(metadata, str) or PRIVATE in metadata or "\\" in metadata):
        shown, uuid, tracking = shown_metadata(event.metadata, uuid)
    elif metadata:
        shown = sorted(event.metadata.items())
    fields = [
        _types.get(event.type) or _type_bytes(event.type),
        *[field_bytes(TAG, tag.encode()) for tag in sorted(event.tags)],
        field_bytes(DATA, event.data) if event.data else b"",
        field_bytes(UUID_TEXT, uuid.encode()) if uuid else b"",
        *[field_bytes(METADATA, _entry_bytes(name, value)) for name, value in shown],
    ]
    whole = POSITION + varint(checked_position(event.position)) + field_bytes(EVENT, b"".join(fields))
    if tracking is not None:
        whole += field_bytes(TRACKING, _tracking_bytes(*tracking))
    return field_bytes(EVENTS, whole)


def _type_bytes(type: str) -> bytes:
    if len(_types) >= MOST_TYPES:
        _types.clear()
    made = _types[type] = field_bytes(TYPE, type.encode())
    return made


def _entry_bytes(name: str, value: str) -> bytes:
    return (field_bytes(FIRST, name.encode()) if name else b"") + (
        field_bytes(SECOND, value.encode()) if value else b""
    )


def _tracking_bytes(source: str, position: int) -> bytes:
    return (field_bytes(FIRST, source.encode()) if source else b"") + (TRACKED + varint(position) if position else b"")
