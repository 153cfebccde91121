"""Typed events: a class says what an event holds, which fields are tags, and how it is stored.

`@event` turns a plain class of annotated fields into an immutable msgspec struct, the fastest of
the kinds; dataclasses, msgspec structs and pydantic models are taken as they are. All that can
be known from the class is worked out once, in its `Declaration`: the type's name, the tags, a
compiled codec, the upgrades. Between an event and its bytes there is then no look-up left.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Generic, Literal, TypeVar, dataclass_transform, get_type_hints, overload

import msgspec

from ..model import Event, SequencedEvent, checked_type, event_of, item_of
from .codecs import Codec, CodecFactory, is_pydantic, json_codec
from .errors import DefinitionError, EventUnreadable, TypeUnknown
from .hints import evaluated, names_around
from .idempotency import Once
from .tags import tag_fields, tag_text, tags_of
from .upcasting import VERSION, Upgrade, check_upgrades, upgraded, version_of

T = TypeVar("T")

UnknownFields = Literal["refuse", "ignore"]


class Declaration(Generic[T]):
    """What `@event` knows of a class; `declaration_of(cls)` finds it."""

    def __init__(
        self,
        cls: type[T],
        annotations: Mapping[str, Any],
        type: str,
        version: int,
        upgrades: Mapping[int, Upgrade],
        codec: Codec,
        is_json: bool,
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
        self._is_json = is_json

    def encode(self, event: T, metadata: Mapping[str, str] | None = None, tag: str | None = None) -> Event:
        """The event as the store takes it."""
        tags = self._tags(event)
        if tag is not None:
            tags.add(tag)
        if self.version > 1:
            metadata = {**(metadata or {}), VERSION: str(self.version)}
        return event_of(self.type, self._write(event), tags, metadata)

    def decode(self, stored: SequencedEvent) -> T:
        """The event as an object of its class, of whatever version it was written."""
        version = self._version_of(stored)
        try:
            if version == self.version:
                return self.read(stored.data)  # type: ignore[no-any-return]
            fields = upgraded(self._codec.fields(stored.data), version, self.version, self.upgrades)
            return self._codec.build(fields)  # type: ignore[no-any-return]
        except (ValueError, LookupError, TypeError) as error:
            problem = f"it does not fit {self.cls.__qualname__} (version {version} of {self.version}): {error}"
            raise EventUnreadable(stored, problem) from error

    def json(self, stored: SequencedEvent) -> bytes:
        """The event as JSON, written anew: only what was read is known to be an event, or JSON at all."""
        write = self._write if self._is_json else json_codec(self.cls, True).write
        return write(self.decode(stored))

    def _version_of(self, stored: SequencedEvent) -> int:
        # Asked of the stored form: most events have no metadata, and decoding nothing takes longer than the event.
        return 1 if stored._metadata is None or VERSION not in stored.metadata else version_of(stored, self.version)

    def having(self, **tags: object) -> Once:
        """The event of this class with these tags, by the name of the field or of the tag."""
        texts = []
        try:
            for name, value in tags.items():
                texts.append(tag_text(self._tag_by_any_name[name], value))
        except KeyError as unknown:
            problem = f"{unknown} is none of its tags, which are {sorted(self.tag_names)}"
            raise DefinitionError(f"{self.cls.__name__}.having: {problem}") from None
        if not texts:
            raise DefinitionError(f"{self.cls.__name__}.having: name at least 1 of its tags {sorted(self.tag_names)}")
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

    `type` is its name in the store, by default that of the class. `upgrades[n]` turns the fields
    of version n into those of n + 1. Unknown fields in stored data are refused unless declared to
    be ignored. `codec` makes the codec, JSON by default.
    """
    if unknown_fields not in ("refuse", "ignore"):
        raise DefinitionError(f"unknown_fields: 'refuse' or 'ignore', not {unknown_fields!r}")
    visible = names_around(1)

    def declare(given: Any) -> Any:
        name = checked_type(type if type is not None else given.__name__, "type")
        check_upgrades(name, version, upgrades or {})
        refuse = unknown_fields == "refuse"
        made, annotations = _made(given, visible, refuse)
        if "having" in annotations:
            raise DefinitionError(f"{name}: 'having' is taken; name the field otherwise")
        declaration: Declaration[Any] = Declaration(
            made, annotations, name, version, upgrades or {}, codec(made, refuse), codec is json_codec
        )
        made.__event__ = declaration
        made.having = declaration.having
        return made

    return declare if cls is None else declare(cls)


def having(cls: type, **tags: object) -> Once:
    """`cls.having(...)`, in the form that type checkers understand."""
    return declaration_of(cls).having(**tags)


def declaration_of(cls: type[T]) -> Declaration[T]:
    """What `@event` knows of the class."""
    declaration: Declaration[T] | None = getattr(cls, "__event__", None)
    if declaration is None or declaration.cls is not cls:
        raise DefinitionError(f"{getattr(cls, '__qualname__', cls)} is not an event: declare it with @event")
    return declaration


class EventTypes:
    """A set of event classes, to read what is stored: the right class by type.

    What is none of them is handled as declared: `unknown="refuse"` raises `TypeUnknown`,
    `unknown="keep"` gives the stored event as it is.
    """

    def __init__(self, *classes: type, unknown: Literal["refuse", "keep"] = "refuse") -> None:
        if unknown not in ("refuse", "keep"):
            raise DefinitionError(f"unknown: 'refuse' or 'keep', not {unknown!r}")
        self._keep = unknown == "keep"
        self._by_type: dict[str, Declaration[Any]] = {}
        for cls in classes:
            declaration: Declaration[Any] = declaration_of(cls)
            if declaration.type in self._by_type:
                raise DefinitionError(f"two classes are declared for the type {declaration.type!r}")
            self._by_type[declaration.type] = declaration

    @property
    def types(self) -> frozenset[str]:
        return frozenset(self._by_type)

    def decode(self, stored: SequencedEvent) -> Any:
        declaration = self._by_type.get(stored.type)
        if declaration is not None:
            return declaration.decode(stored)
        if self._keep:
            return stored
        raise self._unknown(stored)

    def json(self, stored: SequencedEvent) -> bytes:
        """What `decode` gives, as JSON; a type that is none of these is refused in any case.

        The stored bytes are read and written anew: a store takes any bytes under any type, so they may be no JSON, or
        hold fields that the class does not know. What does not fit the class raises `EventUnreadable`. Whether the
        fields agree with the event's tags is not checked.
        """
        declaration = self._by_type.get(stored.type)
        if declaration is None:
            raise self._unknown(stored)
        return declaration.json(stored)

    def _unknown(self, stored: SequencedEvent) -> TypeUnknown:
        return TypeUnknown(stored, f"none of the classes for {sorted(self._by_type)} is declared for it")


def encode(event: object, metadata: Mapping[str, str] | None = None, tag: str | None = None) -> Event:
    """A typed event as the store takes it; an `Event` made by hand passes as it is."""
    if type(event) is Event:
        if metadata or tag is not None:
            tags = event.tags if tag is None else event.tags | {tag}
            return Event(
                event.type, data=event.data, tags=tags, id=event.id, metadata={**(metadata or {}), **event.metadata}
            )
        return event
    return declaration_of(type(event)).encode(event, metadata, tag)


def _made(given: Any, visible: dict[str, Any], refuse: bool) -> tuple[Any, dict[str, Any]]:
    """The class that will be the event, and the annotations of its fields."""
    known = isinstance(given, msgspec.StructMeta) or dataclasses.is_dataclass(given) or is_pydantic(given)
    if known:
        names = given.model_fields if is_pydantic(given) else getattr(given, "__struct_fields__", None)
        if names is None:
            names = [field.name for field in dataclasses.fields(given)]
        hints = get_type_hints(given, localns=visible, include_extras=True)
        return given, {name: hints[name] for name in names}
    return _struct(given, visible, refuse)


def _struct(given: Any, visible: dict[str, Any], refuse: bool) -> tuple[Any, dict[str, Any]]:
    """A plain class of annotated fields, as an immutable struct."""
    own = dict(vars(given))
    where = given.__qualname__
    annotations = {name: evaluated(hint, visible, where) for name, hint in own.pop("__annotations__", {}).items()}
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
