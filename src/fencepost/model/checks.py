"""Checks of single fields. Each function returns the checked value, or raises `InvalidInput`.

The error names the field, the size of the given value and the limit. The value that is returned is immutable and of
exactly the named class: a subclass of `str` may answer `len` or `isascii` as it likes, and a dict may change after its
check. So no value that passes a check can fail a batch of appends later. tests/unit/test_model.py checks this.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar, cast
from uuid import UUID

from ..errors import InvalidInput
from .encodings import encode_json
from .limits import (
    MAX_DATA_BYTES,
    MAX_METADATA_BYTES,
    MAX_NAME_BYTES,
    MAX_POSITION,
    MAX_REVISION,
    MAX_TAG_BYTES,
    MAX_TAGS,
    MAX_TYPE_BYTES,
    MAX_TYPES,
    MAX_VALUE_BYTES,
)

Checked = TypeVar("Checked")


def checked_type(value: object, field: str) -> str:
    return _checked_string(value, field, MAX_TYPE_BYTES)


def checked_types(values: Iterable[str], field: str) -> frozenset[str]:
    return _checked_strings(values, field, MAX_TYPES, MAX_TYPE_BYTES)


def checked_tags(values: Iterable[str], field: str) -> frozenset[str]:
    return _checked_strings(values, field, MAX_TAGS, MAX_TAG_BYTES)


def checked_name(value: object, field: str) -> str:
    return _checked_string(value, field, MAX_NAME_BYTES)


def checked_position(value: object, field: str) -> int:
    if type(value) is not int:
        if not issubclass(type(value), int) or type(value) is bool:
            raise InvalidInput(field, f"a position is an int, not {kind(value)}")
        value = int.__int__(cast(int, value))
    if not 0 <= value <= MAX_POSITION:
        raise InvalidInput(field, f"{value} is not between 0 and {MAX_POSITION}")
    return value


def checked_id(value: object) -> UUID | None:
    if value is None or type(value) is UUID:
        return value
    if not issubclass(type(value), UUID):
        raise InvalidInput("id", f"a uuid.UUID is needed, not {kind(value)}")
    return UUID(int=vars(UUID)["int"].__get__(value))  # some drivers of databases return subclasses


def checked_data(value: object) -> bytes:
    return _checked_bytes(value, "data", MAX_DATA_BYTES)


def checked_value(value: object) -> bytes:
    return _checked_bytes(value, "value", MAX_VALUE_BYTES)


def checked_revision(value: object, *, least: int) -> int:
    if not issubclass(type(value), int) or type(value) is bool:
        raise InvalidInput("expected", f"a revision is an int, not {kind(value)}")
    revision = int.__int__(cast(int, value))
    if not least <= revision <= MAX_REVISION:
        raise InvalidInput("expected", f"{revision} is not between {least} and {MAX_REVISION}")
    return revision


def checked_prefix(value: object) -> str:
    return _checked_string(value, "prefix", MAX_NAME_BYTES) if value != "" else ""


def checked_metadata(value: Mapping[str, str] | None) -> str | None:
    """The metadata in stored form, which cannot be changed any more: a JSON object, or None if it is empty."""
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise InvalidInput("metadata", f"a mapping of str to str is needed, not {kind(value)}")
    content: dict[str, str] = {}
    for name, text in value.items():
        if not issubclass(type(name), str) or not issubclass(type(text), str):
            raise InvalidInput("metadata", f"names and values are str, unlike {name!r:.80}: {text!r:.80}")
        content[str.__str__(name)] = str.__str__(text)
    if not content:
        return None
    try:
        stored = encode_json(content)
    except UnicodeEncodeError:
        raise InvalidInput("metadata", "not valid Unicode: a lone surrogate in a name or value") from None
    if len(stored) > MAX_METADATA_BYTES:
        raise InvalidInput("metadata", f"{len(stored)} bytes as JSON, the limit is {MAX_METADATA_BYTES}")
    return stored.decode()


def checked_all(values: Iterable[Checked], field: str, kind_of_value: type[Checked]) -> tuple[Checked, ...]:
    """Return the values as a tuple, after a check that each is of exactly this class."""
    name = kind_of_value.__name__
    try:
        given = tuple(values)
    except TypeError:
        raise InvalidInput(field, f"a list of {name} is needed, not {kind(values)}") from None
    for index, value in enumerate(given):
        if type(value) is not kind_of_value:
            raise InvalidInput(f"{field}[{index}]", f"{name} is needed, not {kind(value)}{_what_to_do(value)}")
    return given


def kind(value: object) -> str:
    """What to call the value in an error: the name of its type, or None."""
    return "None" if value is None else type(value).__name__


def _what_to_do(value: object) -> str:
    if hasattr(type(value), "__event__"):  # declared with `fencepost.decisions.event`
        return ": encode it with fencepost.decisions.encode, or append it by a decision"
    return ": append its .event" if hasattr(type(value), "raw_recorded_at") else ""


def _checked_bytes(value: object, field: str, limit: int) -> bytes:
    if type(value) is not bytes:
        if not issubclass(type(value), (bytes, bytearray, memoryview)):
            raise InvalidInput(field, f"bytes are needed, not {kind(value)}: encode it first")
        value = bytes(memoryview(cast(bytes, value)))
    if len(value) > limit:
        raise InvalidInput(field, f"{len(value)} bytes, the limit is {limit}")
    return value


def _checked_string(value: object, field: str, limit: int) -> str:
    if type(value) is not str:
        if not issubclass(type(value), str):
            raise InvalidInput(field, f"a str is needed, not {kind(value)}")
        value = str.__str__(value)  # of an enum that is a str, `str()` would return its name
    if value.isascii():
        size = len(value)  # ASCII characters take one byte each
    else:
        try:
            size = len(value.encode())
        except UnicodeEncodeError as error:
            raise InvalidInput(
                field, f"not valid Unicode: a lone surrogate at index {error.start} of {value!r:.80}"
            ) from None
    if not 0 < size <= limit:
        raise InvalidInput(field, f"{size} bytes of UTF-8, from 1 to {limit} are allowed: {value!r:.80}")
    if "\0" in value:
        raise InvalidInput(field, f"NUL is not allowed, since not every engine can store it: {value!r:.80}")
    return value


def _checked_strings(values: Iterable[str], field: str, most: int, limit: int) -> frozenset[str]:
    if isinstance(values, (str, bytes)):
        raise InvalidInput(field, f"a set of strings is needed, not one {kind(values)}: write {{{values!r:.80}}}")
    try:
        given = frozenset(values)
    except TypeError:
        raise InvalidInput(field, f"a set of strings is needed, not {kind(values)}") from None
    if len(given) > most:
        raise InvalidInput(field, f"{len(given)} {field}, the limit is {most}")
    return frozenset([_checked_string(value, field, limit) for value in given])
