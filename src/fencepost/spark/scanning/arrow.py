"""From the stored form of columns to the form that Spark takes, a column at a time.

Stores keep tags and metadata as JSON, times as microseconds and ids as 16 bytes; Spark takes lists, maps, timestamps
and text. Millions of rows pass through here, so no row becomes a Python object unless a backslash in its tags or
metadata requires it. tests/spark/test_arrow.py compares the result with `SequencedEvent`.
"""

from __future__ import annotations

from binascii import hexlify
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ... import SequencedEvent
from ...engine import encode_moment
from ...errors import InvalidInput
from ..lake_engine.columns import values as values

LONGEST: Final = 2**63 - 1  # a position that a long holds

_decode_strings = msgspec.json.Decoder(list[str]).decode
_decode_mapping = msgspec.json.Decoder(dict[str, str]).decode

# An id's 32 digits, and its text: the same digits with dashes between them. Copied field by field, all ids at once.
_DIGITS: Final = np.dtype([("a", "u8"), ("b", "u4"), ("c", "u4"), ("d", "u4"), ("e", "u8"), ("f", "u4")])
_DASHED: Final = np.dtype(
    [
        *(("a", "u8"), ("a-", "u1"), ("b", "u4"), ("b-", "u1"), ("c", "u4"), ("c-", "u1")),
        *(("d", "u4"), ("d-", "u1"), ("e", "u8"), ("f", "u4")),
    ]
)


def needed(schema: pa.Schema) -> list[str]:
    """The columns to read for this schema: also those that name an event whose data cannot be decoded."""
    names = list(schema.names)
    if "data" in names and not pa.types.is_binary(schema.field("data").type):
        names += [name for name in ("position", "type") if name not in names]
    return names


def to_spark(stored: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The columns that the schema names, in its order and as its types."""
    arrays = [_CONVERSIONS[field.name](stored.column(field.name), field.type, stored) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def from_events(events: Sequence[SequencedEvent], columns: Sequence[str]) -> pa.RecordBatch:
    """Events of a reading, in the stored form."""
    made: dict[str, pa.Array] = {name: _GATHERED[name](events) for name in columns}
    return pa.RecordBatch.from_arrays(list(made.values()), names=list(made))


def _position(column: pa.Array, type: pa.DataType, stored: pa.RecordBatch) -> pa.Array:
    if column.type == type:
        return column
    if pa.types.is_decimal(type):
        return column.cast(type) if pa.types.is_decimal(column.type) else column.cast(pa.decimal128(19, 0)).cast(type)
    try:
        return column.cast(type)
    except pa.ArrowInvalid:
        raise InvalidInput(
            "column 'position'", "a position is wider than a long; read it as decimal(38,0) with .schema(...)"
        ) from None


def _text(column: pa.Array, type: pa.DataType, stored: pa.RecordBatch) -> pa.Array:
    return column if column.type == type else column.cast(type)


def _tags(column: pa.Array, type: pa.DataType, stored: pa.RecordBatch) -> pa.Array:
    if not pa.types.is_string(column.type):
        return pa.ListArray.from_arrays(*_list_parts(column), type=type)
    if _has(column, b"\\"):
        return pa.array([_decode_strings(text) for text in column.to_pylist()], type=type)
    # Without a backslash no quote is escaped, so each '","' is a border between two tags.
    inside = pc.binary_slice(column.cast(pa.binary()), 2, -2).cast(pa.string())
    offsets, values = _list_parts(pc.split_pattern(inside, '","'))
    tagged = pa.ListArray.from_arrays(offsets, values, type=type)
    untagged = pc.equal(column, "[]")
    if pc.any(untagged).as_py():  # splitting nothing gives one empty string
        tagged = pc.if_else(untagged, pa.scalar([], type=type), tagged)
    return tagged


def _has(column: pa.StringArray, *signs: bytes) -> bool:
    """Whether any of these byte strings occurs in the texts."""
    buffer = column.buffers()[2]  # it may hold rows outside the slice: then the slow path is taken, which is also right
    content = b"" if buffer is None else buffer.to_pybytes()
    return any(sign in content for sign in signs)


def _list_parts(column: pa.ListArray) -> tuple[pa.Array, pa.Array]:
    """Offsets from 0 and the values between them, also of a slice."""
    first = column.offsets[0].as_py() if len(column) else 0
    return (pc.subtract(column.offsets, first) if first else column.offsets), column.flatten()


def _data(column: pa.Array, type: pa.DataType, stored: pa.RecordBatch) -> pa.Array:
    if pa.types.is_binary(type):
        return column
    if pa.types.is_string(type):
        try:
            return column.cast(type)
        except pa.ArrowInvalid:
            _decode_all(column, stored, bytes.decode, "UTF-8")
            raise
    return _variants(column, type, stored)


def _variants(column: pa.Array, type: pa.DataType, stored: pa.RecordBatch) -> pa.Array:
    from pyspark.sql.types import VariantVal

    parsed = _decode_all(column, stored, lambda data: VariantVal.parseJson(data.decode()), "JSON")
    values = pa.array([variant.value for variant in parsed], type=pa.binary())
    metadata = pa.array([variant.metadata for variant in parsed], type=pa.binary())
    return pa.StructArray.from_arrays([values, metadata], fields=list(type))


def _decode_all(column: pa.Array, stored: pa.RecordBatch, decode: Callable[[bytes], Any], form: str) -> list[Any]:
    decoded = []
    for index, data in enumerate(column.to_pylist()):
        try:
            decoded.append(decode(data))
        except Exception as error:
            position, kind = stored.column("position")[index], stored.column("type")[index]
            raise InvalidInput(
                "column 'data'",
                f"the event at position {position}, of type {kind.as_py()!r}, is not {form} ({error}); "
                "read it with .option('data', 'binary')",
            ) from None
    return decoded


def _time(column: pa.Array, type: pa.DataType, stored: pa.RecordBatch) -> pa.Array:
    return column.view(type) if pa.types.is_int64(column.type) else column.cast(type)


def _id(column: pa.Array, type: pa.DataType, stored: pa.RecordBatch) -> pa.Array:
    """Ids as text, all of them at once."""
    if pa.types.is_string(column.type):
        return column
    if isinstance(column, pa.ExtensionArray):  # PostgreSQL's uuid
        column = column.storage
    if not pa.types.is_fixed_size_binary(column.type):
        column = pc.if_else(pc.equal(pc.binary_length(column), 16), column, pa.scalar(None, column.type))
        column = column.cast(pa.binary(16))
    if column.null_count == len(column):
        return pa.nulls(len(column), type)
    filled = pc.fill_null(column, b"\0" * 16) if column.null_count else column
    content = memoryview(filled.buffers()[1])[16 * filled.offset : 16 * (filled.offset + len(filled))]
    digits = np.frombuffer(hexlify(content), dtype=_DIGITS)
    text = np.full(len(filled) * _DASHED.itemsize, ord("-"), dtype=np.uint8)
    for name in _DIGITS.fields or ():
        text.view(_DASHED)[name] = digits[name]
    offsets = np.arange(0, len(text) + 1, _DASHED.itemsize, dtype=np.int32)
    ids = pa.StringArray.from_buffers(len(filled), pa.py_buffer(offsets), pa.py_buffer(text))
    return pc.if_else(pc.is_null(column), pa.scalar(None, type), ids) if column.null_count else ids


def _metadata(column: pa.Array, type: pa.DataType, stored: pa.RecordBatch) -> pa.Array:
    """An event without metadata has an empty map, never a null."""
    if pa.types.is_map(column.type):
        return pc.fill_null(column, []).cast(type) if column.null_count else column.cast(type)
    filled = np.flatnonzero(np.asarray(pc.fill_null(pc.binary_length(column), 0)))
    counts = np.zeros(len(column) + 1, dtype=np.int32)
    sizes, names, values = _pairs(column.take(pa.array(filled)))
    counts[filled + 1] = sizes
    return pa.MapArray.from_arrays(pa.array(np.cumsum(counts, dtype=np.int32)), names, values, type=type)


def _pairs(column: pa.StringArray) -> tuple[np.ndarray[Any, Any], pa.Array, pa.Array]:
    """How many names each of the JSON objects has; the names of all of them; the values."""
    # As with tags, all quotes are borders, if no writer has put spaces between them.
    if not _has(column, b"\\", b'": "'):
        inside = pc.binary_slice(column.cast(pa.binary()), 2, -2).cast(pa.string())
        objects = pc.split_pattern(inside, '","')
        parts = pc.split_pattern(objects.flatten(), '":"').flatten()
        sizes = np.asarray(pc.list_value_length(objects))
        if len(parts) == 2 * sizes.sum():
            names = np.arange(0, len(parts), 2)
            return sizes, parts.take(pa.array(names)), parts.take(pa.array(names + 1))
    mappings = [_decode_mapping(text) for text in column.to_pylist()]
    sizes = np.fromiter(map(len, mappings), dtype=np.int32, count=len(mappings))
    pairs = [pair for mapping in mappings for pair in mapping.items()]
    return sizes, *(pa.array([pair[place] for pair in pairs], pa.string()) for place in (0, 1))


_CONVERSIONS: Final[dict[str, Callable[[pa.Array, pa.DataType, pa.RecordBatch], pa.Array]]] = {
    "position": _position,
    "type": _text,
    "tags": _tags,
    "data": _data,
    "recorded_at": _time,
    "id": _id,
    "metadata": _metadata,
}


def _positions_of(events: Sequence[SequencedEvent]) -> pa.Array:
    positions = [event.position for event in events]
    wide = any(position > LONGEST for position in positions)
    return pa.array(positions, type=pa.decimal128(38, 0) if wide else pa.int64())


def _tags_of(events: Sequence[SequencedEvent]) -> pa.Array:
    stored = [event.raw_tags for event in events]
    if all(isinstance(tags, str) for tags in stored):
        return pa.array(stored, type=pa.string())
    return pa.array([sorted(event.tags) for event in events], type=pa.list_(pa.string()))


def _times_of(events: Sequence[SequencedEvent]) -> pa.Array:
    stored = [event.raw_recorded_at for event in events]
    return pa.array([at if isinstance(at, int) else encode_moment(at) for at in stored], type=pa.int64())


def _ids_of(events: Sequence[SequencedEvent]) -> pa.Array:
    stored = [event.raw_id for event in events]
    return pa.array([id if id is None or isinstance(id, bytes) else id.bytes for id in stored], type=pa.binary(16))


def _metadata_of(events: Sequence[SequencedEvent]) -> pa.Array:
    stored = [event.raw_metadata for event in events]
    if any(isinstance(metadata, Mapping) for metadata in stored):
        return pa.array([list(event.metadata.items()) for event in events], type=pa.map_(pa.string(), pa.string()))
    return pa.array(stored, type=pa.string())


_GATHERED: Final[dict[str, Callable[[Sequence[SequencedEvent]], pa.Array]]] = {
    "position": _positions_of,
    "type": lambda events: pa.array([event.type for event in events], type=pa.string()),
    "tags": _tags_of,
    "data": lambda events: pa.array([event.data for event in events], type=pa.binary()),
    "recorded_at": _times_of,
    "id": _ids_of,
    "metadata": _metadata_of,
}
