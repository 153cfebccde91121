"""The fast way from stored events to lines makes the same bytes as the slow one."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from fencepost import SequencedEvent, StoreCorrupt
from fencepost.model.encodings import encode_metadata, encode_tags
from fencepost.tools import EventLines, escape_controls, event_to_json, sequenced_from_json

TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=8)
JSON = st.sampled_from([b"{}", b'{"a": [1, 2.5]}', b"[", b"[1e999]", b'{"a":"\x7f"}', '{"é":"\x9b"}'.encode(), b"{\n}"])
EVENTS = st.builds(
    lambda position, type, tags, data, at, id, metadata: SequencedEvent(
        position, type, encode_tags(tags), data, at, id, encode_metadata(metadata)
    ),
    st.integers(1, 2**96 - 1),
    TEXT,
    st.frozensets(TEXT, max_size=3),
    st.one_of(JSON, st.binary(max_size=12), TEXT.map(str.encode)),
    st.integers(-(10**15), 10**17) | st.integers(0, 10**9).map(lambda second: second * 1_000_000),
    st.none() | st.binary(min_size=16, max_size=16),
    st.dictionaries(TEXT, TEXT, max_size=2),
)


@given(st.lists(EVENTS, max_size=4), st.booleans())
def test_lines_are_those_of_single_events(events: list[SequencedEvent], terminal: bool) -> None:
    fast = EventLines().encode(events, terminal=terminal)
    assert fast == b"".join(escape_controls(event_to_json(event), formats=terminal) + b"\n" for event in events)
    assert len(fast.splitlines() if fast.isascii() else fast.split(b"\n")[:-1]) == len(events)


OBJECTS = st.sampled_from([b"{}", b'{"a": [1, 2.5]}', '{"é":"ü"}'.encode(), b'{"a":"\t"}', b"[" * 150 + b"]" * 150])
# The fields of events, because Hypothesis shows its examples, and showing an event decodes its fields.
USUAL = st.tuples(
    st.integers(1, 2**40),
    st.just("A"),
    st.frozensets(st.sampled_from(["a", "b", "c", "d", "é", 'q"', "b\\s"]), max_size=4).map(encode_tags),
    OBJECTS,
    st.sampled_from([0, 1_000_000, 1_500_000]),
    st.sampled_from([None, bytes(16), bytes(range(0xF0, 0x100))]),
    st.sampled_from([None, '{"a":"1"}', '{"a":"\\n","b":"\\\\"}', "{}", '{"é":"ü"}']),
)


@given(st.lists(st.one_of(USUAL, EVENTS.map(lambda event: event.stored)), max_size=6))
def test_events_that_are_checked_together_have_the_lines_of_to_json(events: list[tuple[Any, ...]]) -> None:
    assert EventLines().encode([SequencedEvent(*fields) for fields in events]) == b"".join(
        escape_controls(event_to_json(SequencedEvent(*fields)), formats=False) + b"\n" for fields in events
    )


def line_of(event: SequencedEvent) -> bytes:
    return event_to_json(SequencedEvent(*event.stored))


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("data", [b'{"a":"}', b'{":1}']),
        ("data", [b"[1],[2]", b'["]', b'["]']),
        ("data", [b"{} ", b"{}"]),
        ("data", [b"{}", b'{"a":1e999}']),
        ("data", [b"{}", b'{"a":\n1}']),
        ("data", [b"{}", b'{"a":"\x7f"}']),
        ("data", [b"{}", b'{"a":"\x01"}']),
        ("data", [b"{}", b'{"a":"\xff"}']),
        ("data", [b"{}", b""]),
        ("data", [b"{}", b"7"]),
        ("raw_tags", ['["a"],["b"]', '["c]', '[d"]']),
        ("raw_tags", ['["b","a"]', '["a"]']),
        ("raw_tags", ['["a","a","b"]', "[]"]),
        ("raw_tags", ['["d","c","b","a"]', "[]"]),
        ("raw_tags", ['["\\u0061"]', "[]"]),
        ("raw_tags", ['["a" ]', "[]"]),
        ("raw_metadata", ['{"a":"1"}', "{}"]),
        ("raw_metadata", ['{"a":"1"}', '{"a": "1"}']),
        ("raw_metadata", ['{"a":"1"}', '{"a":"\\u0061"}']),
        ("raw_metadata", ['{"a":"1"}', '{"a":"1","a":"2"}']),
        ("raw_metadata", ['{"a":"1"}', '{"a":1}']),
        ("raw_metadata", ['{"a":"1"}', '{"é":"ü"}']),
        ("raw_metadata", ['{"a":"1"}', {"a": "1"}]),
        ("raw_id", [bytes(16), UUID(int=1)]),
        ("raw_id", [bytes(16), bytes(15)]),
    ],
)
def test_events_that_are_valid_only_together_are_noticed(field: str, values: list[object]) -> None:
    plain = [SequencedEvent(number, "A", "[]", b"{}", 0) for number, _ in enumerate(values, start=1)]
    events = [replace(event, **{field: value}) for event, value in zip(plain, values, strict=True)]
    alone: list[bytes | type[Exception]] = []
    for event in events:
        try:
            alone.append(EventLines().encode([event]))
        except StoreCorrupt:
            alone.append(StoreCorrupt)
    if StoreCorrupt in alone:
        with pytest.raises(StoreCorrupt):
            EventLines().encode(events)
    else:
        assert EventLines().encode(events) == b"".join(line for line in alone if isinstance(line, bytes))
        assert b"".join(line for line in alone if isinstance(line, bytes)) == b"".join(
            escape_controls(line_of(event), formats=False) + b"\n" for event in events
        )


@given(EVENTS)
def test_a_line_is_read_back_as_the_same_event(event: SequencedEvent) -> None:
    assert sequenced_from_json(EventLines().encode([event])) == event


@pytest.mark.parametrize("tags", ['["b","a"]', '["a", "b"]', '["a","a"]', '["\\u0061"]', "[\n]"])
def test_tags_in_another_form_than_ours_are_written_in_ours(tags: str) -> None:
    event = SequencedEvent(1, "A", tags, b"", 0, UUID(int=1).bytes, '{"b":"1", "a":"2"}')
    assert EventLines().encode([event]) == event_to_json(event) + b"\n"
