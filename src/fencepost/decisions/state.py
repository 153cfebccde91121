"""The state of a projection as bytes, for snapshots: what is read back has the same types and the same shared objects.

The bytes are a pickle in which every class is replaced by a name. A `StateCodec` knows a fixed set of classes: those of
`STANDARD`, and those in the annotations of the projection's fields and events. Reading a pickle can create objects of
these classes only; it imports no module and calls no other function, whatever the bytes say.

A field that can never be restored is refused when the class is declared. A value whose class no annotation names is
restored in the process that has stored it; another process ignores the snapshot. An object that is told by its identity
is refused when a snapshot is taken, unless an annotation names its class: tests/decisions/test_state.py.
"""

from __future__ import annotations

import copyreg
import io
import pickle
import sys
from collections import ChainMap, Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from types import FunctionType, NoneType
from typing import Any, Final, get_args, get_origin, get_type_hints
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec

from .errors import DefinitionError


class _KeywordStruct(msgspec.Struct, kw_only=True):
    field: int = 0


# msgspec's function that makes a struct with keyword-only fields from a pickle.
REBUILD: Final[Any] = _KeywordStruct().__reduce__()[0]

# What every state may hold.
STANDARD: Final[tuple[Any, ...]] = (
    NoneType, bool, int, float, complex, str, bytes, bytearray, list, tuple, dict, set, frozenset, range,
    Counter, OrderedDict, defaultdict, deque, ChainMap, date, datetime, time, timedelta, timezone, Decimal, Fraction,
    UUID, ZoneInfo, REBUILD,
)  # fmt: skip

# Annotations of these modules describe values of the classes above, such as `Mapping` and `Any`.
ABSTRACT: Final = frozenset({"typing", "typing_extensions", "collections.abc", "types", "abc", "builtins"})

# Abstract classes whose objects cannot be pickled.
NOT_DATA: Final = frozenset(
    {"Callable", "Iterator", "Generator", "Coroutine", "Awaitable", "AsyncIterator", "AsyncGenerator", "AsyncIterable"}
)


class StateCodec:
    """Encodes and decodes the state of one projection class.

    `fields` are the annotations of the state, and `others` annotations that the state may also contain: those of the
    scope and the event classes.
    """

    def __init__(self, name: str, fields: Mapping[str, Any], others: Iterable[Any] = ()) -> None:
        self._name = name
        self._problems: list[str] = []
        self._names: dict[Any, str] = {each: f"{each.__module__}.{each.__qualname__}" for each in STANDARD}
        self._classes = {name: cls for cls, name in self._names.items()}
        for field, annotation in fields.items():
            self._learn(annotation, field)
        for annotation in others:
            self._learn(annotation, None)

    def check(self, initial: Mapping[str, Any]) -> None:
        """Raise `DefinitionError` if a field cannot be restored by its annotation, or by its initial value."""
        if self._problems:
            raise DefinitionError(f"{self._name}: {'; '.join(self._problems)}")
        self.encode(initial)

    def encode(self, state: Mapping[str, Any]) -> bytes:
        try:
            buffer = io.BytesIO()
            _Pickler(buffer, self._name_of).dump(dict(state))
            data = buffer.getvalue()
            self.decode(data)
        except Exception as error:
            advice = "annotate the fields with the classes of their values, or leave out snapshot_every"
            raise DefinitionError(f"{self._name}: a snapshot cannot restore the state: {error}; {advice}") from error
        return data

    def decode(self, data: bytes) -> dict[str, Any]:
        return _Unpickler(io.BytesIO(data), self._classes).load()  # type: ignore[no-any-return]

    def _learn(self, annotation: Any, field: str | None) -> None:
        """Add the classes in the annotation, and those in the annotations of their own fields."""
        arguments = get_args(annotation)
        for each in arguments:
            self._learn(each, field)
        cls = get_origin(annotation) or annotation
        if not isinstance(cls, type) or cls in self._names:
            return
        module = cls.__module__
        if module in ABSTRACT:
            if cls.__name__ in NOT_DATA and field is not None:
                self._problems.append(f"a snapshot cannot restore the field {field!r}, of {cls.__name__}")
            return
        if module.partition(".")[0] in sys.stdlib_module_names and not _is_value(cls):
            if field is not None:
                self._problems.append(f"a snapshot cannot restore the field {field!r}, of {module}.{cls.__qualname__}")
            return
        self._add(cls)
        if not issubclass(cls, Enum):
            for hint in _hints(cls):
                self._learn(hint, field)

    def _add(self, cls: Any) -> str:
        # Without the module, which is `__main__` for the same class in a program. Equal names get a suffix.
        name: str = cls.__qualname__
        while self._classes.setdefault(name, cls) is not cls:
            name += "'"
        self._names[cls] = name
        return name

    def _name_of(self, cls: Any) -> str:
        if cls in self._names:
            return self._names[cls]
        if isinstance(cls, FunctionType) or cls.__eq__ is object.__eq__:
            raise DefinitionError(f"it contains {cls.__module__}.{cls.__qualname__}, which no annotation names")
        return self._add(cls)


def _is_value(cls: Any) -> bool:
    """Whether objects of a class of the standard library are values that pickle makes by a call of the class."""
    return cls.__eq__ is not object.__eq__ and cls not in copyreg.dispatch_table


def _hints(cls: Any) -> list[Any]:
    declaration = getattr(cls, "__event__", None)
    if declaration is not None:
        return list(declaration.fields.values())
    try:
        return list(get_type_hints(cls, include_extras=True).values())
    except Exception:
        # An annotation names something that only type checkers import. A value of it is refused when it is met.
        return [hint for hint in getattr(cls, "__annotations__", {}).values() if not isinstance(hint, str)]


class _Pickler(pickle.Pickler):
    def __init__(self, buffer: io.BytesIO, name_of: Callable[[Any], str]) -> None:
        super().__init__(buffer, protocol=4)
        self._name_of = name_of

    def persistent_id(self, value: Any) -> Any:
        if isinstance(value, (type, FunctionType)):
            return self._name_of(value)
        if isinstance(value, Enum):
            return self._name_of(type(value)), value.value
        if isinstance(value, ZoneInfo):
            return self._name_of(ZoneInfo), value.key
        return None


class _Unpickler(pickle.Unpickler):
    def __init__(self, buffer: io.BytesIO, classes: Mapping[str, Any]) -> None:
        super().__init__(buffer)
        self._classes = classes

    def persistent_load(self, key: Any) -> Any:
        name = key if isinstance(key, str) else key[0]
        if name not in self._classes:
            raise DefinitionError(f"it contains {name}, which no annotation names")
        cls = self._classes[name]
        return cls if isinstance(key, str) else cls(key[1])

    def find_class(self, module: str, name: str) -> Any:
        raise DefinitionError(f"it contains {module}.{name}, which is not a class of the state")
