"""Typed events: a class declares the fields of an event, which of them are tags, and how it is stored.

`@event` turns a plain class of annotated fields into an immutable msgspec struct, the fastest kind. Dataclasses,
msgspec structs and pydantic models are used unchanged. The `Declaration` of a class holds what follows from it,
computed once: the name of the type, the tags, a compiled codec, and the upgrades of older versions.

Encoding an event also decodes the result with the event's own class. An event that could not be read later is refused
before it is stored, because a stored event cannot be changed: tests/decisions/test_events.py.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Generic, Literal, TypeVar, dataclass_transform, get_type_hints, overload

import msgspec

from ..errors import InvalidInput
from ..model import Event, SequencedEvent, checked_type, event_of, item_of
from .codecs import Codec, CodecFactory, describe_failure, is_pydantic, json_codec
from .errors import DefinitionError, EventUnreadable, TypeUnknown
from .hints import evaluate, visible_names
from .idempotency import Once
from .tags import tag_fields, tag_text, tags_of
from .upcasting import VERSION, Upgrade, check_upgrades, upgraded, version_of

T = TypeVar("T")

UnknownFields = Literal["refuse", "ignore"]


class Declaration(Generic[T]):
    """What `@event` declares about a class. `declaration_of(cls)` returns it."""

    def __init__(
        self,
        cls: type[T],
        annotations: Mapping[str, Any],
        type: str,
        version: int,
        upgrades: Mapping[int, Upgrade],
        codec: Codec,
        codec_factory: CodecFactory,
    ) -> None:
        self.cls = cls
        self.type = type
        self.version = version
        self.upgrades = dict(upgrades)
        self.fields = dict(annotations)
        self.tag_fields = tag_fields(annotations)
        self.tag_names = frozenset(self.tag_fields.values())
        self._tag_by_any_name = {name: name for name in self.tag_names} | self.tag_fields
        self._codec = codec
        self._write = codec.write
        self.read = codec.read
        self._tags = tags_of(self.tag_fields)
        self._types = frozenset((type,))
        self.codec_factory = codec_factory

    def encode(self, event: T, metadata: Mapping[str, str] | None = None, tag: str | None = None) -> Event:
        """The event as the store accepts it. Raises `InvalidInput` if its class could not read it back."""
        try:
            data = self._write(event)
            self.read(data)
        except Exception as error:
            field, problem = describe_failure(error, event, self.fields)
            where = ".".join(filter(None, (self.cls.__name__, field)))
            raise InvalidInput(where, f"{problem}; an event must be readable by its own class") from error
        tags = self._tags(event)
        if tag is not None:
            tags.add(tag)
        if self.version > 1:
            metadata = {**(metadata or {}), VERSION: str(self.version)}
        return event_of(self.type, data, tags, metadata)

    def decode(self, stored: SequencedEvent) -> T:
        """The stored event as an object of its class. Upgrades it if it was written with an older version."""
        version = version_of(stored, self.version)
        try:
            if version == self.version:
                return self.read(stored.data)  # type: ignore[no-any-return]
            fields = upgraded(stored, self._codec.fields(stored.data), version, self.version, self.upgrades)
            return self._codec.build(fields)  # type: ignore[no-any-return]
        except EventUnreadable:
            raise
        except Exception as error:  # the codec or the class may raise any exception
            problem = f"it does not fit {self.cls.__qualname__} (version {version} of {self.version}): {error}"
            raise EventUnreadable(stored, problem) from error

    def json(self, stored: SequencedEvent) -> bytes:
        """The event as JSON. Decoded and encoded again, because the stored bytes may not fit the class."""
        write = self._write if self.codec_factory is json_codec else json_codec(self.cls, True).write
        return write(self.decode(stored))

    def having(self, **tags: object) -> Once:
        """The `Once` that finds the event of this class with these tags, by the names of fields or tags."""
        texts = []
        try:
            for name, value in tags.items():
                texts.append(tag_text(self._tag_by_any_name[name], value))
        except KeyError as unknown:
            problem = f"{unknown} is not a tag of the event, which has {sorted(self.tag_names)}"
            raise DefinitionError(f"{self.cls.__name__}.having: {problem}") from None
        if not texts:
            raise DefinitionError(f"{self.cls.__name__}.having: pass at least 1 of the tags {sorted(self.tag_names)}")
        return Once(item_of(self._types, texts), self)


@overload
def event(cls: type[T], /) -> type[T]: ...
@overload
def event(
    *,
    type: str | None = None,
    version: int = 1,
    upgrades: Mapping[int, Upgrade] | None = None,
    unknown_fields: UnknownFields = "refuse",
    codec: CodecFactory = json_codec,
) -> Callable[[type[T]], type[T]]: ...
@dataclass_transform(frozen_default=True)
def event(
    cls: Any = None,
    /,
    *,
    type: str | None = None,
    version: int = 1,
    upgrades: Mapping[int, Upgrade] | None = None,
    unknown_fields: UnknownFields = "refuse",
    codec: CodecFactory = json_codec,
) -> Any:
    """Declare a class to be an event.

    `type` is the name of the type in the store, by default the name of the class. `upgrades[n]` is a function that
    turns the fields of version n into those of version n + 1. Unknown fields in stored data raise `EventUnreadable`,
    unless `unknown_fields="ignore"`. `codec` makes the codec, by default JSON.
    """
    if unknown_fields not in ("refuse", "ignore"):
        raise DefinitionError(f"unknown_fields must be 'refuse' or 'ignore', not {unknown_fields!r}")
    visible = visible_names(1)

    def declare(given: Any) -> Any:
        name = checked_type(type if type is not None else given.__name__, "type")
        check_upgrades(name, version, upgrades or {})
        refuse = unknown_fields == "refuse"
        made, annotations = _made(given, visible, refuse)
        if "having" in annotations:
            raise DefinitionError(f"{name}: the field name 'having' is reserved; rename the field")
        declaration: Declaration[Any] = Declaration(
            made, annotations, name, version, upgrades or {}, codec(made, refuse), codec
        )
        made.__event__ = declaration
        made.having = declaration.having
        return made

    return declare if cls is None else declare(cls)


def having(cls: type, **tags: object) -> Once:
    """The same as `cls.having(...)`, in a form that type checkers understand."""
    return declaration_of(cls).having(**tags)


def declaration_of(cls: type[T]) -> Declaration[T]:
    """The declaration of an event class."""
    declaration: Declaration[T] | None = getattr(cls, "__event__", None)
    if declaration is None or declaration.cls is not cls:
        raise DefinitionError(f"{getattr(cls, '__qualname__', cls)} is not an event: declare it with @event")
    return declaration


class EventTypes:
    """A set of event classes that decodes stored events by their type.

    For an event of another type, `unknown="refuse"` raises `TypeUnknown`, and `unknown="keep"` returns the stored
    event.
    """

    def __init__(self, *classes: type, unknown: Literal["refuse", "keep"] = "refuse") -> None:
        if unknown not in ("refuse", "keep"):
            raise DefinitionError(f"unknown must be 'refuse' or 'keep', not {unknown!r}")
        self._keep = unknown == "keep"
        self._by_type: dict[str, Declaration[Any]] = {}
        for cls in classes:
            declaration: Declaration[Any] = declaration_of(cls)
            if declaration.type in self._by_type:
                raise DefinitionError(f"EventTypes got two classes for the type {declaration.type!r}; pass one of them")
            self._by_type[declaration.type] = declaration

    @property
    def types(self) -> frozenset[str]:
        return frozenset(self._by_type)

    def decode(self, stored: SequencedEvent) -> Any:
        if self._keep and stored.type not in self._by_type:
            return stored
        return self._declaration(stored).decode(stored)

    def json(self, stored: SequencedEvent) -> bytes:
        """The event as JSON. Raises `TypeUnknown` for a type that is not in the set, also with `unknown="keep"`.

        The event is decoded and encoded again, because a store accepts any bytes under any type: they may not be JSON,
        or may hold fields that the class does not have. Raises `EventUnreadable` for data that does not fit the class.
        Does not check whether the fields agree with the event's tags.
        """
        return self._declaration(stored).json(stored)

    def _declaration(self, stored: SequencedEvent) -> Declaration[Any]:
        declaration = self._by_type.get(stored.type)
        if declaration is None:
            raise TypeUnknown(stored, f"this EventTypes has classes for {sorted(self._by_type)} only")
        return declaration


def encode(event: object, metadata: Mapping[str, str] | None = None, tag: str | None = None) -> Event:
    """A typed event as the store accepts it. An `Event` is returned without being checked.

    Raises `InvalidInput`, which names the class and the field, for an event that its own class could not read back.
    """
    if type(event) is Event:
        if metadata or tag is not None:
            tags = event.tags if tag is None else event.tags | {tag}
            return Event(
                event.type, data=event.data, tags=tags, id=event.id, metadata={**(metadata or {}), **event.metadata}
            )
        return event
    return declaration_of(type(event)).encode(event, metadata, tag)


def _made(given: Any, visible: dict[str, Any], refuse: bool) -> tuple[Any, dict[str, Any]]:
    """The event class and the annotations of its fields."""
    known = isinstance(given, msgspec.StructMeta) or dataclasses.is_dataclass(given) or is_pydantic(given)
    if known:
        names = given.model_fields if is_pydantic(given) else getattr(given, "__struct_fields__", None)
        if names is None:
            names = [field.name for field in dataclasses.fields(given)]
        hints = get_type_hints(given, localns=visible, include_extras=True)
        return given, {name: hints[name] for name in names}
    return _struct(given, visible, refuse)


def _struct(given: Any, visible: dict[str, Any], refuse: bool) -> tuple[Any, dict[str, Any]]:
    """Turn a plain class of annotated fields into an immutable struct."""
    own = dict(vars(given))
    where = given.__qualname__
    annotations = {name: evaluate(hint, visible, where) for name, hint in own.pop("__annotations__", {}).items()}
    fields = [(name, hint, own.pop(name)) if name in own else (name, hint) for name, hint in annotations.items()]
    for name in ("__dict__", "__weakref__"):
        own.pop(name, None)
    made = msgspec.defstruct(
        given.__name__,
        fields,
        bases=tuple(base for base in given.__bases__ if base is not object) or None,
        module=given.__module__,
        namespace=own,
        frozen=True,
        forbid_unknown_fields=refuse,
    )
    return made, annotations
