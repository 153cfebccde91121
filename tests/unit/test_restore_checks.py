"""The arguments of a restore: the quick check of common events lets nothing pass that the full check refuses."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from fencepost import InvalidInput, SequencedEvent, StoreCorrupt
from fencepost.core.restore import SeenStrings, checked_restore
from fencepost.model.encodings import encode_metadata, encode_tags
from fencepost.model.limits import MAX_DATA_BYTES, MAX_METADATA_BYTES, MAX_POSITION, MAX_TAG_BYTES, MAX_TAGS


def event(position: int, tags: set[Any]) -> SequencedEvent:
    return SequencedEvent(position, "Happened", frozenset(tags), b"", 0)


@pytest.mark.parametrize(
    "tags",
    [
        {""},
        {"a\0b"},
        {"x" * (MAX_TAG_BYTES + 1)},
        {"\ud800"},
        {"ä" * MAX_TAG_BYTES},
        {1},
        {f"t{number}" for number in range(MAX_TAGS + 1)},
    ],
    ids=["empty", "NUL", "long", "surrogate", "long as UTF-8", "number", "many"],
)
def test_a_bad_tag_is_refused_also_after_events_whose_type_is_known(tags: set[Any]) -> None:
    with pytest.raises(InvalidInput, match=r"events\[1\]\.tags"):
        checked_restore([event(1, {"good"}), event(2, tags)], [])


def test_good_tags_pass_whatever_their_alphabet() -> None:
    events = [event(1, {"good"}), event(2, {"good", "new"}), event(3, {"ä", "x" * MAX_TAG_BYTES}), event(4, {"ä"})]
    assert checked_restore(events, []) == (tuple(events), ())


TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=5)
LONG = '"' + "x" * MAX_METADATA_BYTES + '"'


def stored(position: int, /, **fields: Any) -> SequencedEvent:
    """An event in stored form."""
    event = SequencedEvent(position, "Happened", '["a","b"]', b"", 0, position.to_bytes(16), '{"by":"ada"}')
    return replace(event, **fields)


@given(st.lists(st.tuples(TEXT, st.frozensets(TEXT, max_size=3), st.dictionaries(TEXT, TEXT, max_size=2)), min_size=1))
def test_events_in_stored_form_pass_together_whatever_their_alphabet(contents: list[Any]) -> None:
    events = [
        SequencedEvent(position, type, encode_tags(tags), b"", 0, None, encode_metadata(metadata))
        for position, (type, tags, metadata) in enumerate(contents, start=1)
    ]
    assert SeenStrings().pass_together(events)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("position", -1),
        ("position", MAX_POSITION + 1),
        ("position", True),
        ("position", "2"),
        ("type", ""),
        ("type", 7),
        ("type", ["unhashable"]),
        ("raw_tags", '[""]'),
        ("raw_tags", '["a\\u0000b"]'),
        ("raw_tags", f'["{"x" * (MAX_TAG_BYTES + 1)}"]'),
        ("raw_tags", f'["{"ä" * MAX_TAG_BYTES}"]'),
        ("raw_tags", encode_tags({f"t{number}" for number in range(MAX_TAGS + 1)})),
        ("raw_tags", "[1]"),
        ("raw_tags", "["),
        ("data", "text"),
        ("data", bytes(MAX_DATA_BYTES + 1)),
        ("raw_recorded_at", datetime(2026, 1, 1)),
        ("raw_id", 7),
        ("raw_id", ["unhashable"]),
        ("raw_id", bytes(15)),
        ("raw_metadata", f'{{"a":{LONG}}}'),
        ("raw_metadata", '{"a":1}'),
    ],
)
def test_what_the_full_check_refuses_does_not_pass_together(field: str, value: Any) -> None:
    assert SeenStrings().pass_together([stored(1), stored(3)])
    assert not SeenStrings().pass_together([stored(1), stored(2, **{field: value}), stored(3)])
    with pytest.raises((InvalidInput, StoreCorrupt, TypeError)):
        checked_restore([stored(1), stored(2, **{field: value}), stored(3)], [])


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("raw_tags", ['["b","a"]']),
        ("raw_tags", ['["a","a"]']),
        ("raw_tags", ['["a", "b"]']),
        ("raw_tags", ['["\\u0061"]']),
        ("raw_tags", [frozenset({"a"})]),
        ("raw_metadata", ['{"b":"1","a":"2"}']),
        ("raw_metadata", ['{"a": "1"}']),
        ("raw_metadata", ["{}"]),
        ("raw_metadata", [{"a": "1"}]),
        ("raw_id", [UUID(int=7)]),
        ("raw_recorded_at", [datetime(2026, 1, 1, tzinfo=timezone.utc)]),
    ],
)
def test_valid_values_in_another_form_are_stored_in_ours(field: str, values: list[Any]) -> None:
    event = stored(2, **{field: values[0]})
    assert not SeenStrings().pass_together([stored(1), event])
    (_, checked), _ = checked_restore([stored(1), event], [])
    expected = SequencedEvent(*checked.stored)
    assert SeenStrings().pass_together([expected]), "stored in the form that Fencepost writes"
    assert expected == stored(2, **{field: values[0]})


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("raw_tags", ['["a"', '"b"],["c"]']),
        ("raw_tags", ['["a"],["b"]', "[]"]),
        ("raw_metadata", ['{"a":"1"', '"b":"2"},{"c":"3"}']),
    ],
)
def test_texts_that_are_valid_only_together_are_refused(field: str, values: list[str]) -> None:
    events = [stored(position, **{field: value}) for position, value in enumerate(values, start=1)]
    assert not SeenStrings().pass_together(events)
    with pytest.raises((InvalidInput, StoreCorrupt)):
        checked_restore(events, [])


def test_a_bad_event_is_named_also_far_from_the_first() -> None:
    events = [stored(position) for position in range(1, 3_001)]
    events[2_500] = stored(2_501, type="")
    with pytest.raises(InvalidInput, match=r"events\[2500\]\.type"):
        checked_restore(events, [])
    events[2_500] = stored(2_501, raw_id=events[7].raw_id)
    with pytest.raises(InvalidInput, match=r"events\[2500\]\.id"):
        checked_restore(events, [])
    events[2_500] = stored(2_500)
    with pytest.raises(InvalidInput, match=r"events\[2500\]\.position"):
        checked_restore(events, [])
