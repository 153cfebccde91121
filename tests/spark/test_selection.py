"""Filters that Spark hands over: whatever they select stays selected."""

from __future__ import annotations

from datetime import datetime, timezone
from decimal import Decimal
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from fencepost.model import decode_moment, encode_moment
from fencepost.spark.scanning import Selection, narrowed
from fencepost.spark.scanning.sqlite import statement

HEAD = 20
TYPES = ("Added", "Opened", "it's", "")


def moment(second: int) -> datetime:
    return datetime(2026, 1, 1, 0, 0, second, tzinfo=timezone.utc)


numbers = st.integers(-3, HEAD + 3) | st.decimals(-3, HEAD + 3, places=1) | st.just(2**70)
comparisons = st.sampled_from([EqualTo, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual])
filters = st.one_of(
    st.builds(lambda kind, value: kind(("position",), value), comparisons, numbers),
    st.builds(lambda values: In(("position",), tuple(values)), st.lists(numbers, min_size=1)),
    st.builds(lambda value: Not(EqualTo(("position",), value)), numbers),
    st.builds(lambda value: EqualTo(("type",), value), st.sampled_from(TYPES)),
    st.builds(lambda values: In(("type",), tuple(values)), st.lists(st.sampled_from(TYPES))),
    st.builds(lambda value: StringStartsWith(("type",), value), st.sampled_from(("A", "O"))),
    st.builds(lambda kind, second: kind(("recorded_at",), moment(second)), comparisons, st.integers(0, HEAD)),
    st.just(IsNotNull(("position",))),
)


def holds(filter: Filter, event: dict[str, Any]) -> bool:
    """What Spark means by the filter."""
    if isinstance(filter, Not):
        return not holds(filter.child, event)
    value = event[filter.attribute[0]]  # type: ignore[attr-defined]
    match filter:
        case EqualTo():
            return bool(value == filter.value)
        case GreaterThan():
            return bool(value > filter.value)
        case GreaterThanOrEqual():
            return bool(value >= filter.value)
        case LessThan():
            return bool(value < filter.value)
        case LessThanOrEqual():
            return bool(value <= filter.value)
        case In():
            return value in filter.value
        case StringStartsWith():
            return bool(value.startswith(filter.value))
    return True


def selects(selection: Selection, event: dict[str, Any]) -> bool:
    at = encode_moment(event["recorded_at"])
    return (
        selection.after < event["position"] <= selection.up_to
        and (selection.types is None or event["type"] in selection.types)
        and (selection.recorded_from is None or selection.recorded_from <= at)
        and (selection.recorded_up_to is None or at <= selection.recorded_up_to)
    )


@given(st.lists(filters, max_size=3), st.integers(1, HEAD), st.sampled_from(TYPES), st.integers(0, HEAD))
def test_an_event_that_all_filters_accept_is_selected(
    given_filters: list[Filter], position: int, type: str, second: int
) -> None:
    event = {"position": position, "type": type, "recorded_at": moment(second)}
    found = narrowed(Selection(0, HEAD), given_filters)
    if all(holds(filter, event) for filter in given_filters):
        assert selects(found, event)


def test_filters_on_positions_and_types_select_exactly() -> None:
    found = narrowed(Selection(0, 100), [GreaterThan(("position",), 5), LessThan(("position",), Decimal("9.5"))])
    assert found == Selection(5, 9)
    assert narrowed(found, [In(("type",), ("A", "B")), EqualTo(("type",), "B")]).types == {"B"}
    assert narrowed(found, [EqualTo(("position",), 50)]).is_empty


def test_a_type_that_no_event_can_have_selects_nothing() -> None:
    """And never by an empty list, which PostgreSQL does not take."""
    selection = narrowed(Selection(0, 9), [EqualTo(("type",), "A\0")])
    assert "type IN (NULL)" in statement(selection, ["position"])


def test_times_select_to_the_microsecond() -> None:
    at = decode_moment(1_700_000_000_123_456)
    found = narrowed(Selection(0, 9), [GreaterThanOrEqual(("recorded_at",), at)])
    assert found.recorded_from == 1_700_000_000_123_456
