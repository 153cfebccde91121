"""Upcasting: events of older versions, read as if they had been written today.

An event class has a version, from 1. For each version below it there is a pure function from
the fields of that version to those of the next; they are applied one after another, then the
class reads the result like any other. What is stored is never rewritten.

The version stands in the event's metadata, not in its type: every version matches the same
queries, so a process that knows only version 1 still conflicts with an event of version 2,
and fails to read it aloud instead of deciding without it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from ..model import SequencedEvent
from .errors import DefinitionError, EventUnreadable

# Left out for version 1, so that events that never changed carry nothing.
VERSION: Final = "event_version"

Upgrade: TypeAlias = Callable[[dict[str, Any]], dict[str, Any]]


def check_upgrades(name: str, version: int, upgrades: Mapping[int, Upgrade]) -> None:
    """Every older version must have a way to the newest; a gap is found now, not with the first old event."""
    if version < 1:
        raise DefinitionError(f"{name}: versions count from 1, not from {version}")
    missing = sorted(set(range(1, version)) - set(upgrades))
    if missing:
        raise DefinitionError(f"{name}: version {version} needs an upgrade from each older one; {missing} have none")
    beyond = sorted(set(upgrades) - set(range(1, version)))
    if beyond:
        raise DefinitionError(f"{name}: there are upgrades from {beyond}, but the version is {version}")


def version_of(event: SequencedEvent, newest: int) -> int:
    """The version that the event was written with; refused if this process does not know it yet."""
    text = event.metadata.get(VERSION, "1")
    if not (text.isascii() and text.isdigit()) or int(text) < 1:
        raise EventUnreadable(event, f"the metadata {VERSION!r} is {text!r}, not a version")
    version = int(text)
    if version > newest:
        problem = f"it has version {version}, the class here has {newest}; deploy the newer class to read it"
        raise EventUnreadable(event, problem)
    return version


def upgraded(fields: dict[str, Any], version: int, newest: int, upgrades: Mapping[int, Upgrade]) -> dict[str, Any]:
    """The fields of an event of `version`, as the newest version has them."""
    for older in range(version, newest):
        fields = upgrades[older](fields)
    return fields
