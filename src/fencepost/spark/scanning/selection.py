"""Which events a scan reads: a range of positions, a query, types and times; and how Spark's own filters narrow them.

A scan may return more events than the types and times allow; the caller, or Spark, filters them again. Spark applies
its filters again to what the source returns. So a filter that narrows the selection in part, or not at all, changes
the speed of a read and never its result. tests/spark/test_selection.py checks that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from decimal import Decimal
from typing import Any, Final

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from ... import Query
from ...engine import MAX_POSITION, encode_moment

EVERYTHING: Final = Query.all()


@dataclass(frozen=True)
class Selection:
    """The events with after < position <= up_to that match the query and the rest."""

    after: int
    up_to: int
    query: Query = EVERYTHING
    types: frozenset[str] | None = None
    recorded_from: int | None = None  # microseconds since 1970, both ends included
    recorded_up_to: int | None = None

    @property
    def is_empty(self) -> bool:
        return self.after >= self.up_to or self.types == frozenset()

    def between(self, after: int, up_to: int) -> Selection:
        return replace(self, after=max(self.after, after), up_to=min(self.up_to, up_to))

    def terms(self, moment: Callable[[int], str] = str) -> str:
        """The range, types and times as a condition in SQL. `moment` writes a time, given in microseconds."""
        terms = [f"position > {self.after}", f"position <= {min(self.up_to, 2**63 - 1)}"]
        if self.types is not None:
            terms.append(f"type IN ({_literals(self.types)})")
        if self.recorded_from is not None:
            terms.append(f"recorded_at >= {moment(self.recorded_from)}")
        if self.recorded_up_to is not None:
            terms.append(f"recorded_at <= {moment(self.recorded_up_to)}")
        return " AND ".join(terms)


def _literals(texts: Iterable[str]) -> str:
    """
    >>> _literals(["it's"])
    "'it''s'"
    """
    # A literal ends at a NUL. No type holds one, so such a text can be left out. Nothing is equal to NULL.
    return ", ".join("'" + text.replace("'", "''") + "'" for text in sorted(texts) if "\0" not in text) or "NULL"


def narrowed(selection: Selection, filters: Iterable[Filter]) -> Selection:
    """The part of the selection that can pass the filters."""
    for filter in filters:
        selection = _narrowed(selection, filter)
    return selection


def _narrowed(selection: Selection, filter: Filter) -> Selection:
    """The selection narrowed by one filter; unchanged if the filter is of another kind or on another column."""
    attribute = getattr(filter, "attribute", ())
    value: Any = getattr(filter, "value", None)
    if attribute == ("position",):
        if isinstance(filter, In):
            numbers = [number for number in map(_number, value) if number is not None]
            if len(numbers) < len(value) or not numbers:
                return selection
            return selection.between(_floor(min(numbers)) - 1, _floor(max(numbers)))
        number = _number(value)
        return selection if number is None else _narrowed_position(selection, filter, number)
    if attribute == ("type",):
        if isinstance(filter, (EqualTo, EqualNullSafe)) and isinstance(value, str):
            return _with_types(selection, {value})
        if isinstance(filter, In) and all(isinstance(type, str) for type in value):
            return _with_types(selection, value)
    if attribute == ("recorded_at",) and isinstance(value, datetime):
        return _narrowed_time(selection, filter, value)
    return selection


def _narrowed_position(selection: Selection, filter: Filter, number: Decimal) -> Selection:
    whole = _floor(number)
    below = whole if number > whole else whole - 1  # the highest position below the number
    bounds: dict[type[Filter], tuple[int, int]] = {
        EqualTo: (whole - 1, whole),
        EqualNullSafe: (whole - 1, whole),
        GreaterThan: (whole, MAX_POSITION),
        GreaterThanOrEqual: (below, MAX_POSITION),
        LessThan: (0, below),
        LessThanOrEqual: (0, whole),
    }
    return selection.between(*bounds.get(type(filter), (0, MAX_POSITION)))


def _narrowed_time(selection: Selection, filter: Filter, moment: datetime) -> Selection:
    # Spark's timestamps arrive in UTC, with or without a time zone.
    at = encode_moment(moment if moment.tzinfo is not None else moment.replace(tzinfo=timezone.utc))
    low, high = selection.recorded_from, selection.recorded_up_to
    if isinstance(filter, (EqualTo, EqualNullSafe, GreaterThan, GreaterThanOrEqual)):
        low = at if low is None else max(low, at)
    if isinstance(filter, (EqualTo, EqualNullSafe, LessThan, LessThanOrEqual)):
        high = at if high is None else min(high, at)
    return replace(selection, recorded_from=low, recorded_up_to=high)


def _with_types(selection: Selection, types: Iterable[str]) -> Selection:
    wanted = frozenset(types)
    return replace(selection, types=wanted if selection.types is None else selection.types & wanted)


def _number(value: Any) -> Decimal | None:
    return Decimal(value) if isinstance(value, (int, Decimal)) and not isinstance(value, bool) else None


def _floor(number: Decimal) -> int:
    return int(number // 1)
