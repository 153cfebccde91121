"""Convert fields of events, and parameters of projections, into tags.

A field annotated `Tag` becomes the tag `field:value`. A field annotated `Annotated[str, tag("wallet_id")]` becomes
`wallet_id:value`, so that both wallets of a transfer have the same kind of tag. None gives no tag, and a list or tuple
gives one tag for each item. Only this module converts values into tags, so events and projections cannot disagree.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date
from enum import Enum
from typing import Annotated, Any, TypeAlias, get_args, get_origin
from uuid import UUID

from ..errors import InvalidInput
from .hints import alternatives


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
