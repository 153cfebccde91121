"""The bytes that are written by hand are those that protobuf writes, for every event that can be stored."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fencepost import InvalidInput, SequencedEvent, StoreCorrupt
from fencepost.model.encodings import encode_metadata, encode_tags
from fencepost.server.umadb import mapping, messages
from fencepost.server.umadb.encoding import events_bytes, position_bytes, read_response_bytes, varint

texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
words = st.one_of(
    texts, st.sampled_from(["wallet:w1", "é", "\x7f", 'quo"te', "back\\slash", "x" * 127, "x" * 128, "ü" * 64])
)
positions = st.one_of(
    st.integers(1, 2**64 - 1),
    st.sampled_from([1, 127, 128, 16_383, 16_384, 2**21, 2**28, 2**32 - 1, 2**32, 2**53, 2**63, 2**64 - 1]),
)
datas = st.one_of(st.binary(max_size=40), st.sampled_from([b"", b"x" * 127, b"x" * 8_191, b"x" * 8_192, b"x" * 20_000]))
ids = st.one_of(st.none(), st.uuids())
private = st.fixed_dictionaries(
    {},
    optional={
        mapping.TRACKING: st.builds(
            lambda source, position: json.dumps([source, position]), st.text("aé", max_size=3), st.integers(0, 2**64)
        ),
        mapping.UUID_ALONE: st.one_of(st.uuids().map(str), st.just("no uuid")),
        mapping.ORDER: st.sampled_from(['["b","a"]', "[]", "{", '["z"]', '"b"']),
    },
)
metadatas = st.builds(
    lambda plain, hidden: {**plain, **hidden},
    st.dictionaries(st.one_of(texts, st.sampled_from(["a", "b"])), st.text('vé"\\', max_size=4), max_size=3),
    private,
)


# Events are generated as their fields, because Hypothesis shows its examples, and showing an event decodes its fields.
Fields = tuple[Any, ...]


@st.composite
def sequenced(draw: st.DrawFn) -> Fields:
    """The fields of an event in stored form, or in decoded form, as an engine may give them."""
    tags, id, metadata = draw(st.frozensets(words, max_size=4)), draw(ids), draw(metadatas)
    stored = draw(st.booleans())
    return (
        draw(positions),
        draw(words),
        encode_tags(tags) if stored else tags,
        draw(datas),
        0,
        id.bytes if stored and id is not None else id,
        encode_metadata(metadata) if stored else metadata,
    )


usual = st.tuples(
    positions,
    st.sampled_from(["T", "é"]),
    st.frozensets(st.sampled_from(["a", "wallet:w1", "x" * 50, "é", 'q"']), max_size=3).map(encode_tags),
    datas,
    st.just(0),
)


def messages_of(kind: Any, events: list[Fields]) -> Any:
    return kind(events=[mapping.sequenced_message(SequencedEvent(*fields)) for fields in events])


@given(st.lists(st.one_of(sequenced(), usual), max_size=4), st.one_of(st.none(), st.integers(0, 2**64 - 1)))
@example([(70_000, "T", '["\\u00e9"]', b"d", 0)], None)  # an escape, in ASCII
@example([(70_000, "T", "[]", b"d", 0, None, '{"fencepost\\u002eumadb.uuid":"no uuid"}')], 7)
@example([(16_383 + number, "T", '["a"]', b"d" * number, 0) for number in range(4)], 7)  # neighbours
@example([(3, "T", '["a","b"]', b"x" * 8_191, 0), (2**63, "é" * 100, '["a"]', b"", 0)], 7)
def test_a_response_has_the_bytes_that_protobuf_writes(events: list[Fields], head: int | None) -> None:
    expected = messages_of(messages.ReadResponse, events)
    if head:
        expected.head = head
    found = read_response_bytes([SequencedEvent(*fields) for fields in events], head)
    assert found == expected.SerializeToString(deterministic=True)


@given(st.lists(st.one_of(sequenced(), usual), max_size=3))
def test_a_subscription_sends_the_bytes_that_protobuf_writes(events: list[Fields]) -> None:
    expected = messages_of(messages.SubscribeResponse, events)
    assert events_bytes([SequencedEvent(*fields) for fields in events]) == expected.SerializeToString(
        deterministic=True
    )


@given(st.integers(1, 2**64 - 1))
def test_answers_with_a_position_have_the_bytes_that_protobuf_writes(position: int) -> None:
    for kind in (messages.AppendResponse, messages.HeadResponse, messages.TrackingResponse):
        assert position_bytes(position) == kind(position=position).SerializeToString()


def test_an_answer_without_a_position_is_empty() -> None:
    assert position_bytes(0) == position_bytes(None) == messages.AppendResponse(position=0).SerializeToString() == b""


@given(st.integers(0, 2**64 - 1))
def test_a_varint_is_read_back_by_protobuf(number: int) -> None:
    assert messages.HeadResponse.FromString(b"\x08" + varint(number)).position == number


metadata_entries = st.dictionaries(texts, texts, max_size=4)


@given(metadata_entries, st.uuids(), st.booleans(), st.one_of(st.none(), st.integers(1, 2**64 - 1)))
def test_what_a_client_appends_is_what_clients_read(
    metadata: dict[str, str], uuid: UUID, all_have_ids: bool, tracked: int | None
) -> None:
    entries = [messages.MetadataEntry(key=name, value=value) for name, value in metadata.items()]
    given = [messages.Event(event_type="T", tags=["b", "a"], data=b"d", uuid=str(uuid), metadata=entries)]
    if not all_have_ids:
        given.append(messages.Event(event_type="U"))
    tracking = None if tracked is None else messages.TrackingInfo(source="s", position=tracked)
    stored = mapping.events_from(given, tracking)[0]
    text = encode_metadata(stored.metadata)
    id = None if stored.id is None else stored.id.bytes
    event = SequencedEvent(9, stored.type, encode_tags(stored.tags), stored.data, 0, id, text)
    (found,) = messages.ReadResponse.FromString(read_response_bytes([event], None)).events
    given[0].tags[:] = ["a", "b"]
    assert found.event == given[0]
    assert found.HasField("tracking_info") == (tracked is not None)
    assert tracking is None or found.tracking_info == tracking


@pytest.mark.parametrize("name", [mapping.ORDER, mapping.TRACKING, mapping.UUID_ALONE])
@pytest.mark.parametrize("value", ["", "{", "7", '["a"]', "null", '["s",-1]', f'["s",{2**64}]'])
def test_an_entry_with_a_private_name_that_is_not_ours_cannot_stop_a_reader(name: str, value: str) -> None:
    event = SequencedEvent(9, "T", "[]", b"", 0, None, encode_metadata({name: value, "b": "1"}))
    (found,) = messages.ReadResponse.FromString(read_response_bytes([event], None)).events
    assert {entry.key: entry.value for entry in found.event.metadata} == {name: value, "b": "1"}


def test_a_client_cannot_write_private_entries() -> None:
    entry = messages.MetadataEntry(key=mapping.ORDER, value="[]")
    with pytest.raises(InvalidInput, match="private"):
        mapping.events_from([messages.Event(event_type="T", metadata=[entry])], None)


def test_a_position_of_more_than_64_bits_is_refused() -> None:
    for tags in ('["a"]', '["é"]'):
        with pytest.raises(InvalidInput, match="64 bits"):
            events_bytes([SequencedEvent(2**64, "T", tags, b"", 0)])
    with pytest.raises(InvalidInput, match="64 bits"):
        position_bytes(2**64)


@pytest.mark.parametrize(
    "damaged",
    [
        {"raw_tags": "["},
        {"raw_tags": "[1]"},
        {"raw_id": b"short"},
        {"raw_metadata": "{"},
    ],
)
def test_a_field_that_cannot_be_decoded_is_an_error_that_names_the_event(damaged: dict[str, Any]) -> None:
    event = SequencedEvent(70_000, "T", "[]", b"", 0)
    for name, value in damaged.items():
        setattr(event, name, value)
    with pytest.raises(StoreCorrupt, match="position 70000"):
        events_bytes([event])
