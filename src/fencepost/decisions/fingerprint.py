"""The fingerprint of a projection class: it changes when the class may fold the same events to another state.

With `version=`, the version and the names and types of the fields are the fingerprint. Without, it covers the code: the
handlers, everything else in the class and in its event classes, and what their code refers to, namely functions,
classes, global and closed-over values, defaults. It is the same in every process, under another name of the module,
such as `__main__`, and in another version of Python, because functions count by their syntax tree. Names, comments,
docstrings and annotations of functions do not count.

The standard library and other installed packages count by name. A function without source text, or whose source has
changed since it was imported, counts by its bytecode, so its fingerprint holds for one version of Python only.
tests/decisions/test_fingerprint.py checks this.
"""

from __future__ import annotations

import ast
import dataclasses
import dis
import hashlib
import importlib
import linecache
import re
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from functools import cache, cached_property, lru_cache, partial, partialmethod
from importlib.util import resolve_name
from pathlib import Path
from types import (
    CodeType,
    EllipsisType,
    FunctionType,
    MappingProxyType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
    NoneType,
    UnionType,
)  # fmt: skip
from typing import Any, Final, Union, get_args, get_origin, get_type_hints
from uuid import UUID

from .codecs import fields_of
from .errors import DefinitionError
from .projections import Projection

# Changes when fingerprints of the same class are to differ from those of an earlier release.
FORMAT: Final = "4"

# Types whose `repr` is complete and the same in every process.
PLAIN: Final = frozenset(
    {str, bool, int, float, complex, bytes, NoneType, EllipsisType, Decimal, Fraction, UUID, datetime, date, time,
     timedelta, range}
)  # fmt: skip

# Types that are described by these attributes.
PARTS: Final[tuple[tuple[Any, tuple[str, ...]], ...]] = (
    (property, ("fget", "fset", "fdel")),
    ((staticmethod, classmethod, MethodType), ("__func__", "__self__")),
    (cached_property, ("func",)),
    ((partial, partialmethod), ("func", "args", "keywords")),
    (dataclasses.Field, ("default", "default_factory")),
    (re.Pattern, ("pattern", "flags")),
)

# Attributes of a field that decide how it is decoded from stored data.
OF_A_FIELD: Final = ("name", "encode_name", "alias", "validation_alias", "default", "default_factory")

# Attributes of syntax that do not change what a function does.
NOT_BEHAVIOUR: Final = frozenset({"annotation", "returns", "decorator_list", "type_params", "type_comment", "kind"})

# Members of a class with names like `__init__` that count.
BEHAVIOUR: Final = (FunctionType, property, staticmethod, classmethod)


@cache
def fingerprint(cls: type[Projection]) -> bytes:
    """A digest of everything that determines the state: of `version`, if the class has one, or else of its code."""
    definition = cls.definition
    scope = [(name, tag, _type_name(definition.scope_types.get(name))) for name, tag in definition.scope.items()]
    state = [(name, _type_name(hint)) for name, hint in definition.state.items()]
    parts = [FORMAT, cls.__qualname__, ascii(scope), ascii(state)]
    if definition.version is not None:
        parts.append(f"version {definition.version}")
    else:
        try:
            parts.append(Description(_file_of(cls)).text(cls))
        except RecursionError:
            problem = "its code refers to values that are nested too deeply for a fingerprint"
            raise DefinitionError(f"{definition.name}: {problem}; give the class a version=") from None
    return hashlib.sha256("\0".join(parts).encode()).digest()


class Description:
    """Describes values, classes and functions as text, with everything that they refer to.

    `home` is a file of the package whose code counts even if it is installed.
    """

    def __init__(self, home: str | None) -> None:
        self._home = _installed_package(home)
        self._known: dict[int, tuple[Any, str]] = {}  # by id, with the value, so that the id stays its own
        self._open: list[int] = []

    def text(self, value: Any) -> str:
        if type(value) in PLAIN:
            return ascii(value)
        known = self._known.get(id(value))
        if known is not None:
            return known[1]
        if id(value) in self._open:  # a function that calls itself, for example
            return f"^{len(self._open) - self._open.index(id(value))}"
        self._open.append(id(value))
        try:
            described = "".join(self._parts(value))
        finally:
            self._open.pop()
        if len(described) > 100:
            described = hashlib.sha256(described.encode()).hexdigest()
        self._known[id(value)] = (value, described)
        return described

    def _parts(self, value: Any) -> Iterator[str]:
        if isinstance(value, FunctionType):
            return self._function(value)
        if isinstance(value, ModuleType):
            return iter((f"module {value.__name__}",))
        if get_args(value):  # such as list[int]
            return self._items(_type_name(get_origin(value)), get_args(value))
        if isinstance(value, type):
            return self._class(value)
        for kinds, names in PARTS:
            if isinstance(value, kinds):
                return self._items(type(value).__name__, [getattr(value, name, None) for name in names])
        if isinstance(value, Enum):
            return self._items("enum", (type(value), value.name))
        if type(value) in (tuple, list):
            return self._items(type(value).__name__, value)
        if isinstance(value, (set, frozenset)):
            return iter((type(value).__name__, *sorted(map(self.text, value))))
        if type(value) in (dict, MappingProxyType):
            return self._items(type(value).__name__, [each for pair in value.items() for each in pair])
        if hasattr(value, "__wrapped__"):  # such as the result of functools.cache
            return self._items(type(value).__name__, [value.__wrapped__])
        if type(value).__module__ == "typing":
            supertype = getattr(value, "__supertype__", None)
            return iter((repr(value),)) if supertype is None else self._items("NewType", [supertype])
        return self._object(value)

    def _items(self, name: str, items: Iterable[Any]) -> Iterator[str]:
        yield f"{name}("
        for each in items:
            yield self.text(each)
            yield ", "
        yield ")"

    def _object(self, value: Any) -> Iterator[str]:
        """Describe any other object by what pickle would store of it.

        Objects of other installed packages, such as the counter of a metric, and those that cannot be pickled, are
        described by their class alone.
        """
        file = _file_of(type(value))
        if self._is_library(file) and _installed_package(file) != "stdlib":
            return iter((_type_name(type(value)),))
        try:
            reduced = value.__reduce_ex__(4)
        except Exception:
            reduced = (type(value),)
        if isinstance(reduced, str):
            return iter((f"{_type_name(type(value))} {reduced}",))
        maker, *parts = reduced
        if maker is type(value) or getattr(maker, "__module__", "") == "copyreg":
            maker = type(value)
        contents = [list(each) if isinstance(each, Iterator) else each for each in parts]
        return self._items("object", [maker, *contents])

    def _function(self, function: FunctionType) -> Iterator[str]:
        code = function.__code__
        if self._is_library(code.co_filename):
            yield f"{_installed_package(code.co_filename)} {code.co_qualname}"
        else:
            yield _behaviour(code, function.__globals__)
            yield self.text([function.__defaults__, function.__kwdefaults__])
            for name, value in sorted(_references(code, function.__globals__).items()):
                yield f" {name}={self.text(value)}"
        # A decorator of a library may return a function of the library that calls the decorated one.
        for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
            try:
                yield f" {name}={self.text(cell.cell_contents)}"
            except ValueError:
                yield f" {name} is empty"
        if hasattr(function, "__wrapped__"):
            yield self.text(function.__wrapped__)

    def _class(self, cls: Any) -> Iterator[str]:
        if self._is_library(_file_of(cls), cls.__module__):
            yield _type_name(cls)
            return
        yield f"class {cls.__qualname__}"
        for base in cls.__bases__:
            yield f" {self.text(base)}"
        if issubclass(cls, Enum):
            yield self.text([(name, member.value) for name, member in cls.__members__.items()])
        declaration, definition = vars(cls).get("__event__"), vars(cls).get("definition")
        if declaration is not None:
            yield f" {declaration.type} {declaration.version} {self.text(declaration.fields)}"
            yield self.text(sorted(declaration.upgrades.items()))
            yield self.text(declaration.codec_factory)
        elif definition is not None:
            yield f" {self.text(definition.state)} {self.text(definition.factories)}"
            for handler in definition.handlers:
                classes = [each.cls for each in handler.declarations]
                yield self.text([handler.method, handler.scope, classes])
        else:
            yield self.text(_hints(cls))
        yield self.text(_fields(cls))
        for name, value in sorted(vars(cls).items()):
            if self._counts(cls, name, value):
                yield f" {name}={self.text(value)}"

    def _counts(self, cls: Any, name: str, value: Any) -> bool:
        """Whether an attribute of a class is behaviour or data of its own, and not added by Python or a library."""
        if (name == "definition" and issubclass(cls, Projection)) or (name == "having" and "__event__" in vars(cls)):
            return False
        if isinstance(value, MemberDescriptorType) or name.startswith(("_abc_", "model_")):
            return False
        if issubclass(cls, Enum) and (name in cls.__members__ or name.startswith("_")):
            return isinstance(value, FunctionType) and not self._is_library(value.__code__.co_filename)
        if not (name.startswith("__") and name.endswith("__")):
            return True
        if not isinstance(value, FunctionType):
            return isinstance(value, BEHAVIOUR)
        file = value.__code__.co_filename
        # Dataclasses and named tuples generate methods from their fields, which are described already.
        is_generated = file == "<string>" and (dataclasses.is_dataclass(cls) or hasattr(cls, "_field_defaults"))
        return not is_generated and not self._is_library(file)

    def _is_library(self, file: str | None, module: str = "") -> bool:
        if file is None:
            return module.partition(".")[0] in sys.stdlib_module_names
        installed = _installed_package(file)
        return installed is not None and installed != self._home


def _fields(cls: Any) -> list[Any]:
    """What decides how the fields of a dataclass, a struct or a pydantic model are decoded and compared."""
    try:
        fields = fields_of(cls)
    except TypeError:
        return []
    parameters = getattr(cls, "__dataclass_params__", None)
    compared = [] if parameters is None else [parameters.eq, parameters.order]
    return compared + [[_value(getattr(each, name, None)) for name in OF_A_FIELD] for each in fields]


def _value(value: Any) -> Any:
    """Replaces the markers of libraries for "no default" by one of ours."""
    missing = value is dataclasses.MISSING or type(value).__name__ in ("NoDefaultType", "PydanticUndefinedType")
    return None if missing else value


def _hints(cls: Any) -> dict[str, Any]:
    own: dict[str, Any] = vars(cls).get("__annotations__", {})
    try:
        hints = get_type_hints(cls, include_extras=True)
        return {name: hints[name] for name in own}
    except Exception:  # an annotation names something that only type checkers import
        return own


def _type_name(value: Any) -> str:
    """An annotation as text, by names without modules."""
    if get_args(value):
        return f"{_type_name(get_origin(value))}[{', '.join(map(_type_name, get_args(value)))}]"
    if value is Union or value is UnionType:
        return "Union"
    name = getattr(value, "__qualname__", None)
    return ascii(value) if name is None else str(name)


def _references(code: CodeType, names: dict[str, Any]) -> dict[str, Any]:
    """The global values that the code uses, by name. For a module, the attributes of it that the code uses."""
    found: dict[str, Any] = {}
    instructions = list(dis.get_instructions(code))
    for index, each in enumerate(instructions):
        if each.opname in ("LOAD_GLOBAL", "LOAD_NAME") and each.argval in names:
            path, value, after = each.argval, names[each.argval], index + 1
            while isinstance(value, ModuleType) and after < len(instructions):
                attribute = instructions[after]
                if attribute.opname not in ("LOAD_ATTR", "LOAD_METHOD") or not hasattr(value, attribute.argval):
                    break
                path, value, after = f"{path}.{attribute.argval}", getattr(value, attribute.argval), after + 1
            found[path] = value
        elif each.opname == "IMPORT_NAME":
            found.update(_imported(each.argval, instructions[index - 2].argval, instructions, names))
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            found.update(_references(constant, names))
    return found


def _imported(name: str, level: int, code: list[dis.Instruction], names: dict[str, Any]) -> dict[str, Any]:
    """What code uses of a module that it imports itself."""
    try:
        module = importlib.import_module(resolve_name("." * level + name, names.get("__package__") or ""))
    except ImportError:
        return {}
    used = {each.argval for each in code if each.opname in ("LOAD_ATTR", "LOAD_METHOD", "IMPORT_FROM")}
    return {f"{name}.{each}": getattr(module, each) for each in used if hasattr(module, each)}


def _behaviour(code: CodeType, names: dict[str, Any]) -> str:
    """The syntax tree of a function, or its bytecode if the source text is missing or not that of this function."""
    nodes, codes = _source(code.co_filename, names.get("__name__", ""), names.get("__loader__"))
    key = code.co_name, code.co_firstlineno
    if len(nodes.get(key, ())) == 1 and codes.get(key) == [code]:
        (node,) = nodes[key]
        body = ast.Module(node.body, []) if isinstance(node.body, list) else node.body
        return f"{type(node).__name__} {_syntax(node.args)} {_syntax(body)}"
    return f"{sys.implementation.cache_tag} {_bytecode(code)}"


def _bytecode(code: CodeType) -> str:
    constants = [
        _bytecode(each) if isinstance(each, CodeType)
        else ascii(sorted(map(ascii, each)) if isinstance(each, frozenset) else each)
        for each in code.co_consts
    ]  # fmt: skip
    parts = (code.co_code, code.co_exceptiontable, code.co_names, code.co_varnames, code.co_freevars, constants)
    return ascii(parts)


Place = tuple[str, int]


@lru_cache(32)
def _source(file: str, module: str, loader: Any) -> tuple[dict[Place, list[Any]], dict[Place, list[CodeType]]]:
    """The functions in a file, by name and first line: as syntax trees, and compiled."""
    nodes: dict[Place, list[Any]] = {}
    codes: dict[Place, list[CodeType]] = {}
    text = "".join(linecache.getlines(file, {"__name__": module, "__loader__": loader}))
    try:
        tree = ast.parse(text)
        pending = [compile(text, file, "exec", dont_inherit=True)]
    except (SyntaxError, ValueError):
        return nodes, codes
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            line = node.decorator_list[0].lineno if node.decorator_list else node.lineno
            nodes.setdefault((node.name, line), []).append(node)
        elif isinstance(node, ast.Lambda):
            nodes.setdefault(("<lambda>", node.lineno), []).append(node)
    while pending:
        code = pending.pop()
        codes.setdefault((code.co_name, code.co_firstlineno), []).append(code)
        pending += [each for each in code.co_consts if isinstance(each, CodeType)]
    return nodes, codes


def _syntax(node: Any) -> str:
    """A syntax tree as text that is the same in every version of Python, without docstrings and annotations."""
    if isinstance(node, list):
        return f"[{', '.join(map(_syntax, node))}]"
    if not isinstance(node, ast.AST):
        return ascii(node)
    fields = []
    for name, value in ast.iter_fields(node):
        if name == "body" and isinstance(value, list) and value and _is_docstring(value[0]):
            value = value[1:]
        if value is not None and value != [] and name not in NOT_BEHAVIOUR:
            fields.append(f"{name}={_syntax(value)}")
    return f"{type(node).__name__}({', '.join(fields)})"


def _is_docstring(node: Any) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


@cache
def _installed_package(file: str | None) -> str | None:
    """The package in `site-packages` or the standard library that the file belongs to; None for other files."""
    if file is None or file.startswith("<"):
        return "stdlib" if file is not None and file.startswith("<frozen") else None
    path = Path(file)
    for folder in ("site-packages", "dist-packages"):
        if folder in path.parts:
            return path.parts[path.parts.index(folder) + 1].removesuffix(".py")
    if path.is_relative_to(FENCEPOST):
        return "fencepost"
    return "stdlib" if path.is_relative_to(STDLIB) else None


FENCEPOST: Final = Path(__file__).parents[1]
STDLIB: Final = sysconfig.get_path("stdlib")


def _file_of(cls: Any) -> str | None:
    return getattr(sys.modules.get(cls.__module__), "__file__", None)
