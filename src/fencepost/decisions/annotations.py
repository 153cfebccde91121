"""Evaluate annotations that are strings, including those that name classes local to a function.

`from __future__ import annotations` turns annotations into strings. `evaluate` evaluates them with the names of the
module and of the functions around the declaration, so that events declared inside a test function are found, too.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from types import UnionType
from typing import Any, Union, get_args, get_origin

from .errors import DefinitionError


def visible_names(depth: int) -> dict[str, Any]:
    """The names visible in the frame `depth` above the caller: module globals and the locals of enclosing calls."""
    frame = sys._getframe(depth + 1)
    module = frame.f_globals
    layers: list[Mapping[str, Any]] = []
    around: Any = frame
    while around is not None and around.f_globals is module:
        layers.append(around.f_locals)
        around = around.f_back
    visible = dict(module)
    for layer in reversed(layers):
        visible.update(layer)
    return visible


def evaluate(annotation: object, visible: Mapping[str, Any], where: str) -> Any:
    """The annotation as an object; a string is evaluated."""
    if not isinstance(annotation, str):
        return annotation
    try:
        return eval(annotation, dict(visible))
    except Exception as error:
        raise DefinitionError(f"{where}: the annotation {annotation!r} cannot be evaluated: {error}") from error


def alternatives(annotation: object) -> tuple[Any, ...]:
    """The members of a union, or the annotation alone."""
    if get_origin(annotation) in (Union, UnionType):
        return get_args(annotation)
    return (annotation,)


def location_of(function: Any) -> str:
    """Name, file and line of a function, for messages. Many handlers are called `_`, so the name is not enough."""
    name = getattr(function, "__qualname__", None) or repr(function)
    code = getattr(function, "__code__", None)
    return name if code is None else f"{name} ({code.co_filename}:{code.co_firstlineno})"
