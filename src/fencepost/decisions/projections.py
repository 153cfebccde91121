"""Projections: what a decision needs to know, as a fold over exactly the events that matter.

A projection class names the events it handles, one method each, and is scoped by tags, its
parameters. Both together are its boundary: the query that finds its events is the query that an
append is checked against, so a decision is protected against exactly what it has read.

An instance is plain data that can be pickled, knows no store, and takes stored events one by one
in `apply`: the same class decides in a service, answers a read, and folds in a data pipeline.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from copy import deepcopy
from functools import partial
from typing import Any, ClassVar, TypeVar, dataclass_transform

from ..model import QueryItem, SequencedEvent
from .definitions import Definition
from .errors import DefinitionError
from .handlers import Body
from .hints import evaluated, names_around
from .tags import tag_fields, tag_text

AnyProjection = TypeVar("AnyProjection", bound="Projection")

# What every projection has; a field of that name would hide it.
RESERVED = frozenset({"apply", "definition", "position"})


class ProjectionMeta(type):
    """Reads the class body into a definition, and scopes each instance when it is made."""

    definition: Definition

    @classmethod
    def __prepare__(mcls, name: str, bases: tuple[type, ...], /, **options: Any) -> Body:
        return Body()

    def __new__(
        mcls, name: str, bases: tuple[type, ...], body: Body, *, version: int = 1, snapshot_every: int | None = None
    ) -> ProjectionMeta:
        cls = super().__new__(mcls, name, bases, dict(body))
        parents = [base.definition for base in bases if isinstance(base, ProjectionMeta)]
        name = f"{cls.__module__}.{cls.__qualname__}"
        if parents:
            body_of = Reader(name, body, names_around(1), parents)
            cls.definition = body_of.definition(version, snapshot_every)
        else:
            cls.definition = Definition(name, (), {}, {}, {})
        return cls

    def __init__(cls, name: str, bases: tuple[type, ...], body: Body, **options: Any) -> None:
        super().__init__(name, bases, body)

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        scope = cls.definition.scope
        if kwargs or len(args) != len(scope):
            args = _in_order(cls, args, kwargs)
        made: Any = cls
        projection: Any = object.__new__(made)
        projection._values = args
        projection._begin()
        values = projection.__dict__  # read back, since an __init__ may have put them into a standard form
        projection._tags = {parameter: tag_text(name, values[parameter]) for parameter, name in scope.items()}
        return projection


@dataclass_transform(field_specifiers=(dataclasses.field,))
class Projection(metaclass=ProjectionMeta):
    """The base class of projections.

        class Balance(Projection):
            wallet_id: Tag          # the scope: which events
            amount: int = 0         # the state: what they come to

            @on
            def _(self, event: DepositMade) -> None:
                self.amount += event.amount

    Instead of `wallet_id: Tag` the scope can be the parameters of an `__init__`, which are then
    set as attributes before it runs. Fields with mutable values, such as `[]` or
    `dataclasses.field(default_factory=list)`, are made anew for each instance.
    """

    __slots__ = ("__dict__", "_tags", "_values", "position")

    definition: ClassVar[Definition]
    position: int
    """The position of the last event applied, 0 when there is none."""

    _values: tuple[Any, ...]
    _tags: dict[str, str]

    def apply(self, stored: SequencedEvent) -> bool:
        """Take the event in if it is in this projection's boundary. False: it is not.

        Events are given in the order of their positions.
        """
        bound = self.definition.handler(stored.type)
        if bound is None:
            return False
        for parameter in bound.scope:
            if self._tags[parameter] not in stored.tags:
                return False
        bound.handle(self, stored)
        self.position = stored.position
        return True

    def _begin(self) -> None:
        """The state before any event."""
        cls = type(self)
        definition = cls.definition
        self.position = 0
        state = self.__dict__
        for name, value in zip(definition.scope, self._values):  # noqa: B905  as many as were counted when it was made
            state[name] = value
        if definition.factories:
            for name, make in definition.factories.items():
                state[name] = make()
        if cls.__init__ is not object.__init__:
            cls.__init__(self, *self._values)

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return self.position == other.position and self._tags == other._tags and state_of(self) == state_of(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        scope = ", ".join(f"{name}={self.__dict__[name]!r}" for name in self.definition.scope)
        state = ", ".join(f"{name}={value!r}" for name, value in state_of(self).items())
        return f"<{type(self).__name__}({scope}) at {self.position}: {state}>"


def afresh(projection: AnyProjection) -> AnyProjection:
    """A projection of the same scope, before any event."""
    twin = object.__new__(type(projection))
    twin._values = projection._values
    twin._tags = projection._tags
    twin._begin()
    return twin


def items_of(projection: Projection) -> tuple[QueryItem, ...]:
    """The projection's boundary."""
    items = projection.definition.items(tuple(projection._tags.values()))
    if not items:
        raise DefinitionError(f"{projection.definition.name} handles no event; give it a method with @on")
    return items


def scope_of(projection: Projection) -> tuple[str, ...]:
    """The tags that the projection is scoped by, in the order of its parameters."""
    return tuple(projection._tags.values())


def values_of(projection: Projection) -> tuple[Any, ...]:
    """What the projection was made with; a UUID and its text are different values of one tag."""
    return projection._values


def state_of(projection: Projection) -> dict[str, Any]:
    """The fields that events change, with their values."""
    definition = projection.definition
    state = {name: getattr(projection, name) for name in definition.state}
    for name, value in projection.__dict__.items():
        if name not in definition.scope and name not in state:
            state[name] = value  # set in __init__ or by a handler, without having been declared
    return state


class Reader:
    """Reads a class body: scope, state and handlers, on top of those of the parents."""

    def __init__(self, name: str, body: Body, visible: dict[str, Any], parents: list[Definition]) -> None:
        self._name = name
        self._body = body
        own: dict[str, Any] = body.get("__annotations__", {})
        hints = {field: evaluated(hint, visible, name) for field, hint in own.items()}
        self._constants = {field for field, hint in hints.items() if "ClassVar" in str(hint)}
        self._hints = {field: hint for field, hint in hints.items() if field not in self._constants}
        self._visible = visible
        self._parents = parents

    def definition(self, version: int, snapshot_every: int | None) -> Definition:
        hidden = RESERVED & (self._body.keys() | self._hints.keys())
        if hidden:
            raise DefinitionError(f"{self._name}: {sorted(hidden)} are taken; name the fields otherwise")
        scope = self._scope()
        state, factories = self._state(scope)
        handlers = [handler for parent in self._parents for handler in parent.handlers] + self._body.handlers
        types = self._scope_types(scope)
        return Definition(self._name, tuple(handlers), scope, state, factories, version, snapshot_every, types)

    def _scope(self) -> dict[str, str]:
        if "__init__" in self._body:
            return self._parameters(self._body["__init__"])
        inherited = {parameter: name for parent in self._parents for parameter, name in parent.scope.items()}
        return inherited | tag_fields(self._hints)

    def _parameters(self, init: Callable[..., None]) -> dict[str, str]:
        names = {}
        for parameter in list(inspect.signature(init).parameters.values())[1:]:
            if parameter.kind not in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
                raise DefinitionError(
                    f"{self._name}: {parameter} does not scope it; every parameter is a tag by its name"
                )
            hint = evaluated(parameter.annotation, self._visible, self._name)
            names[parameter.name] = tag_fields({parameter.name: hint}).get(parameter.name, parameter.name)
        return names

    def _scope_types(self, scope: Mapping[str, str]) -> dict[str, Any]:
        known = {parameter: hint for parent in self._parents for parameter, hint in parent.scope_types.items()}
        known |= self._hints
        if "__init__" in self._body:
            for parameter in list(inspect.signature(self._body["__init__"]).parameters.values())[1:]:
                if parameter.annotation is not parameter.empty:
                    known[parameter.name] = evaluated(parameter.annotation, self._visible, self._name)
        return {parameter: known.get(parameter, str) for parameter in scope}

    def _state(self, scope: Mapping[str, str]) -> tuple[dict[str, Any], dict[str, Callable[[], Any]]]:
        state = {name: hint for parent in self._parents for name, hint in parent.state.items()}
        factories = {name: make for parent in self._parents for name, make in parent.factories.items()}
        for name, value in self._body.items():
            if name.startswith("__") or name in scope or name in self._constants or _is_behaviour(value):
                continue
            state[name] = self._hints.get(name, Any if value is None else type(value))
            factories.pop(name, None)
            if isinstance(value, dataclasses.Field):
                factories[name] = self._factory(name, value)
            elif type(value).__hash__ is None:  # a list, a dict, a set: what is not shared safely
                factories[name] = partial(deepcopy, value)
        for name, hint in self._hints.items():
            if name not in scope and name not in state:
                if "__init__" not in self._body:
                    raise DefinitionError(f"{self._name}: {name!r} is no Tag, and has no value to begin with")
                state[name] = hint
        return state, factories

    def _factory(self, name: str, value: dataclasses.Field[Any]) -> Callable[[], Any]:
        if value.default_factory is not dataclasses.MISSING:
            return value.default_factory
        if value.default is dataclasses.MISSING:
            raise DefinitionError(f"{self._name}: {name!r} has no value to begin with")
        return partial(deepcopy, value.default)


def _is_behaviour(value: object) -> bool:
    return inspect.isroutine(value) or isinstance(value, type) or hasattr(type(value), "__get__")


def _in_order(cls: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """The arguments of a call as one tuple in the order of the scope."""
    scope = cls.definition.scope
    if cls.__init__ is not object.__init__:
        bound = inspect.signature(cls.__init__).bind(None, *args, **kwargs)
        bound.apply_defaults()
        return bound.args[1:]
    given = dict(zip(scope, args, strict=False)) | kwargs
    if len(args) > len(scope) or given.keys() != scope.keys() or len(given) != len(args) + len(kwargs):
        wanted = ", ".join(scope) or "nothing"
        raise TypeError(f"{cls.__name__} is scoped by {wanted}; given were {args} and {kwargs}")
    return tuple(given[parameter] for parameter in scope)
