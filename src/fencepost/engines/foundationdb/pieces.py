"""An event as bytes, in pieces that fit into FoundationDB's values.

The first byte of the first piece says how many further ones there are, so that an event is
known to be whole. Type, tags, time, id, metadata and data follow, as MessagePack.
"""

from __future__ import annotations

from typing import Final

import msgspec

from ...errors import StoreCorrupt
from ...model import Event, SequencedEvent, encode_metadata, encode_tags

PIECE_BYTES: Final = 90_000  # a value may have 100,000

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(tuple[str, str, int, bytes | None, str | None, bytes]).decode


def pieces_of(event: Event, recorded_at: int) -> list[bytes]:
    id = None if event.id is None else event.id.bytes
    metadata = encode_metadata(event.metadata)
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
