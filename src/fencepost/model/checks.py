"""Checks of single fields. Each function returns the checked value, or raises `InvalidInput`.

The error names the field, the size of the given value and the limit. tests/unit/test_model.py holds each check.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar
from uuid import UUID

from ..errors import InvalidInput
from .encodings import encode_json
from .limits import (
    MAX_DATA_BYTES,
    MAX_METADATA_BYTES,
    MAX_NAME_BYTES,
    MAX_POSITION,
    MAX_TAG_BYTES,
    MAX_TAGS,
    MAX_TYPE_BYTES,
    MAX_TYPES,
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
    if not isinstance(value, int) or isinstance(value, bool):
        raise InvalidInput(field, f"a position is an int, not {kind(value)}")
    if not 0 <= value <= MAX_POSITION:
        raise InvalidInput(field, f"{value} is not between 0 and {MAX_POSITION}")
    return value


def checked_id(value: object) -> UUID | None:
    if value is not None and not isinstance(value, UUID):
        raise InvalidInput("id", f"a uuid.UUID is needed, not {kind(value)}")
    return value


def checked_data(value: object) -> bytes:
    if not isinstance(value, bytes):
        if not isinstance(value, (bytearray, memoryview)):
            raise InvalidInput("data", f"bytes are needed, not {kind(value)}: encode it first")
        value = bytes(value)
    if len(value) > MAX_DATA_BYTES:
        raise InvalidInput("data", f"{len(value)} bytes, the limit is {MAX_DATA_BYTES}")
    return value


def checked_metadata(value: object) -> Mapping[str, str]:
    if not isinstance(value, Mapping):
        raise InvalidInput("metadata", f"a mapping of str to str is needed, not {kind(value)}")
    for name, content in value.items():
        if not isinstance(name, str) or not isinstance(content, str):
            raise InvalidInput("metadata", f"names and values are str, unlike {name!r:.80}: {content!r:.80}")
    try:
        size = len(encode_json(dict(value)))
    except UnicodeEncodeError:
        raise InvalidInput("metadata", "not valid Unicode: a lone surrogate in a name or value") from None
    if size > MAX_METADATA_BYTES:
        raise InvalidInput("metadata", f"{size} bytes as JSON, the limit is {MAX_METADATA_BYTES}")
    return dict(value)


def checked_all(values: Iterable[Checked], field: str, kind_of_value: type[Checked]) -> tuple[Checked, ...]:
    """Return the values as a tuple, after a check that each is an instance of the class."""
    name = kind_of_value.__name__
    try:
        given = tuple(values)
    except TypeError:
        raise InvalidInput(field, f"a list of {name} is needed, not {kind(values)}") from None
    for index, value in enumerate(given):
        if not isinstance(value, kind_of_value):
            raise InvalidInput(f"{field}[{index}]", f"{name} is needed, not {kind(value)}")
    return given


def kind(value: object) -> str:
    """What to call the value in an error: the name of its type, or None."""
    return "None" if value is None else type(value).__name__


def _checked_string(value: object, field: str, limit: int) -> str:
    if type(value) is not str and not isinstance(value, str):
        raise InvalidInput(field, f"a str is needed, not {kind(value)}")
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
    return str.__str__(value)  # of an enum that is a str, `str()` would return its name


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
