"""The columns of a lake's files, and fast conversions between columns and Python values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa

from ...model import RecordedAppend

# The same columns as those of the Spark source, so that other tools find the same names in the files.
SCHEMA: Final = pa.schema(
    [
        pa.field("position", pa.int64(), nullable=False),
        pa.field("type", pa.string(), nullable=False),
        pa.field("tags", pa.list_(pa.field("element", pa.string())), nullable=False),
        pa.field("data", pa.binary(), nullable=False),
        pa.field("recorded_at", pa.timestamp("us", "UTC"), nullable=False),
        pa.field("id", pa.string()),
        pa.field("metadata", pa.map_(pa.string(), pa.string()), nullable=False),
    ]
)

# Recorded appends: conditions in their stored form. Only engines with 64-bit positions record appends.
RECORDED: Final = pa.schema(
    [
        pa.field("first", pa.int64(), nullable=False),
        pa.field("last", pa.int64(), nullable=False),
        pa.field("conditions", pa.string(), nullable=False),
        pa.field("unless", pa.string()),
    ]
)


def appends_of(batch: pa.RecordBatch) -> Iterator[RecordedAppend]:
    return map(RecordedAppend, *(batch.column(name).to_pylist() for name in RECORDED.names))


def values(column: pa.Array) -> list[Any]:
    """The column as Python values: ten times as fast as `to_pylist`, which makes an Arrow scalar of each."""
    if pa.types.is_decimal(column.type):
        return [None if value is None else int(value) for value in column.to_pylist()]
    found: list[Any] = column.to_numpy(zero_copy_only=False).tolist()
    return found
