"""Texts of values: the same whenever the value is, in every process.

A `repr` may hold an address, or a set in the order of its hashes, which differ between two runs of
the same source. Here functions are told by their code, what wraps a function by what it wraps,
containers and records by their parts, and sets in order. A class, and whatever else is told by a
name, is its qualified name alone; of anything else only the type counts.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from functools import cached_property, partial, partialmethod
from types import CodeType, EllipsisType, FunctionType, NoneType
from typing import Any, Final, get_args, get_origin
from uuid import UUID

# What its `repr` tells completely; a class before those that it inherits from.
PLAIN: Final[tuple[Any, ...]] = (
    str, bool, int, float, complex, bytes, NoneType, EllipsisType, Decimal, Fraction, UUID,
    datetime, date, time, timedelta, range, slice,
)  # fmt: skip

# What behaves as its parts say.
PARTS: Final[tuple[tuple[Any, tuple[str, ...]], ...]] = (
    (FunctionType, ("__code__", "__defaults__", "__kwdefaults__", "__wrapped__")),
    (CodeType, ("co_code", "co_exceptiontable", "co_names", "co_varnames", "co_freevars", "co_consts")),
    (property, ("fget", "fset", "fdel")),
    ((staticmethod, classmethod), ("__func__",)),
    (cached_property, ("func",)),
    ((partial, partialmethod), ("func", "args", "keywords")),
    (dataclasses.Field, ("default", "default_factory")),
    (re.Pattern, ("pattern", "flags")),
    (Enum, ("name", "value")),
)

PLAIN_TYPES: Final = frozenset(PLAIN)


def text_of(value: Any) -> str:
    """
    >>> text_of({"b", "a"}), text_of(int)
    ("builtins.set('a', 'b')", 'builtins.int')
    """
    if type(value) in PLAIN_TYPES:
        return repr(value)
    for kinds, names in PARTS:
        if isinstance(value, kinds):
            return _joined(value, [text_of(getattr(value, name, None)) for name in names])
    for kind in PLAIN:
        if isinstance(value, kind):
            return _joined(value, [kind.__repr__(value)])
    if isinstance(value, (tuple, list)):
        return _joined(value, map(text_of, value))
    if isinstance(value, (set, frozenset)):
        return _joined(value, sorted(map(text_of, value)))
    if isinstance(value, Mapping):
        return _joined(value, [f"{text_of(key)}: {text_of(each)}" for key, each in value.items()])
    if get_args(value):  # list[int], which has the name of a list
        return f"{text_of(get_origin(value))}[{', '.join(map(text_of, get_args(value)))}]"
    if hasattr(value, "__wrapped__"):  # as what functools.cache makes
        return _joined(value, [text_of(value.__wrapped__)])
    if hasattr(value, "__qualname__"):
        return f"{getattr(value, '__module__', None)}.{value.__qualname__}"
    if type(value).__module__ == "typing":
        return repr(value)
    return _joined(value, [f"{name}={text_of(getattr(value, name, None))}" for name in _fields(value)])


def _joined(value: object, parts: Any) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}({', '.join(parts)})"


def _fields(value: Any) -> list[str]:
    """Of a record: a dataclass or a struct."""
    if dataclasses.is_dataclass(value):
        return [field.name for field in dataclasses.fields(value)]
    return list(getattr(value, "__struct_fields__", ()))
