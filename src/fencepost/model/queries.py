"""Queries: which events to read, or which events make an append fail.

A query is a list of items, and matches an event that at least one item matches (`fencepost.buckets.matches` is the
definition). It travels as JSON through options, columns, commands and the wire. tests/unit/test_model.py holds that
`from_json` undoes `to_json` and refuses every text that is not a query.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from ..errors import InvalidInput
from .checks import checked_all, checked_tags, checked_types, kind
from .limits import HOW_BUCKETS_COUNT, MAX_BUCKETS, MAX_ITEMS, MAX_TYPES


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


@dataclass(frozen=True, slots=True, init=False)
class Query:
    """Matches an event that one of its items matches.

    >>> wallets = Query.of(tags={"wallet:w1"}) | Query.of(tags={"wallet:w2"})
    >>> len(wallets.items)
    2
    """

    items: tuple[QueryItem, ...]

    def __init__(self, items: Iterable[QueryItem]) -> None:
        given = checked_all(items, "items", QueryItem)
        if not given:
            raise InvalidInput("items", "a query needs at least 1 item; Query.all() matches every event")
        if len(given) > MAX_ITEMS:
            raise InvalidInput("items", f"{len(given)} items, the limit is {MAX_ITEMS}")
        buckets = _count_buckets(given)
        if buckets > MAX_BUCKETS:
            raise InvalidInput("items", f"{buckets} buckets, the limit is {MAX_BUCKETS}; {HOW_BUCKETS_COUNT}")
        object.__setattr__(self, "items", given)

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
        return Query(dict.fromkeys(self.items + other.items))

    @property
    def buckets(self) -> int:
        """The number of searches that the query takes: one for each item without types, else one for each type.

        >>> (Query.of(types={"Opened", "Closed"}) | Query.of(tags={"wallet:w1"})).buckets
        3
        """
        return _count_buckets(self.items)

    @property
    def matches_all(self) -> bool:
        """Whether one of the items matches every event."""
        return any(not item.types and not item.tags for item in self.items)

    def to_json(self) -> str:
        """The query as JSON text."""
        return msgspec.json.encode(query_to_builtins(self)).decode()

    @classmethod
    def from_json(cls, text: str | bytes) -> Query:
        """Raises `InvalidInput` if the text is not a query as `to_json` writes it."""
        return query_from_builtins(parsed(text, "query"), "query")


def query_of_items(items: tuple[QueryItem, ...]) -> Query:
    """Create a query of items that have been checked before. Faster than `Query`, for combining queries."""
    if not 0 < len(items) <= MAX_ITEMS or _count_buckets(items) > MAX_BUCKETS:
        return Query(items)  # raises the error
    query = object.__new__(Query)
    object.__setattr__(query, "items", items)
    return query


def query_to_builtins(query: Query) -> dict[str, Any]:
    return {"items": [{"types": sorted(item.types), "tags": sorted(item.tags)} for item in query.items]}


def query_from_builtins(given: Any, field: str) -> Query:
    check_names(given, field, {"items"})
    items = given.get("items")
    if not isinstance(items, list):
        raise InvalidInput(f"{field}.items", f"an array is needed, not {kind(items)}")
    made = [_item_from_builtins(item, f"{field}.items[{index}]") for index, item in enumerate(items)]
    try:
        return Query(made)
    except InvalidInput as error:
        raise InvalidInput(f"{field}.{error.field}", error.problem) from None


def _item_from_builtins(given: Any, field: str) -> QueryItem:
    check_names(given, field, {"types", "tags"})
    for name, strings in given.items():
        if not isinstance(strings, list):
            raise InvalidInput(f"{field}.{name}", f"an array is needed, not {kind(strings)}")
    try:
        return QueryItem(types=given.get("types", ()), tags=given.get("tags", ()))
    except InvalidInput as error:
        raise InvalidInput(f"{field}.{error.field}", error.problem) from None


def check_names(given: Any, field: str, known: set[str]) -> None:
    """Raise `InvalidInput` unless the value is a JSON object with no other names than these."""
    if not isinstance(given, dict):
        raise InvalidInput(field, f"a JSON object is needed, not {kind(given)}")
    unknown = given.keys() - known
    if unknown:
        raise InvalidInput(field, f"unknown name {min(unknown)!r}; known are {', '.join(sorted(known))}")


def parsed(text: str | bytes, field: str) -> Any:
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
