"""`stable_repr`: a text for a value that is the same in every process, for fingerprints.

Python's `repr` may contain memory addresses, or a set in hash order, which differ between two runs of the same program.
`stable_repr` renders a function by its code, a wrapper by the function that it wraps, containers and dataclasses by
their items, and sets in sorted order. A class and other named objects are rendered by their qualified name, and any
other object by its type alone.
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

# Types whose `repr` is complete and stable; subclasses before their base classes.
PLAIN: Final[tuple[Any, ...]] = (
    str, bool, int, float, complex, bytes, NoneType, EllipsisType, Decimal, Fraction, UUID,
    datetime, date, time, timedelta, range, slice,
)  # fmt: skip

# Types that are rendered by these attributes.
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


def stable_repr(value: Any) -> str:
    """
    >>> stable_repr({"b", "a"}), stable_repr(int)
    ("builtins.set('a', 'b')", 'builtins.int')
    """
    if type(value) in PLAIN_TYPES:
        return repr(value)
    for kinds, names in PARTS:
        if isinstance(value, kinds):
            return _joined(value, [stable_repr(getattr(value, name, None)) for name in names])
    for kind in PLAIN:
        if isinstance(value, kind):
            return _joined(value, [kind.__repr__(value)])
    if isinstance(value, (tuple, list)):
        return _joined(value, map(stable_repr, value))
    if isinstance(value, (set, frozenset)):
        return _joined(value, sorted(map(stable_repr, value)))
    if isinstance(value, Mapping):
        return _joined(value, [f"{stable_repr(key)}: {stable_repr(each)}" for key, each in value.items()])
    if get_args(value):  # such as list[int], whose __qualname__ is that of list
        return f"{stable_repr(get_origin(value))}[{', '.join(map(stable_repr, get_args(value)))}]"
    if hasattr(value, "__wrapped__"):  # such as the result of functools.cache
        return _joined(value, [stable_repr(value.__wrapped__)])
    if hasattr(value, "__qualname__"):
        return f"{getattr(value, '__module__', None)}.{value.__qualname__}"
    if type(value).__module__ == "typing":
        return repr(value)
    return _joined(value, [f"{name}={stable_repr(getattr(value, name, None))}" for name in _fields(value)])


def _joined(value: object, parts: Any) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}({', '.join(parts)})"


def _fields(value: Any) -> list[str]:
    """The field names of a dataclass instance or a struct."""
    if dataclasses.is_dataclass(value):
        return [field.name for field in dataclasses.fields(value)]
    return list(getattr(value, "__struct_fields__", ()))
