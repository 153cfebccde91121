"""An event as a line of JSON: what is printed is accepted, and means the same."""

from __future__ import annotations

import json
from datetime import datetime, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost import Event, SequencedEvent
from fencepost.tools import event_from_json, event_to_json

NOON = datetime(2026, 3, 4, 12, 30, tzinfo=timezone.utc)

texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=20)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(codec="utf-8")),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
datas = (
    st.binary(max_size=60)
    | texts.map(str.encode)
    | st.builds(
        lambda value, indent: json.dumps(value, indent=indent).encode(), json_values, st.sampled_from([None, 2])
    )
)
events = st.builds(
    Event,
    texts,
    data=datas,
    tags=st.frozensets(texts, max_size=4),
    id=st.none() | st.uuids(),
    metadata=st.dictionaries(texts, texts, max_size=3),
)


def sequenced(event: Event) -> SequencedEvent:
    return SequencedEvent(7, event.type, event.tags, event.data, NOON, event.id, event.metadata)


@given(events)
def test_every_event_survives_the_way_through_a_line(event: Event) -> None:
    line = event_to_json(sequenced(event))
    assert b"\n" not in line
    json.loads(line)
    assert event_from_json(line) == event


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        (b'{"a": 1}', '"data":{"a": 1}'),
        (b"[1, 2]", '"data":[1, 2]'),
        (b'"quoted"', '"data":"quoted"'),
        (b"[" * 1_000 + b"]" * 1_000, '"data_text":"' + "[" * 1_000 + "]" * 1_000 + '"'),
        (b'["\xc2\x9b2J"]', '"data_text":"[\\"\x9b2J\\"]"'),
        (b"12", '"data":12'),
        (b"", '"tags":[],"recorded_at"'),
        (b"plain", '"data_text":"plain"'),
        (b'{"a":\n1}', '"data_text":"{\\"a\\":\\n1}"'),
        (b"{not json}", '"data_text":"{not json}"'),
        (b"\xff", '"data_base64":"/w=="'),
    ],
)
def test_data_is_shown_as_readable_as_it_is(data: bytes, shown: str) -> None:
    assert shown in event_to_json(sequenced(Event("T", data=data))).decode()
