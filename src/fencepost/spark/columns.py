"""The columns of an event, and which of them are asked for.

Spark does not tell a Python source which columns a query uses, so a source that offers seven
columns reads seven. What it does tell is the schema that the user gave with `.schema(...)`: that
one is read, and nothing else. Spark checks nothing about it; here an unknown name or another
type than the column has is refused.

A position is a long wherever that is wide enough, and a decimal(38,0) for FoundationDB, whose
positions have 96 bits: numbers in both cases, so that they sort and compare as positions do.
"""

from __future__ import annotations

from typing import Final

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

from ..errors import InvalidInput
from .options import Options

WIDE: Final = DecimalType(38, 0)

# The first type of each column is what is read when the user says nothing.
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


def full_schema(options: Options) -> StructType:
    """All columns of the store's events."""
    chosen = {name: types[0] for name, types in TYPES.items()}
    chosen["data"] = _DATA[options.data or "binary"]
    if options.store.startswith("fdb:"):
        chosen["position"] = WIDE
    return StructType([StructField(name, type) for name, type in chosen.items()])


def check_narrowed(schema: StructType, options: Options) -> None:
    """Refuse a schema that asks for what events do not have."""
    for field in schema.fields:
        types = TYPES.get(field.name)
        if types is None:
            raise InvalidInput(f"column {field.name!r}", f"events have no such column; they have {', '.join(TYPES)}")
        if not any(_same(field.dataType, type) for type in types):
            wanted = " or ".join(type.simpleString() for type in types)
            raise InvalidInput(f"column {field.name!r}", f"it is {wanted}, not {field.dataType.simpleString()}")
        if field.name == "data" and options.data is not None and field.dataType != _DATA[options.data]:
            raise InvalidInput(
                "column 'data'",
                f"the schema says {field.dataType.simpleString()} and the option 'data' says {options.data}",
            )


def _same(given: DataType, known: DataType) -> bool:
    """Whether they are the same type, whatever they say about nulls: none of the values is one."""
    return given.simpleString() == known.simpleString()
