"""Typed events: a class declares the fields of an event, which of them are tags, and how it is stored.

`@event` turns a plain class of annotated fields into an immutable msgspec struct, the fastest kind. Dataclasses,
msgspec structs and pydantic models are used unchanged. The `Declaration` of a class holds what follows from it,
computed once: the name of the type, the tags, a compiled codec, and the upgrades of older versions.

Tags: a field annotated `Tag` becomes the tag `field:value`, and `Annotated[str, tag("wallet_id")]` the tag
`wallet_id:value`. Only this module converts values into tags, so events and projections cannot disagree.

Versions: the version is in the event's metadata, not in its type, so all versions match the same queries. For each
older version the class declares an upgrade, a pure function from the fields of that version to those of the next. A
process that knows only version 1 raises an error when it reads version 2: tests/decisions/test_upcasting.py.

Encoding an event also decodes the result with the event's own class. An event that could not be read later is refused
before it is stored, because a stored event cannot be changed: tests/decisions/test_events.py.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date
from enum import Enum
from typing import (
    Annotated,
    Any,
    Final,
    Generic,
    Literal,
    TypeAlias,
    TypeVar,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
    overload,
)
from uuid import UUID

import msgspec

from ..errors import InvalidInput
from ..model import Event, SequencedEvent, checked_type, event_of, item_of
from .annotations import alternatives, evaluate, location_of, visible_names
from .codecs import Codec, CodecFactory, codec_factory, describe_failure, is_pydantic, json_codec
from .errors import DefinitionError, EventUnreadable, TypeUnknown
from .once import Once


@dataclass(frozen=True, slots=True)
class tag:
    """Marks a field as a tag with the given name, by default the name of the field."""

    name: str | None = None


Tag: TypeAlias = Annotated[str, tag()]


def tag_fields(annotations: Mapping[str, Any]) -> dict[str, str]:
    """The fields that are tags, and the names of their tags."""
    marked = {name: _marker(annotation) for name, annotation in annotations.items()}
    return {name: marker.name or name for name, marker in marked.items() if marker is not None}


def tag_text(name: str, value: object) -> str:
    """
    >>> tag_text("wallet_id", "w1")
    'wallet_id:w1'
    """
    if type(value) is str:
        return f"{name}:{value}"
    if isinstance(value, Enum):
        return tag_text(name, value.value)
    if isinstance(value, (str, int, UUID, date)) and not isinstance(value, bool):
        return f"{name}:{value}"
    raise InvalidInput(name, f"the value of a tag must be a str, int, UUID, date or Enum, not {type(value).__name__}")


def tags_of(fields: Mapping[str, str]) -> Callable[[object], set[str]]:
    """A function that returns the tags of an event with these fields, which are mapped to the names of their tags."""
    pairs = tuple(fields.items())

    def tags(event: object) -> set[str]:
        found = set()
        for field, name in pairs:
            value = getattr(event, field)
            if type(value) is str:
                found.add(f"{name}:{value}")
            elif isinstance(value, (list, tuple, set, frozenset)):
                found.update(tag_text(name, each) for each in value)
            elif value is not None:
                found.add(tag_text(name, value))
        return found

    return tags


def _marker(annotation: object) -> tag | None:
    """The `tag` in the annotation itself, in a member of a union, or in the item type of a collection."""
    for member in alternatives(annotation):
        if get_origin(member) is Annotated:
            for extra in get_args(member)[1:]:
                if isinstance(extra, tag):
                    return extra
                if extra is tag:
                    return tag()
        elif get_origin(member) in (list, tuple, set, frozenset):
            for item in get_args(member):
                marker = _marker(item)
                if marker is not None:
                    return marker
    return None


# The metadata key of the version. Version 1 is not stored.
VERSION: Final = "event_version"

# The longest version that is parsed; Python refuses to convert thousands of digits.
MAX_DIGITS: Final = 9

Upgrade: TypeAlias = Callable[[dict[str, Any]], dict[str, Any]]


def check_upgrades(name: str, version: int, upgrades: Mapping[int, Upgrade]) -> None:
    """Check that every older version has an upgrade, when the class is declared and not when an old event is read."""
    if version < 1:
        raise DefinitionError(f"{name}: the version must be 1 or more, not {version}")
    missing = sorted(set(range(1, version)) - set(upgrades))
    if missing:
        raise DefinitionError(
            f"{name}: version {version} needs an upgrade from each older version; upgrades has none from {missing}"
        )
    beyond = sorted(set(upgrades) - set(range(1, version)))
    if beyond:
        raise DefinitionError(f"{name}: upgrades has entries from {beyond}, but the version is {version}")


def version_of(event: SequencedEvent, newest: int) -> int:
    """The version of the stored event. Raises `EventUnreadable` if it is newer than the class."""
    # Looks at the stored form first: decoding empty metadata would take longer than decoding the event.
    if event.raw_metadata is None or VERSION not in event.metadata:
        return 1
    text = event.metadata[VERSION]
    if not (text.isascii() and text.isdigit() and len(text) <= MAX_DIGITS) or int(text) < 1:
        raise EventUnreadable(event, f"its metadata {VERSION!r} is {text!r}, which is not a version")
    version = int(text)
    if version > newest:
        problem = f"it has version {version}, but the class has version {newest}; deploy the newer class to read it"
        raise EventUnreadable(event, problem)
    return version


def apply_upgrades(
    stored: SequencedEvent, fields: dict[str, Any], version: int, newest: int, upgrades: Mapping[int, Upgrade]
) -> dict[str, Any]:
    """Apply the upgrades from `version` to `newest` to the fields of a stored event."""
    for older in range(version, newest):
        upgrade = upgrades[older]
        try:
            fields = upgrade(fields)
        except Exception as error:
            problem = f"upgrades[{older}], {location_of(upgrade)}, raised {type(error).__name__}: {error}"
            raise EventUnreadable(stored, f"{problem} (version {version} of {newest})") from error
        if not isinstance(fields, dict):
            problem = f"upgrades[{older}], {location_of(upgrade)}, returned {fields!r:.80} instead of a dict of fields"
            raise EventUnreadable(stored, problem)
    return fields


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
            fields = apply_upgrades(stored, self._codec.fields(stored.data), version, self.version, self.upgrades)
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
    codec: CodecFactory | Literal["json", "msgpack"] = "json",
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
    codec: CodecFactory | Literal["json", "msgpack"] = "json",
) -> Any:
    """Declare a class to be an event.

    `type` is the name of the type in the store, by default the name of the class. `upgrades[n]` is a function that
    turns the fields of version n into those of version n + 1. Unknown fields in stored data raise `EventUnreadable`,
    unless `unknown_fields="ignore"`. `codec` is "json", "msgpack", or a function that makes a codec of your own.
    """
    if unknown_fields not in ("refuse", "ignore"):
        raise DefinitionError(f"unknown_fields must be 'refuse' or 'ignore', not {unknown_fields!r}")
    make_codec = codec_factory(codec)
    visible = visible_names(1)

    def declare(given: Any) -> Any:
        name = checked_type(type if type is not None else given.__name__, "type")
        check_upgrades(name, version, upgrades or {})
        refuse = unknown_fields == "refuse"
        made, annotations = _event_class(given, visible, refuse)
        if "having" in annotations:
            raise DefinitionError(f"{name}: the field name 'having' is reserved; rename the field")
        declaration: Declaration[Any] = Declaration(
            made, annotations, name, version, upgrades or {}, make_codec(made, refuse), make_codec
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


def _event_class(given: Any, visible: dict[str, Any], refuse: bool) -> tuple[Any, dict[str, Any]]:
    """The event class and the annotations of its fields."""
    known = isinstance(given, msgspec.StructMeta) or dataclasses.is_dataclass(given) or is_pydantic(given)
    if known:
        names = given.model_fields if is_pydantic(given) else getattr(given, "__struct_fields__", None)
        if names is None:
            names = [field.name for field in dataclasses.fields(given)]
        hints = get_type_hints(given, localns=visible, include_extras=True)
        return given, {name: hints[name] for name in names}
    return _make_struct(given, visible, refuse)


def _make_struct(given: Any, visible: dict[str, Any], refuse: bool) -> tuple[Any, dict[str, Any]]:
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
