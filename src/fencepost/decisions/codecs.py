"""Encode event objects as bytes and decode them: as JSON, unless the event class declares another codec.

There is one codec per event class, so encoders and decoders are compiled once. `read` decodes in one step, and refuses
unknown fields unless the class ignores them. `fields` and `build` decode in two steps, with a dict of fields between
them, which upgrades of older versions change.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Mapping
from math import isfinite
from typing import Any, Final, Protocol, TypeAlias

import msgspec

from .errors import DefinitionError

# The form of msgspec's messages, which end with the path of the wrong value.
MSGSPEC_ERROR: Final = re.compile(r"(?P<problem>.*) - at (?:`key` in )?`\$\.?(?P<path>[^`]*)`", re.DOTALL)


class Codec(Protocol):
    """Encodes and decodes the events of one class. Raises ValueError for data that does not fit the class."""

    def write(self, event: Any, /) -> bytes: ...

    def read(self, data: bytes, /) -> Any: ...

    def fields(self, data: bytes, /) -> dict[str, Any]:
        """The fields as a new dict of plain values, not yet validated."""

    def build(self, fields: Mapping[str, Any], /) -> Any:
        """The event with these fields, validated as by `read`."""


# Called with an event class and whether to refuse unknown fields; returns the codec.
CodecFactory: TypeAlias = Callable[[type, bool], Codec]


def codec_factory(codec: CodecFactory | str) -> CodecFactory:
    """The factory that `@event(codec=...)` names."""
    if callable(codec):
        return codec
    if codec not in ("json", "msgpack"):
        raise DefinitionError(f"codec: {codec!r} is not 'json', 'msgpack' or a function that makes a codec")
    return json_codec if codec == "json" else msgpack_codec


def json_codec(cls: type, refuse_unknown: bool) -> Codec:
    """JSON, for dataclasses, msgspec structs and pydantic models."""
    if is_pydantic(cls):
        return PydanticCodec(cls, refuse_unknown)
    return MsgspecCodec(cls, refuse_unknown, msgspec.json)


def msgpack_codec(cls: type, refuse_unknown: bool) -> Codec:
    """MessagePack, for dataclasses and msgspec structs: smaller, and not readable by eye."""
    return MsgspecCodec(cls, refuse_unknown, msgspec.msgpack)


def is_pydantic(cls: type) -> bool:
    """Recognised by its attributes, so that pydantic need not be installed."""
    return hasattr(cls, "model_validate_json") and hasattr(cls, "__pydantic_validator__")


def fields_of(cls: Any) -> Iterable[Any]:
    """The field objects of the class: of pydantic, dataclasses or msgspec."""
    if is_pydantic(cls):
        fields: dict[str, Any] = cls.model_fields
        return fields.values()
    return dataclasses.fields(cls) if dataclasses.is_dataclass(cls) else msgspec.structs.fields(cls)


def describe_failure(error: Exception, event: object, names: Iterable[str]) -> tuple[str, str]:
    """The field of the event that could not be encoded or decoded ("" if unknown), and the reason."""
    found = MSGSPEC_ERROR.fullmatch(str(error))
    if found is not None:
        value = getattr(event, found["path"], None)
        if isinstance(value, float) and not isfinite(value):
            return found["path"], f"{value} is not a number in JSON, which has no NaN and no infinity"
        return found["path"], found["problem"]
    if type(error).__module__.startswith("pydantic") and hasattr(error, "errors"):
        first = error.errors()[0]
        return ".".join(map(str, first["loc"])), first["msg"]
    for name in names:
        try:
            msgspec.json.encode(getattr(event, name, None))
        except Exception as reason:
            if str(reason) == str(error):
                return name, str(reason)
    return "", f"{type(error).__name__}: {error}"


class MsgspecCodec:
    """Uses msgspec's compiled encoder and decoder, called directly unless field names must be compared."""

    def __init__(self, cls: type, refuse_unknown: bool, form: Any) -> None:
        """`form` is the module of msgspec for the stored form."""
        self.write: Callable[[Any], bytes] = form.Encoder().encode
        self.fields: Callable[[bytes], dict[str, Any]] = form.Decoder(dict[str, Any]).decode
        self.read: Callable[[bytes], Any] = form.Decoder(cls).decode
        self._cls = cls
        self._decode = self.read
        self._known: frozenset[str] | None = None
        config = getattr(cls, "__struct_config__", None)
        if refuse_unknown and not (config is not None and config.forbid_unknown_fields):
            # msgspec itself refuses unknown fields of a struct that forbids them. For all other classes it skips
            # unknown fields silently, so this codec compares the names.
            self._known = frozenset(_stored_names(cls))
            self.read = self._read_known

    def build(self, fields: Mapping[str, Any], /) -> Any:
        if self._known is not None:
            _refuse_others(fields, self._known)
        return msgspec.convert(fields, self._cls)

    def _read_known(self, data: bytes) -> Any:
        assert self._known is not None
        _refuse_others(self.fields(data), self._known)
        return self._decode(data)


class PydanticCodec:
    """Uses the validation and JSON of a pydantic model. Fields are stored under their aliases."""

    def __init__(self, cls: Any, refuse_unknown: bool) -> None:
        self._cls = cls
        self._known = frozenset(field.alias or name for name, field in cls.model_fields.items())
        self._refuse_unknown = refuse_unknown
        self.fields: Callable[[bytes], dict[str, Any]] = msgspec.json.Decoder(dict[str, Any]).decode

    def write(self, event: Any, /) -> bytes:
        text: str = event.model_dump_json(by_alias=True)
        return text.encode()

    def read(self, data: bytes, /) -> Any:
        if self._refuse_unknown:
            _refuse_others(self.fields(data), self._known)
        return self._cls.model_validate_json(data)

    def build(self, fields: Mapping[str, Any], /) -> Any:
        # Through JSON, because pydantic accepts a date as a JSON string but not as a Python string in strict mode.
        return self.read(msgspec.json.encode(fields))


def _stored_names(cls: Any) -> Iterable[str]:
    if dataclasses.is_dataclass(cls):
        return [field.name for field in dataclasses.fields(cls)]
    names: tuple[str, ...] = cls.__struct_encode_fields__
    tagged: str | None = cls.__struct_config__.tag_field  # stored with the fields; "type" by default
    return names if tagged is None else (*names, tagged)


def _refuse_others(fields: Mapping[str, Any], known: frozenset[str]) -> None:
    for name in fields:
        if name not in known:
            raise ValueError(f"unknown field {name!r}")
