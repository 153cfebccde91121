"""Every event comes back byte for byte, in both forms of the wire."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from fencepost import SequencedEvent
from fencepost.core.verdicts import Append
from fencepost.model import AppendCondition, Event, Query, QueryItem
from fencepost.server.wire import rows
from fencepost.tools import event_to_json, from_wire, sequenced_from_json, to_wire

names = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=20)
tags = st.frozensets(names, max_size=5)
metadata = st.dictionaries(names, st.text(st.characters(exclude_categories=["Cs"]), max_size=20), max_size=3)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
data = st.binary(max_size=60) | json_values.map(msgspec.json.encode) | st.text(max_size=30).map(str.encode)
positions = st.integers(0, 2**96 - 1)
times = st.integers(0, 2**40).map(lambda ms: datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(milliseconds=ms))
stored = st.builds(SequencedEvent, positions, names, tags, data, times, st.none() | st.uuids(), metadata)
events = st.builds(Event, names, data=data, tags=tags, id=st.none() | st.uuids(), metadata=metadata)
queries = st.lists(st.builds(QueryItem, types=tags, tags=tags), min_size=1, max_size=3).map(Query)


@given(stored.filter(lambda event: event.position > 0))
def test_a_stored_event_survives_json(event: SequencedEvent) -> None:
    line = event_to_json(event)
    assert b"\n" not in line
    assert sequenced_from_json(line).stored == event.stored


@given(st.lists(stored, max_size=4), positions, st.booleans())
def test_a_page_of_stored_events_survives_msgpack(found: list[SequencedEvent], reach: int, more: bool) -> None:
    page = rows.decode_page(rows.encode(rows.PageRow(to_wire(reach), rows.stored_rows(found), more)))
    assert (from_wire(page.reach, "reach"), page.more) == (reach, more)
    assert [rows.stored_from(row).stored for row in page.events] == [event.stored for event in found]


@given(
    st.lists(events, max_size=3),
    st.lists(st.builds(AppendCondition, queries, after=positions), max_size=2),
    st.none() | queries,
    st.none() | st.tuples(names, positions),
)
def test_an_append_survives_msgpack(
    given: list[Event], conditions: list[AppendCondition], unless: Query | None, checkpoint: tuple[str, int] | None
) -> None:
    append = Append(tuple(given), tuple(conditions), unless, checkpoint)
    (row,) = rows.decode_appends(rows.encode([rows.append_row(append)]))
    assert rows.append_from(row) == append


@given(positions)
def test_a_position_survives_any_json_parser(position: int) -> None:
    wire = to_wire(position)
    assert isinstance(wire, str) or float(wire) == wire
    assert from_wire(wire, "position") == position
