"""CloudEvents 1.0: the envelope that receivers get, in JSON or as headers.

In structured mode the whole event is one JSON object. Data that is JSON stands in it as `data`, byte for byte;
other data as `data_base64`. In binary mode the body is the data as stored, and the attributes are headers.
Besides the required attributes there are `time`, `partitionkey` (the key), `sequence` (the position, padded so that
text sorts like numbers) and `tags` (a JSON array in a string). tests/consumers/outbox/test_envelopes.py holds that
every stored event survives the way to a receiver.
"""

from __future__ import annotations

import base64
from datetime import timezone
from typing import Final
from urllib.parse import quote

import msgspec

from .messages import Message

STRUCTURED: Final = "application/cloudevents+json; charset=UTF-8"
BATCHED: Final = "application/cloudevents-batch+json; charset=UTF-8"
JSON: Final = "application/json"
BYTES: Final = "application/octet-stream"
DIGITS: Final = 29  # positions of FoundationDB have up to 96 bits

# Printable ASCII except the three characters that the HTTP binding of CloudEvents encodes as well.
SAFE: Final = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) not in '"% ')


def is_json(data: bytes) -> bool:
    """Whether the data is a JSON value that any parser reads the same way."""
    try:
        msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return True


def content_type(message: Message) -> str | None:
    """The media type of the event's data; None if it has no data."""
    if not message.event.data:
        return None
    return JSON if is_json(message.event.data) else BYTES


def attributes(message: Message) -> dict[str, str]:
    """The attributes of the CloudEvent, without the media type of its data."""
    event = message.event
    found = {
        "specversion": "1.0",
        "id": message.id,
        "source": message.source,
        "type": event.type,
        "time": event.recorded_at.astimezone(timezone.utc).isoformat().replace("+00:00", "Z"),
        "sequence": f"{event.position:0{DIGITS}d}",
        "tags": msgspec.json.encode(sorted(event.tags)).decode(),
    }
    if message.key is not None:
        found["partitionkey"] = message.key
    if message.with_metadata and event.metadata:
        found["metadata"] = msgspec.json.encode(dict(event.metadata)).decode()
    return found


def structured(message: Message) -> bytes:
    """The event as one JSON object."""
    found: dict[str, object] = dict(attributes(message))
    data, media_type = message.event.data, content_type(message)
    if media_type is not None:
        found["datacontenttype"] = media_type
    if media_type == JSON:
        found["data"] = msgspec.Raw(data)
    elif media_type == BYTES:
        found["data_base64"] = base64.b64encode(data).decode()
    return msgspec.json.encode(found)


def batched(messages: list[Message]) -> bytes:
    """Several events as one JSON array."""
    return b"[" + b",".join(message.envelope for message in messages) + b"]"


def headers(message: Message, prefix: str) -> dict[str, str]:
    """The attributes as headers for binary mode: printable ASCII, other characters percent-encoded as UTF-8."""
    return {f"{prefix}{name}": quote(value, safe=SAFE) for name, value in attributes(message).items()}
