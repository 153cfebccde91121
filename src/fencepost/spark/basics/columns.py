"""The columns of an event and their types.

Spark does not tell a Python source which columns a query uses, so a source that offers seven columns reads seven. A
schema that the user gives with `.schema(...)` does reach the source: then only its columns are read. Spark does not
check that schema; `check_narrowed` refuses an unknown name or a wrong type.

A position is a long where 64 bits hold it, and a decimal(38,0) on FoundationDB, whose positions have 96 bits. Both
sort and compare as positions do. `position_type` is the one place that decides it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DecimalType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
    VariantType,
)

from ...engine import Address
from ...errors import InvalidInput
from .options import Options

WIDE: Final = DecimalType(38, 0)

# The first type of each column is the default.
TYPES: Final[dict[str, tuple[DataType, ...]]] = {
    "position": (LongType(), WIDE),
    "type": (StringType(),),
    "tags": (ArrayType(StringType()),),
    "data": (BinaryType(), StringType(), VariantType()),
    "recorded_at": (TimestampType(),),
    "id": (StringType(),),
    "metadata": (MapType(StringType(), StringType()),),
}

_DATA: Final[dict[str, DataType]] = {"binary": BinaryType(), "string": StringType(), "variant": VariantType()}


def position_type(address: Address) -> DataType:
    """The type of the column `position` for that store's events."""
    return WIDE if address.kind.has_wide_positions else LongType()


def position_column(address: Address) -> str:
    """The column `position` as it is written in a schema."""
    return f"position {position_type(address).simpleString()}"


def range_columns(address: Address) -> str:
    """The schema of a stream whose rows are the ranges of its batches."""
    return f"after {position_type(address).simpleString()}, {position_column(address)}"


def full_schema(options: Options) -> StructType:
    """All columns of the store's events."""
    chosen = {name: types[0] for name, types in TYPES.items()}
    chosen |= {"position": position_type(options.store), "data": _DATA[options.data or "binary"]}
    return StructType([StructField(name, type) for name, type in chosen.items()])


def arrow_schema(names: Iterable[str], position: DataType) -> pa.Schema:
    """These columns, each with its default type, in Arrow. `position` is the type of the column of that name."""
    fields = [StructField(name, position if name == "position" else TYPES[name][0]) for name in names]
    return to_arrow_schema(StructType(fields), timezone="UTC")


def tag_values(name: str) -> Column:
    """The values of an event's tags with that name, as an array."""
    start = f"{name}:"
    own = F.filter("tags", lambda tag: F.startswith(tag, F.lit(start)))
    return F.transform(own, lambda tag: F.substring(tag, len(start) + 1, 2**31 - 1))


def check_narrowed(schema: StructType, options: Options) -> None:
    """Refuse a schema with a column that events do not have."""
    if options.batch_ends and schema.names not in (["position"], ["after", "position"]):
        raise InvalidInput(
            "option 'batchEnds'",
            f"the schema must be {position_column(options.store)!r} alone, or {range_columns(options.store)!r}",
        )
    for field in schema.fields:
        types = TYPES.get("position" if options.batch_ends else field.name)
        if types is None:
            raise InvalidInput(f"column {field.name!r}", f"events have no such column; they have {', '.join(TYPES)}")
        given, known = field.dataType.simpleString(), [type.simpleString() for type in types]
        if given not in known:  # nullable or not: no value of an event is null
            raise InvalidInput(f"column {field.name!r}", f"it is {' or '.join(known)}, not {given}")
        if field.name == "data" and options.data is not None and field.dataType != _DATA[options.data]:
            raise InvalidInput(
                "column 'data'",
                f"the schema says {given} and the option 'data' says {options.data}",
            )
