"""Queries and conditions: which events to read, and which events make an append fail.

A query is a list of items, and matches an event that at least one item matches (`fencepost.buckets.matches` is the
definition). `AppendCondition` guards an append with a query. `Placed` is the result of an append. `RecordedAppend` has
the conditions of an append, which a store opened with `record_conditions=True` keeps so that an audit can check them.

Queries and conditions travel as JSON through options, columns, commands and the wire. tests/unit/test_model.py holds
that `from_json` undoes `to_json` and refuses every text that is not a query.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final, final

import msgspec

from ..errors import InvalidInput
from .checks import checked_all, checked_position, checked_tags, checked_types, kind
from .limits import HOW_BUCKETS_COUNT, MAX_BUCKETS, MAX_ITEMS, MAX_TYPES


@final
@dataclass(frozen=True, slots=True, init=False)
class QueryItem:
    """Matches an event whose type is one of `types` and which has ALL of `tags`.

    No types means any type, no tags means any tags, neither means every event.
    """

    types: frozenset[str]
    tags: frozenset[str]

    def __init__(self, *, types: Iterable[str] = frozenset(), tags: Iterable[str] = frozenset()) -> None:
        object.__setattr__(self, "types", checked_types(types, "types"))
        object.__setattr__(self, "tags", checked_tags(tags, "tags"))


def item_of(types: frozenset[str], tags: Iterable[str]) -> QueryItem:
    """Create an item whose types have each been checked before. Faster than `QueryItem`, for declared events."""
    if len(types) > MAX_TYPES:
        return QueryItem(types=types, tags=tags)  # raises the error
    item = object.__new__(QueryItem)
    object.__setattr__(item, "types", types)
    object.__setattr__(item, "tags", checked_tags(tags, "tags"))
    return item


@final
@dataclass(frozen=True, slots=True, init=False)
class Query:
    """Matches an event that one of its items matches.

    >>> wallets = Query.of(tags={"wallet:w1"}) | Query.of(tags={"wallet:w2"})
    >>> len(wallets.items)
    2
    """

    items: tuple[QueryItem, ...]
    buckets: int = field(compare=False, repr=False)
    """The number of searches that the query takes: one for each item without types, else one for each type.

    >>> (Query.of(types={"Opened", "Closed"}) | Query.of(tags={"wallet:w1"})).buckets
    3
    """
    _known: frozenset[QueryItem] | None = field(compare=False, repr=False)  # the items, if `|` has looked for one

    def __init__(self, items: Iterable[QueryItem]) -> None:
        given = checked_all(items, "items", QueryItem)
        if not given:
            raise InvalidInput("items", "a query needs at least 1 item; Query.all() matches every event")
        if len(given) > MAX_ITEMS:
            raise InvalidInput("items", f"{len(given)} items, the limit is {MAX_ITEMS}")
        buckets = _count_buckets(given)
        if buckets > MAX_BUCKETS:
            raise InvalidInput("items", f"{buckets} buckets, the limit is {MAX_BUCKETS}; {HOW_BUCKETS_COUNT}")
        _fill(self, given, buckets, None)

    @classmethod
    def all(cls) -> Query:
        """Matches every event."""
        return _ALL

    @classmethod
    def of(cls, *, types: Iterable[str] = frozenset(), tags: Iterable[str] = frozenset()) -> Query:
        """A query of one item."""
        return cls((QueryItem(types=types, tags=tags),))

    def __or__(self, other: Query) -> Query:
        if not isinstance(other, Query):
            return NotImplemented
        known = frozenset(self.items) if self._known is None else self._known
        added = [item for item in other.items if item not in known]
        items = (*self.items, *added)
        buckets = self.buckets + _count_buckets(added)
        known = known.union(added)
        if len(known) < len(items):  # one of the queries names an item twice
            items = tuple(dict.fromkeys(items))
            buckets = _count_buckets(items)
        if len(items) > MAX_ITEMS or buckets > MAX_BUCKETS:
            return Query(items)  # raises the error
        # The new query keeps what this one has looked up, so that many queries are joined in linear time.
        return _fill(object.__new__(Query), items, buckets, known)

    @property
    def matches_all(self) -> bool:
        """Whether one of the items matches every event."""
        return any(not item.types and not item.tags for item in self.items)

    def to_json(self) -> str:
        """The query as JSON text."""
        return msgspec.json.encode(_query_to_builtins(self)).decode()

    @classmethod
    def from_json(cls, text: str | bytes) -> Query:
        """Raises `InvalidInput` if the text is not a query as `to_json` writes it."""
        return _query_from_builtins(_parsed(text, "query"), "query")


@final
@dataclass(frozen=True, slots=True)
class AppendCondition:
    """The append fails if an event after position `after` matches the query."""

    fail_if_events_match: Query
    after: int = 0

    def __post_init__(self) -> None:
        if type(self.fail_if_events_match) is not Query:
            raise InvalidInput("fail_if_events_match", f"a Query is needed, not {kind(self.fail_if_events_match)}")
        object.__setattr__(self, "after", checked_position(self.after, "after"))

    def to_json(self) -> str:
        """The condition as JSON text."""
        query = _query_to_builtins(self.fail_if_events_match)
        return msgspec.json.encode({"fail_if_events_match": query, "after": self.after}).decode()

    @classmethod
    def from_json(cls, text: str | bytes) -> AppendCondition:
        """Raises `InvalidInput` if the text is not a condition as `to_json` writes it."""
        return _condition_from_builtins(_parsed(text, "condition"), "condition")


@dataclass(frozen=True, slots=True)
class Placed:
    """The positions of an append's events.

    `already` means that this append wrote nothing: either an earlier append with the same ids stored the events, or
    `unless` matched the event at `first`. An append without events is placed at the head. `revisions` has the new
    revision of each record that was changed, 0 if it was deleted.
    """

    first: int
    last: int
    already: bool = False
    revisions: tuple[int, ...] = ()


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
        given = _parsed(self.conditions_json, "conditions")
        if not isinstance(given, list):
            raise InvalidInput("conditions", f"a JSON array is needed, not {kind(given)}")
        return tuple(_condition_from_builtins(each, f"conditions[{index}]") for index, each in enumerate(given))

    @property
    def unless(self) -> Query | None:
        return None if self.unless_json is None else _query_from_builtins(_parsed(self.unless_json, "unless"), "unless")


def query_of_items(items: tuple[QueryItem, ...]) -> Query:
    """Create a query of items that have been checked before. Faster than `Query`, for combining queries."""
    buckets = _count_buckets(items)
    if not 0 < len(items) <= MAX_ITEMS or buckets > MAX_BUCKETS:
        return Query(items)  # raises the error
    return _fill(object.__new__(Query), items, buckets, None)


def _fill(query: Query, items: tuple[QueryItem, ...], buckets: int, known: frozenset[QueryItem] | None) -> Query:
    put = object.__setattr__
    put(query, "items", items)
    put(query, "buckets", buckets)
    put(query, "_known", known)
    return query


def _query_to_builtins(query: Query) -> dict[str, Any]:
    return {"items": [{"types": sorted(item.types), "tags": sorted(item.tags)} for item in query.items]}


def _query_from_builtins(given: Any, field: str) -> Query:
    _check_names(given, field, {"items"})
    items = given.get("items")
    if not isinstance(items, list):
        raise InvalidInput(f"{field}.items", f"an array is needed, not {kind(items)}")
    made = [_item_from_builtins(item, f"{field}.items[{index}]") for index, item in enumerate(items)]
    try:
        return Query(made)
    except InvalidInput as error:
        raise InvalidInput(f"{field}.{error.field}", error.problem) from None


def _item_from_builtins(given: Any, field: str) -> QueryItem:
    _check_names(given, field, {"types", "tags"})
    for name, strings in given.items():
        if not isinstance(strings, list):
            raise InvalidInput(f"{field}.{name}", f"an array is needed, not {kind(strings)}")
    try:
        return QueryItem(types=given.get("types", ()), tags=given.get("tags", ()))
    except InvalidInput as error:
        raise InvalidInput(f"{field}.{error.field}", error.problem) from None


def encode_conditions(conditions: Iterable[AppendCondition]) -> str:
    """The conditions as a JSON array: the stored form in `RecordedAppend`."""
    return f"[{','.join([condition.to_json() for condition in conditions])}]"


def _condition_from_builtins(given: Any, field: str) -> AppendCondition:
    _check_names(given, field, {"fail_if_events_match", "after"})
    if "fail_if_events_match" not in given:
        raise InvalidInput(field, "fail_if_events_match is missing")
    query = _query_from_builtins(given["fail_if_events_match"], f"{field}.fail_if_events_match")
    return AppendCondition(query, after=given.get("after", 0))


def _check_names(given: Any, field: str, known: set[str]) -> None:
    """Raise `InvalidInput` unless the value is a JSON object with no other names than these."""
    if not isinstance(given, dict):
        raise InvalidInput(field, f"a JSON object is needed, not {kind(given)}")
    unknown = given.keys() - known
    if unknown:
        raise InvalidInput(field, f"unknown name {min(unknown)!r}; known are {', '.join(sorted(known))}")


def _parsed(text: str | bytes, field: str) -> Any:
    """The value of a JSON text, or `InvalidInput`."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise InvalidInput(field, f"not valid JSON: {error}") from None
    except RecursionError:
        raise InvalidInput(field, "arrays or objects are nested too deeply to be decoded") from None


def _count_buckets(items: Iterable[QueryItem]) -> int:
    return sum([len(item.types) or 1 for item in items])


_ALL: Final = Query((QueryItem(),))
