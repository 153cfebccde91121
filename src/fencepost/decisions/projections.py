"""Projections: the state that a decision needs, folded from the events in its boundary.

A projection class has one method for each kind of event that it handles, declared by `@on`, and parameters that scope
it by tags. Together they are its boundary, a query with one item for each set of parameters that handlers use. A
decision reads with this query and its append is conditional on the same query, so the two cannot differ. A class with
a handler whose events could never match is refused when it is defined: tests/decisions/test_projections.py.

The annotation of a handler's parameter says which events it handles; its name does not matter, so all handlers can be
called `_`. An instance is plain data: it can be pickled, has no reference to a store, and `apply` takes stored events
one by one. The same class therefore works in a service, in a read and in a Spark job.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cached_property, lru_cache, partial
from itertools import product
from typing import Any, ClassVar, Final, TypeVar, dataclass_transform, overload

from ..model import Query, QueryItem, SequencedEvent, query_of_items
from .annotations import alternatives, evaluate, location_of, visible_names
from .errors import DefinitionError
from .events import Declaration, declaration_of, tag_fields, tag_text
from .state import StateCodec

Method = TypeVar("Method", bound=Callable[..., None])


@dataclass(frozen=True, slots=True)
class Handler:
    """A method, the events that it handles, and the parameters of the projection's scope that apply to them."""

    method: Callable[..., None]
    declarations: tuple[Declaration[Any], ...]  # empty: every type without a handler of its own
    scope: tuple[str, ...] | None  # None: the whole scope
    takes_stored: bool


class BoundHandler:
    """A handler for one type of event, with the scope parameters that apply to it."""

    __slots__ = ("declaration", "handle", "scope")

    handle: Callable[[Projection, SequencedEvent], None]
    """Decode the event and call the method. An exception of the method gets a note that names the event."""

    def __init__(self, handler: Handler, declaration: Declaration[Any] | None, scope: tuple[str, ...]) -> None:
        self.declaration = declaration
        self.scope = scope
        method = handler.method
        decode: Callable[[SequencedEvent], Any] = (lambda stored: stored) if declaration is None else declaration.decode
        # One function for each kind of handler, so that nothing needs to be decided for each event.
        if handler.takes_stored:

            def handle(self: Projection, stored: SequencedEvent) -> None:
                event = decode(stored)
                try:
                    method(self, event, stored)
                except Exception as error:
                    _note(error, method, stored)
                    raise

        elif declaration is None or declaration.version > 1:

            def handle(self: Projection, stored: SequencedEvent) -> None:
                event = decode(stored)
                try:
                    method(self, event)
                except Exception as error:
                    _note(error, method, stored)
                    raise

        else:
            read = declaration.read

            def handle(self: Projection, stored: SequencedEvent) -> None:
                # The common case: the class has one version, and the event no metadata that could name another.
                try:
                    event = read(stored.data) if stored.raw_metadata is None else decode(stored)
                except Exception:
                    event = decode(stored)  # raises EventUnreadable, which says what does not fit
                try:
                    method(self, event)
                except Exception as error:
                    _note(error, method, stored)
                    raise

        self.handle = handle


def _note(error: Exception, method: Callable[..., None], stored: SequencedEvent) -> None:
    """Add a note that names the event. The exception keeps its type, because callers may catch it."""
    error.add_note(
        f"raised by the handler {location_of(method)} of event {stored.type!r} at position {stored.position}"
    )


class ClassBody(dict[str, Any]):
    """The namespace of a class body. Keeps every handler, even if several have the same name."""

    def __init__(self) -> None:
        super().__init__()
        self.handlers: list[Handler] = []

    def __setitem__(self, name: str, value: Any) -> None:
        if isinstance(value, Handler):
            self.handlers.append(value)
            value = value.method
        super().__setitem__(name, value)


@overload
def on(method: Method, /) -> Method: ...
@overload
def on(*, scope: tuple[str, ...]) -> Callable[[Method], Method]: ...
def on(method: Any = None, /, *, scope: tuple[str, ...] | None = None) -> Any:
    """Declare a method of a projection as the handler of the events that its parameter is annotated with.

    The annotation is an event class, a union of event classes, or `SequencedEvent` for all other events in the scope. A
    second parameter receives the stored event, with its position and time. `scope` names the parameters of the
    projection that these events are tagged with, if not all of them.
    """
    visible = visible_names(1)

    def declare(method: Callable[..., None]) -> Any:
        where = method.__qualname__
        parameters = list(inspect.signature(method).parameters.values())
        if len(parameters) not in (2, 3):
            raise DefinitionError(f"{where}: a handler takes self, the event and, optionally, the stored event")
        if parameters[1].annotation is inspect.Parameter.empty:
            raise DefinitionError(f"{where}: annotate {parameters[1].name!r} with the event class that it handles")
        handled = alternatives(evaluate(parameters[1].annotation, visible, where))
        declarations = () if handled == (SequencedEvent,) else tuple(map(declaration_of, handled))
        return Handler(method, declarations, scope, takes_stored=len(parameters) == 3)

    return declare if method is None else declare(method)


ITEMS_REMEMBERED: Final = 4_096

# The event type of stored snapshots.
SNAPSHOT_TYPE: Final = "fencepost.Snapshot"


@dataclass
class Definition:
    """What a projection class declares.

    `scope` maps parameters to the names of their tags, and `scope_types` to their types. `state` maps the fields that
    events change to their types. `factories` make the initial values of mutable fields. `reads_exactly` is True if
    every event that matches the boundary has a handler. It is False if the item for every type also matches events
    that are handled by name in another scope, or snapshots.
    """

    name: str
    handlers: tuple[Handler, ...]
    scope: Mapping[str, str]
    state: Mapping[str, Any]
    factories: Mapping[str, Callable[[], Any]]
    version: int | str | None = None
    snapshot_every: int | None = None
    scope_types: Mapping[str, Any] = field(default_factory=dict)
    by_type: dict[str, BoundHandler] = field(default_factory=dict)
    every: BoundHandler | None = None
    reads_exactly: bool = field(init=False)
    _parts: dict[tuple[str, ...], frozenset[str]] = field(default_factory=dict)
    items: Callable[[tuple[str, ...]], tuple[QueryItem, ...]] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        # Cached, because services use the same few scopes repeatedly.
        self.items = lru_cache(ITEMS_REMEMBERED)(self._build_items)
        for handler in self.handlers:
            self._bind(handler)
        self._check_scope()
        if self.every is not None:
            self._parts[self.every.scope] = frozenset()
        for type, bound in self.by_type.items():
            # Types with the same scope share a query item. The item for every type covers types handled by name.
            if self.every is None or not set(self.every.scope) <= set(bound.scope):
                self._parts[bound.scope] = self._parts.get(bound.scope, frozenset()) | {type}
        every = self.every
        self.reads_exactly = every is None or (
            every.scope != () and all(set(bound.scope) <= set(every.scope) for bound in self.by_type.values())
        )

    @cached_property
    def codec(self) -> StateCodec:
        """Encodes the state of instances, which may also hold their arguments and events."""
        events = [each.cls for handler in self.handlers for each in handler.declarations]
        return StateCodec(self.name, self.state, [*self.scope_types.values(), *events])

    @property
    def types(self) -> frozenset[str]:
        """The types handled by name. If `every` is set, all other types are handled as well."""
        return frozenset(self.by_type)

    def handler(self, type: str) -> BoundHandler | None:
        # Stored snapshots are not events of the log: handling them would change the state that they describe.
        return self.by_type.get(type, self.every if type != SNAPSHOT_TYPE else None)

    def _build_items(self, tags: tuple[str, ...]) -> tuple[QueryItem, ...]:
        """The boundary as query items, for the given tags in the order of the parameters."""
        by_parameter = dict(zip(self.scope, tags, strict=True))
        return tuple(
            QueryItem(types=types, tags=[by_parameter[parameter] for parameter in part])
            for part, types in self._parts.items()
        )

    def scopes_of(self, event: SequencedEvent) -> Iterator[dict[str, str]]:
        """The scope of each instance that handles the event; a transfer between two wallets has two."""
        bound = self.handler(event.type)
        if bound is None:
            return
        if bound.scope != tuple(self.scope):
            where = f"{self.name}: {event.type!r} is handled in the partial scope {bound.scope}"
            raise DefinitionError(f"{where}, so the event does not say which instances handle it")
        prefixes = [f"{self.scope[parameter]}:" for parameter in bound.scope]
        values = [sorted(tag[len(prefix) :] for tag in event.tags if tag.startswith(prefix)) for prefix in prefixes]
        for combination in product(*values):
            yield dict(zip(bound.scope, combination, strict=True))

    def _bind(self, handler: Handler) -> None:
        scope = tuple(self.scope) if handler.scope is None else tuple(handler.scope)
        for parameter in scope:
            if parameter not in self.scope:
                raise DefinitionError(
                    f"{self.name}: @on(scope=...): {parameter!r} is not one of its parameters {list(self.scope)}"
                )
        if not handler.declarations:
            self.every = BoundHandler(handler, None, scope)
        for declaration in handler.declarations:
            self._check_tags(declaration, scope)
            # A subclass replaces handlers of its parents: the last handler wins.
            self.by_type[declaration.type] = BoundHandler(handler, declaration, scope)

    def _check_tags(self, declaration: Declaration[Any], scope: tuple[str, ...]) -> None:
        for parameter in scope:
            if self.scope[parameter] not in declaration.tag_names:
                raise DefinitionError(
                    f"{self.name} is scoped by {parameter!r}, but {declaration.type} has no tag "
                    f"{self.scope[parameter]!r}, so no event would ever match; add the tag to the event, or name the "
                    "parameters that the event is tagged with in @on(scope=(...))"
                )

    def _check_scope(self) -> None:
        bounds = [*self.by_type.values(), *([self.every] if self.every else [])]
        for parameter in self.scope:
            if bounds and not any(parameter in bound.scope for bound in bounds):
                raise DefinitionError(f"{self.name}: no handler uses the parameter {parameter!r}")


AnyProjection = TypeVar("AnyProjection", bound="Projection")
Made = TypeVar("Made")

# Attributes of every projection, which fields must not hide.
RESERVED = frozenset({"apply", "definition", "position"})


class ProjectionMeta(type):
    """Builds the definition from the class body, and the scope of each instance from its arguments."""

    definition: Definition

    @classmethod
    def __prepare__(mcls, name: str, bases: tuple[type, ...], /, **options: Any) -> ClassBody:
        return ClassBody()

    def __new__(
        mcls,
        name: str,
        bases: tuple[type, ...],
        body: ClassBody,
        *,
        version: int | str | None = None,
        snapshot_every: int | None = None,
    ) -> ProjectionMeta:
        cls = super().__new__(mcls, name, bases, dict(body))
        parents = [base.definition for base in bases if isinstance(base, ProjectionMeta)]
        name = f"{cls.__module__}.{cls.__qualname__}"
        if parents:
            body_of = ClassBodyReader(name, body, visible_names(1), parents)
            cls.definition = body_of.definition(version, snapshot_every)
            if snapshot_every is not None:
                cls.definition.codec.check(_initial_state(cls))
        else:
            cls.definition = Definition(name, (), {}, {}, {})
        return cls

    def __init__(cls, name: str, bases: tuple[type, ...], body: ClassBody, **options: Any) -> None:
        super().__init__(name, bases, body)

    # With this return type, type checkers take the parameters from the fields or `__init__` of the class.
    def __call__(cls: type[Made], *args: Any, **kwargs: Any) -> Made:
        made: Any = cls
        scope = made.definition.scope
        if kwargs or len(args) != len(scope):
            args = _order_arguments(made, args, kwargs)
        projection: Any = object.__new__(made)
        projection._values = args
        projection._reset()
        values = projection.__dict__  # because an __init__ may have normalised the values
        projection._tags = {parameter: tag_text(name, values[parameter]) for parameter, name in scope.items()}
        return projection  # type: ignore[no-any-return]


@dataclass_transform(field_specifiers=(dataclasses.field,))
class Projection(metaclass=ProjectionMeta):
    """The base class of projections.

        class Balance(Projection):
            wallet_id: Tag          # the scope: which events
            amount: int = 0         # the state: what they come to

            @on
            def _(self, event: DepositMade) -> None:
                self.amount += event.amount

    Instead of `wallet_id: Tag`, the scope can be the parameters of an `__init__`, which are set as attributes before
    it runs. Mutable initial values, such as `[]` or `dataclasses.field(default_factory=list)`, are created for each
    instance.
    """

    __slots__ = ("__dict__", "_tags", "_values", "position")

    definition: ClassVar[Definition]
    position: int
    """The position of the last event applied, or 0."""

    _values: tuple[Any, ...]
    _tags: dict[str, str]

    def apply(self, stored: SequencedEvent) -> bool:
        """Apply a stored event. Returns False, and changes nothing, if it is not in this projection's boundary.

        Events must be applied in the order of their positions.
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

    def _reset(self) -> None:
        """Set the state before any event."""
        cls = type(self)
        definition = cls.definition
        self.position = 0
        state = self.__dict__
        for name, value in zip(definition.scope, self._values):  # noqa: B905  the metaclass checked the number
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


def fresh(projection: AnyProjection) -> AnyProjection:
    """A new projection with the same scope, before any event."""
    twin = object.__new__(type(projection))
    twin._values = projection._values
    twin._tags = projection._tags
    twin._reset()
    return twin


def items_of(projection: Projection) -> tuple[QueryItem, ...]:
    """The projection's boundary as query items."""
    items = projection.definition.items(tuple(projection._tags.values()))
    if not items:
        raise DefinitionError(f"{projection.definition.name} handles no events; add a method with @on")
    return items


def query_of(projections: Sequence[Projection]) -> Query:
    """One query that matches the events of all the projections. Items with the same tags become one item."""
    if len(projections) == 1:
        return query_of_items(items_of(projections[0]))
    return Query(_merge_items([item for projection in projections for item in items_of(projection)]))


def _merge_items(items: Iterable[QueryItem]) -> list[QueryItem]:
    by_tags: dict[frozenset[str], QueryItem] = {}
    for item in items:
        other = by_tags.get(item.tags)
        if other is None or not item.types:
            by_tags[item.tags] = item
        elif other.types and not item.types <= other.types:
            by_tags[item.tags] = QueryItem(types=item.types | other.types, tags=item.tags)
    return list(by_tags.values())


def scope_of(projection: Projection) -> tuple[str, ...]:
    """The tags of the projection's scope, in the order of its parameters."""
    return tuple(projection._tags.values())


def values_of(projection: Projection) -> tuple[Any, ...]:
    """The arguments of the projection. A UUID and its text are different values of the same tag."""
    return projection._values


def state_of(projection: Projection) -> dict[str, Any]:
    """The fields that events change, and their values."""
    definition = projection.definition
    state = {name: getattr(projection, name) for name in definition.state}
    for name, value in projection.__dict__.items():
        if name not in definition.scope and name not in state:
            state[name] = value  # set in __init__ or by a handler, but not declared in the class
    return state


class ClassBodyReader:
    """Reads scope, state and handlers from a class body, and adds those of the parent classes."""

    def __init__(self, name: str, body: ClassBody, visible: dict[str, Any], parents: list[Definition]) -> None:
        self._name = name
        self._body = body
        own: dict[str, Any] = body.get("__annotations__", {})
        hints = {field: evaluate(hint, visible, name) for field, hint in own.items()}
        self._constants = {field for field, hint in hints.items() if "ClassVar" in str(hint)}
        self._hints = {field: hint for field, hint in hints.items() if field not in self._constants}
        self._visible = visible
        self._parents = parents

    def definition(self, version: int | str | None, snapshot_every: int | None) -> Definition:
        hidden = RESERVED & (self._body.keys() | self._hints.keys())
        if hidden:
            raise DefinitionError(f"{self._name}: the names {sorted(hidden)} are reserved; rename the fields")
        scope, types = self._scope()
        state, factories = self._state(scope)
        self._check_handlers()
        handlers = [handler for parent in self._parents for handler in parent.handlers] + self._body.handlers
        return Definition(self._name, tuple(handlers), scope, state, factories, version, snapshot_every, types)

    def _check_handlers(self) -> None:
        """Refuse two handlers for one type, of which only the last would be called.

        This applies to handlers in one class body, and to handlers of two parents unless the class has its own handler
        for the type. Replacing the handler of a parent is allowed.
        """
        own: dict[str | None, Handler] = {}
        for handler in self._body.handlers:
            for type in _types_of(handler):
                if type in own:
                    self._refuse(type, own[type], handler, "merge them into one handler")
                own[type] = handler
        inherited: dict[str | None, Handler] = {}
        for parent in self._parents:
            called = {type: handler for handler in parent.handlers for type in _types_of(handler)}
            for type, handler in called.items():
                if inherited.setdefault(type, handler) != handler and type not in own:
                    self._refuse(type, inherited[type], handler, "define a handler for it in this class")

    def _refuse(self, type: str | None, first: Handler, second: Handler, advice: str) -> None:
        what = "events of every other type" if type is None else f"the stored type {type!r}"
        both = f"{location_of(first.method)} and {location_of(second.method)}"
        raise DefinitionError(f"{self._name}: 2 handlers for {what}, {both}; {advice}")

    def _scope(self) -> tuple[dict[str, str], dict[str, Any]]:
        """The names of the tags that the parameters stand for, and the types of the parameters."""
        known = {parameter: hint for parent in self._parents for parameter, hint in parent.scope_types.items()}
        known |= self._hints
        if "__init__" in self._body:
            hints = self._parameters()
            scope = {name: name for name in hints} | tag_fields(hints)
            known |= {name: hint for name, hint in hints.items() if hint is not inspect.Parameter.empty}
        else:
            scope = {parameter: name for parent in self._parents for parameter, name in parent.scope.items()}
            scope |= tag_fields(self._hints)
        return scope, {parameter: known.get(parameter, str) for parameter in scope}

    def _parameters(self) -> dict[str, Any]:
        """The parameters of `__init__` and their annotations."""
        hints = {}
        for parameter in list(inspect.signature(self._body["__init__"]).parameters.values())[1:]:
            if parameter.kind not in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
                raise DefinitionError(
                    f"{self._name}: the parameter {parameter} of __init__ cannot be a tag; make it positional"
                )
            hints[parameter.name] = evaluate(parameter.annotation, self._visible, self._name)
        return hints

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
            elif type(value).__hash__ is None:  # a list, dict or set, which instances must not share
                factories[name] = partial(deepcopy, value)
        for name, hint in self._hints.items():
            if name not in scope and name not in state:
                if "__init__" not in self._body:
                    raise DefinitionError(
                        f"{self._name}: {name!r} needs an initial value, or the annotation Tag if it is a tag"
                    )
                state[name] = hint
        return state, factories

    def _factory(self, name: str, value: dataclasses.Field[Any]) -> Callable[[], Any]:
        if value.default_factory is not dataclasses.MISSING:
            return value.default_factory
        if value.default is dataclasses.MISSING:
            raise DefinitionError(f"{self._name}: {name!r} needs an initial value")
        return partial(deepcopy, value.default)


def _types_of(handler: Handler) -> list[str | None]:
    """The stored types that the handler handles; None stands for all other types."""
    return [declaration.type for declaration in handler.declarations] or [None]


def _initial_state(cls: Any) -> dict[str, Any]:
    """The initial values in the class body; those that `__init__` sets are not known before it runs."""
    made = {name: make() for name, make in cls.definition.factories.items()}
    return made | {name: getattr(cls, name) for name in cls.definition.state if name not in made and hasattr(cls, name)}


def _is_behaviour(value: object) -> bool:
    return inspect.isroutine(value) or isinstance(value, type) or hasattr(type(value), "__get__")


def _order_arguments(cls: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """The arguments of a call as a tuple, in the order of the scope."""
    scope = cls.definition.scope
    if cls.__init__ is not object.__init__:
        bound = inspect.signature(cls.__init__).bind(None, *args, **kwargs)
        bound.apply_defaults()
        return bound.args[1:]
    given = dict(zip(scope, args, strict=False)) | kwargs
    if len(args) > len(scope) or given.keys() != scope.keys() or len(given) != len(args) + len(kwargs):
        wanted = f"({', '.join(scope)})"
        raise TypeError(f"{cls.__name__}{wanted}: wrong arguments {args} {kwargs or ''}".rstrip())
    return tuple(given[parameter] for parameter in scope)
