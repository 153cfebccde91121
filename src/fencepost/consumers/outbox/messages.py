"""Topics and messages: which events leave the store, in which form, and what identifies each of them outside.

    subscriptions = Topic("subscriptions", source="/courses", types={StudentSubscribed}, key="course_id")

A message carries a *deduplication key*, its `id`. It depends only on the event: the event's own id or, if the event has
none, the source and the position. So whichever process sends the event, and however often, the receiver sees the
same id (tests/consumers/outbox/test_messages.py).

The envelope that receivers get is a CloudEvent 1.0. In structured mode the whole event is one JSON object. Data that is
JSON stands in it as `data`, byte for byte; other data as `data_base64`. In binary mode the body is the data as stored,
and the attributes are headers. Besides the required attributes there are `time`, `partitionkey` (the key), `sequence`
(the position, padded so that text sorts like numbers) and `tags` (a JSON array in a string).
tests/consumers/outbox/test_envelopes.py holds that every stored event survives the way to a receiver.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable
from datetime import timezone
from functools import cached_property
from typing import Any, Final, Literal, TypeAlias
from urllib.parse import quote

import msgspec

from ... import Query, SequencedEvent
from ...decisions.inspection import declaration_of
from ...engine import checked_name
from ...errors import InvalidInput

URI_REFERENCE: Final = re.compile(r"[!$&'()*+,;=:@/?#\[\]\-._~0-9A-Za-z%]+")
INTERNAL: Final = "fencepost."  # the types of the records that Fencepost itself stores begin with this
STRUCTURED: Final = "application/cloudevents+json; charset=UTF-8"
BATCHED: Final = "application/cloudevents-batch+json; charset=UTF-8"
JSON: Final = "application/json"
BYTES: Final = "application/octet-stream"
DIGITS: Final = 29  # positions of FoundationDB have up to 96 bits

# Printable ASCII except the three characters that the HTTP binding of CloudEvents encodes as well.
SAFE: Final = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) not in '"% ')

Mode: TypeAlias = Literal["structured", "binary"]


class Message:
    """An event on its way to another system. `id` is the deduplication key, `key` what its order is kept by."""

    def __init__(self, topic: Topic, event: SequencedEvent) -> None:
        self.topic = topic.name
        self.source = topic.source
        self.event = event
        self.id = str(event.id) if event.raw_id is not None else f"{topic.source}#{event.position}"
        self.key = topic.key_of(event)
        self.with_metadata = topic.metadata

    @cached_property
    def envelope(self) -> bytes:
        """The event as a CloudEvent in JSON."""
        return structured(self)

    @cached_property
    def line(self) -> bytes:
        """The envelope without line breaks. In JSON they can only stand between tokens, where they mean nothing."""
        return self.envelope.replace(b"\n", b" ").replace(b"\r", b" ")

    def __repr__(self) -> str:
        return f"<message {self.id} of {self.topic!r}: {self.event.type} at {self.event.position}>"


class Topic:
    """The events that other systems may know of.

    `source` is a URI or a path that names this store to receivers. It must differ from that of other stores, and
    must not change, because it is part of the deduplication key of events without an id. `types` are names or event
    classes; `tags` selects events that have all of these tags. `query` can be given instead of both. `key` is the name
    of a tag: events with the same value of this tag stay in order. With `metadata`, the envelope carries the event's
    metadata.
    """

    def __init__(
        self,
        name: str,
        *,
        source: str,
        types: Iterable[str | type[Any]] = (),
        tags: Iterable[str] = (),
        query: Query | None = None,
        key: str | None = None,
        metadata: bool = False,
    ) -> None:
        if isinstance(types, str) or isinstance(tags, str):
            raise InvalidInput("types" if isinstance(types, str) else "tags", "a set is needed, not a string")
        if not URI_REFERENCE.fullmatch(source):
            raise InvalidInput("source", f"{source!r} is not a URI or a path, such as '/courses'")
        if key is not None and (not key or ":" in key):
            raise InvalidInput("key", f"the name of a tag is needed, the part before the colon, not {key!r}")
        types, tags = list(types), list(tags)
        if query is not None and (types or tags):
            raise InvalidInput("query", "give either a query, or types and tags")
        self.name = checked_name(name, "topic")
        self.source = source
        self.key = key
        self.metadata = metadata
        self._types = frozenset(each if isinstance(each, str) else declaration_of(each).type for each in types)
        self.query = Query.of(types=self._types, tags=tags) if query is None else query

    def includes(self, event: SequencedEvent) -> bool:
        """Whether a matching event is published. Fencepost's own records are, if the topic names their type."""
        return not event.type.startswith(INTERNAL) or event.type in self._types

    def key_of(self, event: SequencedEvent) -> str | None:
        """The value of the tag that the order is kept by; the first in sort order if the event has several."""
        if self.key is None:
            return None
        prefix = f"{self.key}:"
        return min((tag.removeprefix(prefix) for tag in event.tags if tag.startswith(prefix)), default=None)

    def __repr__(self) -> str:
        return f"<topic {self.name!r}>"


def content_type(message: Message) -> str | None:
    """The media type of the event's data; None if it has no data. JSON is what any parser reads the same way."""
    if not message.event.data:
        return None
    try:
        msgspec.json.decode(message.event.data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return BYTES
    return JSON


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


def batched(messages: Iterable[Message]) -> bytes:
    """Several events as one JSON array."""
    return b"[" + b",".join(message.envelope for message in messages) + b"]"


def packed(message: Message, mode: Mode, prefix: str) -> tuple[bytes, str | None, dict[str, str]]:
    """The body of the message in this mode, its media type, and the headers; these are empty in structured mode."""
    if mode == "binary":
        return message.event.data, content_type(message), headers(message, prefix)
    return message.envelope, STRUCTURED, {}


def headers(message: Message, prefix: str) -> dict[str, str]:
    """The attributes as headers for binary mode: printable ASCII, other characters percent-encoded as UTF-8."""
    return {f"{prefix}{name}": quote(value, safe=SAFE) for name, value in attributes(message).items()}
