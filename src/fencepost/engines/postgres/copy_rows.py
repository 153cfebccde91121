"""Events as rows of a binary COPY, written as bytes.

psycopg converts each value by an object of its own, which takes several times as long. The format is described in
PostgreSQL's manual (COPY, Binary Format): a row is the number of its fields, and each field is its length and its
content, in the form in which PostgreSQL sends a value of the type. -1 stands for NULL. tests/postgres/test_copy_rows.py
compares what is stored this way with what psycopg stores, for generated events.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from struct import Struct
from typing import Final

from ...model import Event, SequencedEvent
from ...model.encodings import encode_metadata
from .connections import POSTGRES_EPOCH_US

COLUMNS: Final = ("position", "recorded_at", "id", "type", "tags", "data", "metadata")
HEADER: Final = b"PGCOPY\n\xff\r\n\0" + bytes(8)  # the signature, no flags, no extension
TRAILER: Final = b"\xff\xff"
BLOCK_BYTES: Final = 262_144  # rows are sent together up to this size
MOST_TYPES: Final = 10_000  # that are remembered

_length: Final = Struct(">i")
_begin: Final = Struct(">hiqiq")  # the number of fields, the position and the time, each with its length
_TEXT_OID: Final = 25
# An array has a head: the number of dimensions, whether there are NULLs, the type, and of each dimension the size and
# the first index. An empty array has no dimension.
_array: Final = Struct(">iiiii")
_EMPTY_ARRAY: Final = _length.pack(12) + Struct(">iii").pack(0, 0, _TEXT_OID)
_NULL: Final = _length.pack(-1)
_ID_LENGTH: Final = _length.pack(16)


def copy_blocks(events: Iterable[Event | SequencedEvent], head: int, now_us: int) -> Iterator[tuple[bytes, int]]:
    """The events in blocks for COPY, at the positions above `head`, and the last position in each block.

    Events of another store keep the time at which they were recorded; others get `now_us`.
    """
    types: dict[str, bytes] = {}
    parts, size, position = [HEADER], 0, head
    for position, event in enumerate(events, start=head + 1):
        if isinstance(event, SequencedEvent):
            _, type, _, data, at, id, metadata = event.stored
        else:
            type, data, at = event.type, event.data, now_us
            id, metadata = None if event.id is None else event.id.bytes, encode_metadata(event.metadata)
        type_field = types.get(type)
        if type_field is None:
            if len(types) >= MOST_TYPES:
                types.clear()
            type_field = types[type] = _field(type.encode())
        parts += (
            _begin.pack(len(COLUMNS), 8, position, 8, at - POSTGRES_EPOCH_US),
            _NULL if id is None else _ID_LENGTH + id,
            type_field,
            _tags_field(sorted(event.tags)),
            _length.pack(len(data)),
            data,
            _field(metadata.encode()) if metadata else _NULL,
        )
        size += len(data) + 100
        if size >= BLOCK_BYTES:
            yield b"".join(parts), position
            parts, size = [], 0
    parts.append(TRAILER)
    yield b"".join(parts), position


def _field(content: bytes) -> bytes:
    return _length.pack(len(content)) + content


def _tags_field(tags: list[str]) -> bytes:
    if not tags:
        return _EMPTY_ARRAY
    elements = b"".join([_length.pack(len(tag)) + tag for tag in map(str.encode, tags)])
    return b"".join((_length.pack(20 + len(elements)), _array.pack(1, 0, _TEXT_OID, len(tags), 1), elements))
