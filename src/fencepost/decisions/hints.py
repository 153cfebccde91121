"""What annotations mean, also where they are strings and name things local to a function.

`from __future__ import annotations` turns annotations into text. They are evaluated here in the
module that holds them, then in the functions around the declaration, so that events declared
inside a test are found as well as those of a module.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from types import UnionType
from typing import Any, Union, get_args, get_origin

from .errors import DefinitionError


def names_around(depth: int) -> dict[str, Any]:
    """What is visible where the caller's caller, `depth` frames up, makes a declaration."""
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


def evaluated(annotation: object, visible: Mapping[str, Any], where: str) -> Any:
    """The annotation as an object."""
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
