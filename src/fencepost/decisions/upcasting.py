"""Upcasting: read events of older versions with the current class.

An event class has a version, starting at 1. For each older version it declares an upgrade, a pure function from the
fields of that version to those of the next. The upgrades run one after another, and the class validates the result.
What is stored is never rewritten.

The version is in the event's metadata, not in its type, so all versions match the same queries. A process that knows
only version 1 still conflicts with an event of version 2, and raises an error when it reads it, instead of deciding
without it: tests/decisions/test_upcasting.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from ..model import SequencedEvent
from .errors import DefinitionError, EventUnreadable
from .hints import location_of

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


def upgraded(
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
