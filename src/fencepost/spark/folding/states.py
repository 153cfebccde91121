"""A projection's state as columns: their types from its annotations, their values from its fields.

Types are never inferred from values: a column that is a number in one run and text in the next is worse than an error.
Where no annotation gives the type, the caller must, with `schema=`, which names columns and their types. It may name
any attribute of the projection, properties included.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Final, Literal, NewType, get_args, get_origin, get_type_hints
from uuid import UUID

import pyarrow as pa
from pyspark.errors import ParseException
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from ...decisions import DefinitionError, Projection
from ...decisions.inspection import alternatives
from ...errors import InvalidInput

SIMPLE: Final[dict[Any, DataType]] = {
    bool: BooleanType(),
    int: LongType(),
    float: DoubleType(),
    str: StringType(),
    bytes: BinaryType(),
    datetime: TimestampType(),
    date: DateType(),
    Decimal: DecimalType(38, 18),
    UUID: StringType(),
}
LISTS: Final = (list, tuple, set, frozenset, Sequence, AbstractSet)
MAPPINGS: Final = (dict, Mapping)

Convert = Callable[[Any], Any]


def state_schema(projection: type[Projection], schema: str | StructType | None) -> StructType:
    """The columns of the state: those of the given schema, else those of the annotations."""
    if schema is not None:
        return _given(projection, schema)
    fields = []
    for name, hint in projection.definition.state.items():
        type = type_of(hint)
        if type is None:
            raise DefinitionError(
                f"{projection.__qualname__}.{name}: no column type follows from {_shown(hint)}; annotate the field "
                f"exactly, or name the columns and their types: schema='{name} string, ...'"
            )
        fields.append(StructField(name, type))
    return StructType(fields)


def _given(projection: type[Projection], schema: str | StructType) -> StructType:
    if isinstance(schema, str):
        try:
            parsed = StructType.fromDDL(schema)
        except ParseException as error:
            raise InvalidInput("schema", f"not a schema: {str(error).strip().splitlines()[0]}") from None
    else:
        parsed = schema
    if not isinstance(parsed, StructType) or not parsed.fields:
        raise InvalidInput("schema", f"columns are needed, as in 'amount long', not {schema!r:.80}")
    known = {*projection.definition.state, *dir(projection)}
    for field in parsed.fields:
        # With an __init__ of its own, a projection may have fields that the class does not know of.
        if field.name not in known and projection.__init__ is object.__init__:
            state = ", ".join(projection.definition.state)
            raise InvalidInput(
                f"schema, column {field.name!r}", f"{projection.__qualname__} has no such field; it has {state}"
            )
    return parsed


def type_of(hint: Any) -> DataType | None:
    """The column type of an annotation; None if no column type holds all of its values."""
    if hint in SIMPLE:
        return SIMPLE[hint]
    if isinstance(hint, NewType):
        return type_of(hint.__supertype__)
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return type_of(arguments[0])
    if origin is Literal:
        return _common({type(value) for value in arguments})
    members = [member for member in alternatives(hint) if member is not type(None)]
    if len(members) == 1 and members[0] is not hint:
        return type_of(members[0])
    if origin in LISTS:
        return _array(arguments)
    if origin in MAPPINGS:
        key, value = (type_of(argument) for argument in arguments)
        return None if key is None or value is None else MapType(key, value)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return _common({type(member.value) for member in hint})
    return _struct(hint)


def _common(kinds: set[Any]) -> DataType | None:
    return type_of(kinds.pop()) if len(kinds) == 1 else None


def _array(arguments: tuple[Any, ...]) -> DataType | None:
    items = [argument for argument in arguments if argument is not Ellipsis]
    if len(set(items)) != 1:
        return None
    item = type_of(items[0])
    return None if item is None else ArrayType(item)


def _struct(hint: Any) -> DataType | None:
    """Of a dataclass, a msgspec struct or a typed dictionary."""
    if dataclasses.is_dataclass(hint):
        names: Sequence[str] = [field.name for field in dataclasses.fields(hint)]
    elif hasattr(hint, "__struct_fields__"):
        names = hint.__struct_fields__
    elif isinstance(hint, type) and issubclass(hint, dict) and hasattr(hint, "__total__"):
        names = list(hint.__annotations__)
    else:
        return None
    hints = get_type_hints(hint, include_extras=True)
    types = {name: type_of(hints[name]) for name in names}
    if not types or None in types.values():
        return None
    return StructType([StructField(name, type) for name, type in types.items() if type is not None])


def _shown(hint: Any) -> str:
    return "no annotation" if hint is Any else str(getattr(hint, "__qualname__", hint)).replace("typing.", "")


def conversion(type: pa.DataType) -> Convert:
    """A function from the values of a state to values that Arrow takes."""
    if pa.types.is_list(type):
        item = conversion(type.value_type)
        return lambda values: None if values is None else _ordered([item(value) for value in values], values)
    if pa.types.is_map(type):
        key, value = conversion(type.key_type), conversion(type.item_type)
        return lambda pairs: None if pairs is None else [(key(name), value(pairs[name])) for name in pairs]
    if pa.types.is_struct(type):
        parts = {field.name: conversion(field.type) for field in type}
        return lambda whole: (
            None if whole is None else {name: part(_member(whole, name)) for name, part in parts.items()}
        )
    return _text if pa.types.is_string(type) else _plain


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, Enum) else value


def _text(value: Any) -> Any:
    value = _plain(value)
    return str(value) if isinstance(value, UUID) else value


def _member(whole: Any, name: str) -> Any:
    return whole[name] if isinstance(whole, Mapping) else getattr(whole, name)


def _ordered(converted: list[Any], values: Any) -> list[Any]:
    """The converted values of a set in a fixed order, so that equal states are equal rows.

    The converted values are sorted, because `<` between two sets means "is a subset of".
    """
    if not isinstance(values, AbstractSet):
        return converted
    try:
        return sorted(converted)
    except TypeError:  # structs, or None among others
        return sorted(converted, key=repr)


def array_of(values: Sequence[Any], field: pa.Field, whose: Callable[[int], str]) -> pa.Array:
    """The values as a column; an error names the value that does not fit, and its key."""
    try:
        return pa.array(values, type=field.type)
    except (pa.ArrowException, OverflowError, TypeError, ValueError):
        for index, value in enumerate(values):
            try:
                pa.array([value], type=field.type)
            except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
                raise InvalidInput(
                    f"column {field.name!r}",
                    f"{value!r:.80} of {whose(index)} is not {field.type} ({error}); give the column's type "
                    f"with schema='{field.name} ...'",
                ) from None
        raise
