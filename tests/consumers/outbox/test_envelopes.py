"""Every stored event survives the way through a CloudEvents envelope, whatever its data, type and tags are."""

from __future__ import annotations

import base64
import json
from datetime import datetime
from typing import Any
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

import fencepost
from fencepost import Event, SequencedEvent
from fencepost.consumers.outbox import Message, Topic
from fencepost.consumers.outbox.messages import attributes, content_type, headers

TOPIC = Topic("t", source="/s", key="k", metadata=True)


def stored(event: Event) -> SequencedEvent:
    with fencepost.open("memory:") as store:
        store.append([event])
        (found,) = store.read()
        return found


def received(event: Event) -> dict[str, Any]:
    found = json.loads(Message(TOPIC, stored(event)).envelope)
    assert isinstance(found, dict)
    return found


def data_of(envelope: dict[str, Any]) -> bytes | None:
    """What a receiver does to get the data of an event whose data is not JSON."""
    return base64.b64decode(envelope["data_base64"], validate=True) if "data_base64" in envelope else None


def test_the_envelope_has_the_attributes_of_the_specification() -> None:
    event = stored(Event("Added", data=b'{"a": 1}', tags={"k:x", "other"}, metadata={"trace": "t1"}))
    found = json.loads(Message(TOPIC, event).envelope)
    time = found.pop("time")
    assert found == {
        "specversion": "1.0",
        "id": "/s#1",
        "source": "/s",
        "type": "Added",
        "sequence": "1".rjust(29, "0"),
        "partitionkey": "x",
        "tags": '["k:x","other"]',
        "metadata": '{"trace":"t1"}',
        "datacontenttype": "application/json",
        "data": {"a": 1},
    }
    assert time.endswith("Z")
    assert datetime.fromisoformat(time) == event.recorded_at


def test_metadata_stays_in_the_store_unless_the_topic_says_otherwise() -> None:
    event = stored(Event("A", metadata={"user": "ada"}))
    assert "metadata" not in attributes(Message(Topic("t", source="/s"), event))


@pytest.mark.parametrize("data", [b'{"b":1, "a" : 1.00}', b" [1,\n2]\n", b'"x"', b"null", b"12345678901234567890123"])
def test_json_stands_in_the_envelope_byte_for_byte(data: bytes) -> None:
    message = Message(TOPIC, stored(Event("A", data=data)))
    assert b'"data":' + data in message.envelope
    assert b"\n" not in message.line
    assert json.loads(message.line)["data"] == json.loads(data)


@pytest.mark.parametrize(
    "data", [b"\xff\x00", b"NaN", b"{", b"1e999", b'"\\ud800"', b"\xef\xbb\xbf{}", b"[" * 100_000 + b"]" * 100_000]
)
def test_what_is_not_json_is_base64(data: bytes) -> None:
    found = received(Event("A", data=data))
    assert data_of(found) == data
    assert "data" not in found
    assert found["datacontenttype"] == "application/octet-stream"


def test_an_event_without_data_has_no_data() -> None:
    found = received(Event("A"))
    assert not {"data", "data_base64", "datacontenttype"} & found.keys()
    assert content_type(Message(TOPIC, stored(Event("A")))) is None


names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)


@given(st.binary(max_size=200) | st.from_type(dict).map(lambda each: json.dumps(len(each)).encode()), names, names)
def test_any_event_can_be_reconstructed(data: bytes, type: str, tag: str) -> None:
    message = Message(TOPIC, SequencedEvent(1, type, frozenset({f"k:{tag}"}), data, 0))
    found = json.loads(message.envelope)
    assert (found["type"], json.loads(found["tags"]), found["partitionkey"]) == (type, [f"k:{tag}"], tag)
    as_bytes = data_of(found)
    assert as_bytes == data if as_bytes is not None else found.get("data", "") == (json.loads(data) if data else "")


@given(names, names)
def test_headers_are_printable_ascii_and_decode_to_the_attributes(type: str, tag: str) -> None:
    message = Message(TOPIC, SequencedEvent(1, type, frozenset({f"k:{tag}"}), b"", 0))
    found = headers(message, "ce-")
    assert all("!" <= letter <= "~" for value in found.values() for letter in value)
    assert {name.removeprefix("ce-"): unquote(value) for name, value in found.items()} == attributes(message)
