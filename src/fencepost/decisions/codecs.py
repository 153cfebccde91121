"""From an event object to bytes and back: JSON, unless the event declares something else.

A codec is made once per event class, so that encoders and decoders are compiled once. `read`
refuses unknown fields or not, as the event declares. `fields` and `build` are the same way back
in two steps, with a dict between them on which upgrades of older versions work.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol, TypeAlias

import msgspec


class Codec(Protocol):
    """Turns the events of one class into bytes and back. Raises ValueError for what does not fit."""

    def write(self, event: Any, /) -> bytes: ...

    def read(self, data: bytes, /) -> Any: ...

    def fields(self, data: bytes, /) -> dict[str, Any]:
        """The fields as plain values, unchecked, in a dict of their own."""

    def build(self, fields: Mapping[str, Any], /) -> Any:
        """The event with these fields, checked as by `read`."""


# From an event class, and whether unknown fields are refused, to its codec.
CodecFactory: TypeAlias = Callable[[type, bool], Codec]


def json_codec(cls: type, refuse_unknown: bool) -> Codec:
    """JSON, for dataclasses, msgspec structs and pydantic models."""
    if is_pydantic(cls):
        return PydanticCodec(cls, refuse_unknown)
    decode: Any = msgspec.json.Decoder(cls).decode
    fields = msgspec.json.Decoder(dict[str, Any]).decode
    return MsgspecCodec(cls, refuse_unknown, msgspec.json.Encoder().encode, decode, fields)


def msgpack_codec(cls: type, refuse_unknown: bool) -> Codec:
    """MessagePack, for dataclasses and msgspec structs: smaller, and not readable by eye."""
    decode: Any = msgspec.msgpack.Decoder(cls).decode
    fields = msgspec.msgpack.Decoder(dict[str, Any]).decode
    return MsgspecCodec(cls, refuse_unknown, msgspec.msgpack.Encoder().encode, decode, fields)


def is_pydantic(cls: type) -> bool:
    """Known by its looks, so that pydantic need not be installed."""
    return hasattr(cls, "model_validate_json") and hasattr(cls, "__pydantic_validator__")


def fields_of(cls: Any) -> Iterable[Any]:
    """What the class says of its fields, each kind in its own words."""
    if is_pydantic(cls):
        fields: dict[str, Any] = cls.model_fields
        return fields.values()
    return dataclasses.fields(cls) if dataclasses.is_dataclass(cls) else msgspec.structs.fields(cls)


class MsgspecCodec:
    """msgspec's compiled encoder and decoder, called directly wherever nothing is to be added."""

    write: Callable[[Any], bytes]
    read: Callable[[bytes], Any]
    fields: Callable[[bytes], dict[str, Any]]

    def __init__(
        self,
        cls: type,
        refuse_unknown: bool,
        encode: Callable[[Any], bytes],
        decode: Callable[[bytes], Any],
        fields: Callable[[bytes], dict[str, Any]],
    ) -> None:
        self.write = encode
        self.read = decode
        self.fields = fields
        self._cls = cls
        self._decode = decode
        self._known: frozenset[str] | None = None
        config = getattr(cls, "__struct_config__", None)
        if refuse_unknown and not (config is not None and config.forbid_unknown_fields):
            # msgspec refuses for a struct that forbids them, and at no cost; for everything else
            # it skips unknown fields without a word, so the names are compared here.
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
    """A pydantic model's own validation and JSON, fields under their aliases."""

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
        # Through JSON, since pydantic is stricter with Python values than with the JSON of a date.
        return self.read(msgspec.json.encode(fields))


def _stored_names(cls: Any) -> Iterable[str]:
    if dataclasses.is_dataclass(cls):
        return [field.name for field in dataclasses.fields(cls)]
    names: tuple[str, ...] = cls.__struct_encode_fields__
    return names


def _refuse_others(fields: Mapping[str, Any], known: frozenset[str]) -> None:
    for name in fields:
        if name not in known:
            raise ValueError(f"unknown field {name!r}")
