"""Find the projections among a decision's arguments, and read the signature and annotations of its function.

A projection may be an argument itself or an item of a list, tuple or dict. Each attempt of a decision calls the
function with folded projections in place of the given ones.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from types import NoneType
from typing import Annotated, Any, Final, TypeVar, get_args, get_origin
from uuid import UUID

from .errors import DefinitionError
from .events import Declaration
from .hints import alternatives, evaluate
from .projections import Projection

T = TypeVar("T")

# Types of arguments that can be or contain a projection.
MAY_HOLD: Final = (Projection, list, tuple, dict)

# A rule that is called with only these types has no side effects through its arguments, so it may run before the
# idempotency lookup.
VALUES: Final = (Projection, str, int, float, bytes, NoneType, Decimal, UUID, date, time, timedelta, Enum)

UNCHECKED: Final = "fencepost: unchecked"

Unchecked = Annotated[T, UNCHECKED]
"""Annotates a projection that a decision reads without checking: its events do not conflict with the decision."""


class Parameters:
    """The parameters of a decision's function, and which argument belongs to which parameter."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.signature = inspect.signature(function)
        parameters = self.signature.parameters
        if "once" in parameters:
            raise DefinitionError(
                f"{function.__qualname__}: the parameter name 'once' is reserved; rename the parameter"
            )
        self.defaults = {name: each.default for name, each in parameters.items()}
        self._places = [name for name, each in parameters.items() if each.kind <= each.VAR_POSITIONAL]
        self._index = {name: index for index, name in enumerate(self._places)}

    def at(self, index: int) -> str:
        """The parameter of a positional argument. All arguments in *args belong to the last parameter."""
        return self._places[min(index, len(self._places) - 1)] if self._places else ""

    def value(self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        if name in kwargs:
            return kwargs[name]
        index = self._index.get(name, len(args))
        return args[index] if index < len(args) else self.defaults[name]


class Arguments:
    """The arguments of a call and the projections in them. `checked` are the projections not annotated `Unchecked`."""

    __slots__ = ("_args", "_kwargs", "_nested", "_places", "checked", "projections")

    def __init__(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], parameters: Parameters, unchecked: set[str]
    ) -> None:
        self._args = args
        self._kwargs = kwargs
        self._nested = False
        self._places: list[int | str] = []
        self.projections: list[Projection] = []
        self.checked: list[Projection] = []
        for index, value in enumerate(args):
            if _may_hold(value):
                self._gather(value, index, not unchecked or parameters.at(index) not in unchecked)
        for name, value in kwargs.items():
            if _may_hold(value):
                self._gather(value, name, name not in unchecked)

    def _gather(self, value: Any, place: int | str, checked: bool) -> None:
        if isinstance(value, Projection):
            self._places.append(place)
            self.projections.append(value)
            if checked:
                self.checked.append(value)
            return
        count = len(self.projections)
        for each in value.values() if isinstance(value, dict) else value:
            if _may_hold(each):
                self._gather(each, place, checked)
        self._nested = self._nested or len(self.projections) > count

    def replaced(self, projections: Sequence[Projection]) -> tuple[Sequence[Any], dict[str, Any]]:
        """The arguments with each template replaced by the corresponding projection."""
        if self._nested:
            twins = {id(template): twin for template, twin in zip(self.projections, projections, strict=True)}
            return _replaced(self._args, twins), _replaced(self._kwargs, twins)
        args: list[Any] = list(self._args)
        kwargs = dict(self._kwargs)
        for place, projection in zip(self._places, projections, strict=True):
            if isinstance(place, int):
                args[place] = projection
            else:
                kwargs[place] = projection
        return args, kwargs


def _may_hold(value: Any) -> bool:
    """Whether a value can be or contain a projection. Cached by class, because this runs for every argument."""
    kind = type(value)
    known = _HOLDING.get(kind)
    if known is None:
        known = _HOLDING[kind] = issubclass(kind, MAY_HOLD)
    return known


_HOLDING: Final[dict[Any, bool]] = {}


def _replaced(value: Any, twins: Mapping[int, Projection]) -> Any:
    if isinstance(value, Projection):
        return twins[id(value)]
    if type(value) is dict:
        return {name: _replaced(each, twins) for name, each in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_replaced(each, twins) for each in value)
    return value


def are_values(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    return all(isinstance(each, VALUES) for each in (*args, *kwargs.values()))


def hints_of(function: Callable[..., Any], visible: Mapping[str, Any]) -> dict[str, Any]:
    """The annotations that can be evaluated. Others, such as names imported only for type checking, are left out."""
    hints = {}
    for name, annotation in function.__annotations__.items():
        try:
            hints[name] = evaluate(annotation, visible, function.__qualname__)
        except DefinitionError:
            # Safe: at worst an `Unchecked` projection is checked. A checked one cannot become unchecked.
            continue
    return hints


def is_unchecked(hint: object) -> bool:
    if get_origin(hint) is Annotated:
        return UNCHECKED in get_args(hint)[1:]
    return any(map(is_unchecked, get_args(hint)))


def declarations(hint: object) -> Iterable[Declaration[Any]]:
    """The event classes in a return annotation."""
    for member in alternatives(hint):
        if isinstance(member, type) and hasattr(member, "__event__"):
            yield member.__event__
        for argument in get_args(member):
            yield from declarations(argument)
