"""Conditions of appends, and what a store says about an append afterwards.

`AppendCondition` guards an append. `Placed` is the result of an append. `RecordedAppend` holds the conditions of an
append, which a store opened with `record_conditions=True` keeps so that an audit can check them again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import msgspec

from ..errors import InvalidInput
from .checks import checked_position, kind
from .queries import Query, check_names, parsed, query_from_builtins, query_to_builtins


@dataclass(frozen=True, slots=True)
class AppendCondition:
    """The append fails if an event after position `after` matches the query."""

    fail_if_events_match: Query
    after: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.fail_if_events_match, Query):
            raise InvalidInput("fail_if_events_match", f"a Query is needed, not {kind(self.fail_if_events_match)}")
        checked_position(self.after, "after")

    def to_json(self) -> str:
        """The condition as JSON text."""
        query = query_to_builtins(self.fail_if_events_match)
        return msgspec.json.encode({"fail_if_events_match": query, "after": self.after}).decode()

    @classmethod
    def from_json(cls, text: str | bytes) -> AppendCondition:
        """Raises `InvalidInput` if the text is not a condition as `to_json` writes it."""
        return _condition_from_builtins(parsed(text, "condition"), "condition")


@dataclass(frozen=True, slots=True)
class Placed:
    """The positions of an append's events.

    `already` means that this append wrote nothing: either an earlier append with the same ids stored the events, or
    `unless` matched the event at `first`. An append without events, for its checkpoint alone, is placed at the head.
    """

    first: int
    last: int
    already: bool = False


@dataclass(frozen=True, slots=True)
class RecordedAppend:
    """The conditions of an append, kept with the positions of its events.

    `conditions_json` is a JSON array of conditions, and `unless_json` is a query in JSON or None. These are the stored
    forms, which `conditions` and `unless` decode.
    """

    first: int
    last: int
    conditions_json: str = "[]"
    unless_json: str | None = None

    @property
    def conditions(self) -> tuple[AppendCondition, ...]:
        given = parsed(self.conditions_json, "conditions")
        if not isinstance(given, list):
            raise InvalidInput("conditions", f"a JSON array is needed, not {kind(given)}")
        return tuple(_condition_from_builtins(each, f"conditions[{index}]") for index, each in enumerate(given))

    @property
    def unless(self) -> Query | None:
        return None if self.unless_json is None else query_from_builtins(parsed(self.unless_json, "unless"), "unless")


def encode_conditions(conditions: Iterable[AppendCondition]) -> str:
    """The conditions as a JSON array: the stored form in `RecordedAppend`."""
    return f"[{','.join([condition.to_json() for condition in conditions])}]"


def _condition_from_builtins(given: Any, field: str) -> AppendCondition:
    check_names(given, field, {"fail_if_events_match", "after"})
    if "fail_if_events_match" not in given:
        raise InvalidInput(field, "fail_if_events_match is missing")
    query = query_from_builtins(given["fail_if_events_match"], f"{field}.fail_if_events_match")
    return AppendCondition(query, after=given.get("after", 0))
