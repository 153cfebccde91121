"""The one JSON form of an event: for the command, HTTP, NDJSON, server-sent events, exports and imports.

The data of an event is any bytes, and JSON has three fields for it. `data` is a JSON value: its text in the document
is the stored bytes, so `"data": "100"` means five bytes, with the quotes, and `"data": 100` three. `data_text` is a
string for other bytes that are UTF-8. `data_base64` is for all others. An event without data has none of the fields.
What is written here is read back byte for byte, wherever it is read: tests/copying/test_event_json.py passes every
output to every input, and tests/torture/poison.py checks that no stored bytes can stop a reader.

JavaScript and many JSON parsers hold numbers as 64-bit floats, which are exact up to 2**53, and positions of
FoundationDB have 96 bits. So a position is a number below 2**53, and a string of digits otherwise. Both forms are read.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from datetime import datetime
from typing import Annotated, Final, TypeAlias
from uuid import UUID

import msgspec
from msgspec import UNSET, Raw, UnsetType

from .. import Event, SequencedEvent
from ..errors import InvalidInput

WirePosition: TypeAlias = int | str

FIRST_TEXT_POSITION: Final = 2**53
LONGEST_POSITION: Final = 29  # digits of 2**96 - 1
FEW_BRACKETS: Final = 200  # less deep than the decoder can always go
# How deep the decoder can go depends on the stack of its caller, so a deep value is tried inside this many arrays more.
SLACK_OPEN: Final = b"[" * 100
SLACK_CLOSE: Final = b"]" * 100
_CONTROLS: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f]")  # a tab is harmless


class EventDocument(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """An event as JSON. A stored event has `position` and `recorded_at`; an append ignores them."""

    position: WirePosition | UnsetType = UNSET
    type: str
    tags: list[str] | UnsetType = UNSET
    data: Raw | UnsetType = UNSET
    data_text: str | UnsetType = UNSET
    data_base64: str | UnsetType = UNSET
    recorded_at: Annotated[datetime, msgspec.Meta(tz=True)] | UnsetType = UNSET
    id: UUID | None = None
    metadata: dict[str, str] = {}


_decode: Final = msgspec.json.Decoder(EventDocument).decode
_encode: Final = msgspec.json.Encoder().encode


def event_from_json(line: bytes) -> Event:
    """The event that the JSON object describes."""
    return event_of(_document(line))


def sequenced_from_json(line: bytes) -> SequencedEvent:
    """The stored event that the JSON object describes, which must have a position and a time."""
    return sequenced_of(_document(line))


def event_to_json(event: SequencedEvent) -> bytes:
    """The event as a JSON object, on one line without a line break."""
    return _encode(document_of(event))


def document_of(event: SequencedEvent) -> EventDocument:
    document = EventDocument(
        position=to_wire(event.position),
        type=event.type,
        tags=sorted(event.tags),
        recorded_at=event.recorded_at,
        id=event.id,
        metadata=dict(event.metadata),
    )
    if is_json_value(event.data):
        document.data = Raw(event.data)
    elif event.data:
        try:
            document.data_text = event.data.decode()
        except UnicodeDecodeError:
            document.data_base64 = b64encode(event.data).decode()
    return document


def event_of(document: EventDocument) -> Event:
    tags = () if document.tags is UNSET else document.tags
    return Event(document.type, data=_data(document), tags=tags, id=document.id, metadata=document.metadata)


def sequenced_of(document: EventDocument) -> SequencedEvent:
    position, recorded_at = document.position, document.recorded_at
    for field, value in (("position", position), ("recorded_at", recorded_at)):
        if value is UNSET:
            raise InvalidInput(field, "missing; an event that was read or exported has it")
    assert not isinstance(position, UnsetType)
    assert not isinstance(recorded_at, UnsetType)
    number = from_wire(position, "position")
    if number < 1:
        raise InvalidInput("position", f"positions begin at 1, and this is {number}")
    event = event_of(document)
    return SequencedEvent(number, event.type, event.tags, event.data, recorded_at, event.id, event.metadata)


def to_wire(position: int) -> WirePosition:
    """
    >>> to_wire(7), to_wire(2**64)
    (7, '18446744073709551616')
    """
    return position if position < FIRST_TEXT_POSITION else str(position)


def from_wire(given: WirePosition, field: str) -> int:
    """The position, not yet checked against the limits of positions."""
    if isinstance(given, int):
        return given
    if not given.isascii() or not given.isdigit() or len(given) > LONGEST_POSITION:
        raise InvalidInput(
            field, f"a position is a number or a string of at most {LONGEST_POSITION} digits: {given!r:.80}"
        )
    return int(given)


def is_json_value(data: bytes) -> bool:
    """Whether the bytes are a JSON value that can stand in a line of JSON unchanged, and that every reader can decode.

    >>> is_json_value(b'{"a": 1}'), is_json_value(b" 1"), is_json_value(b"{"), is_json_value(b"[1,\\n2]")
    (True, False, False, False)
    """
    if not data or data[0] in b" \t" or data[-1] in b" \t":  # a decoder drops white space around a value
        return False
    try:
        text = data.decode()
        if not text.isprintable() and _CONTROLS.search(text):
            return False
        if len(data) > FEW_BRACKETS and data.count(b"[") + data.count(b"{") > FEW_BRACKETS:
            data = SLACK_OPEN + data + SLACK_CLOSE
        msgspec.json.decode(data)
    except (UnicodeDecodeError, msgspec.MsgspecError, RecursionError):
        return False
    return True


def escape_controls(line: bytes, *, formats: bool) -> bytes:
    """Escape the control characters in a line of JSON; if `formats`, every other invisible character as well.

    >>> escape_controls('["\\x9b2J", "\\u202e"]'.encode(), formats=True)
    b'["\\\\u009b2J", "\\\\u202e"]'
    """
    if line.isascii() and b"\x7f" not in line:
        return line
    text = line.decode()
    if formats and not text.isprintable():
        return "".join([each if each.isprintable() else json.dumps(each)[1:-1] for each in text]).encode()
    return _CONTROLS.sub(lambda found: json.dumps(found.group())[1:-1], text).encode()


def _document(line: bytes) -> EventDocument:
    try:
        return _decode(line)
    except msgspec.ValidationError as error:
        problem, _, field = str(error).partition(" - at `$.")
        raise InvalidInput(field.rstrip("`") or "event", problem) from None
    except (msgspec.DecodeError, UnicodeError) as error:
        raise InvalidInput("event", f"not valid JSON: {error}") from None
    except RecursionError:
        advice = "its data can be written as data_text or data_base64"
        raise InvalidInput("event", f"arrays or objects are nested too deeply to be decoded; {advice}") from None


def _data(document: EventDocument) -> bytes:
    value, text, base64 = document.data, document.data_text, document.data_base64
    if (value is not UNSET) + (text is not UNSET) + (base64 is not UNSET) > 1:
        raise InvalidInput("data", "given twice; use one of data, data_text and data_base64")
    if value is not UNSET:
        stored = bytes(value)
        if not stored.isascii():  # the decoder does not check the encoding of a raw value
            try:
                stored.decode()
            except UnicodeDecodeError as error:
                raise InvalidInput("data", f"not UTF-8 from byte {error.start} on") from None
        return stored
    if text is not UNSET:
        return text.encode()
    if base64 is UNSET:
        return b""
    try:
        return b64decode(base64, validate=True)
    except (NotBase64, ValueError) as error:
        raise InvalidInput("data_base64", f"not base64: {error}") from None
