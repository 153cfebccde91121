"""Convert events to lines of JSON and back.

`append` accepts what `read` prints and stores the same bytes, so one store can be piped into another. The data of an
event is any bytes. A JSON object or array is copied verbatim into the line, other text becomes a string, and
everything else base64. An array that is nested too deeply to be decoded is printed as a string, and so is an object
that holds control characters.

No stored bytes can stop a reader: tests/torture/poison.py.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from typing import Annotated, Any, TypeVar
from uuid import UUID

import msgspec

from ..errors import InvalidInput
from ..model import Event, SequencedEvent
from .escaping import has_controls

Value = TypeVar("Value")


class Line(msgspec.Struct, forbid_unknown_fields=True):
    """The fields of a line. `append` ignores `position` and `recorded_at`, because the store assigns its own."""

    type: str
    tags: list[str] = []
    data: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    data_base64: str | None = None
    id: UUID | None = None
    metadata: dict[str, str] = {}
    position: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    recorded_at: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


SLACK_OPEN = b"[" * 100
SLACK_CLOSE = b"]" * 100
_TOKENS = re.compile(rb'"(?:[^"\\\\]|\\\\.)*"(?:\s*:)?|[\[\]{}]')
_decode_line = msgspec.json.Decoder(Line).decode
_decode_string = msgspec.json.Decoder(str).decode
_decode_position = msgspec.json.Decoder(Annotated[int, msgspec.Meta(ge=1)]).decode
_decode_moment = msgspec.json.Decoder(Annotated[datetime, msgspec.Meta(tz=True)]).decode
FEW_BRACKETS = 200  # less deep than the decoder can always go


def parse(lines: Iterable[bytes]) -> Iterator[Event]:
    """The event of each line that is not empty. An error names the line."""
    return (event for _, event in numbered(lines, from_json))


def numbered(lines: Iterable[bytes], decode: Callable[[bytes], Value]) -> Iterator[tuple[int, Value]]:
    """Decode each line that is not empty; with its number, which an error names as well."""
    for number, line in enumerate(lines, start=1):
        if line.strip():
            try:
                decoded = decode(line)
            except InvalidInput as error:
                raise InvalidInput(f"line {number}, {error.field}", error.problem) from None
            yield number, decoded


def from_json(line: bytes) -> Event:
    return _decoded(line)[1]


def sequenced_from_json(line: bytes) -> SequencedEvent:
    """The event with its position and time, which the line must have."""
    given, checked = _decoded(line)
    position = _required(given.position, "position", _decode_position)
    moment = _required(given.recorded_at, "recorded_at", _decode_moment)
    return SequencedEvent(position, checked.type, checked.tags, checked.data, moment, checked.id, checked.metadata)


def _required(raw: msgspec.Raw | msgspec.UnsetType, field: str, decode: Callable[[msgspec.Raw], Value]) -> Value:
    if raw is msgspec.UNSET:
        raise InvalidInput(field, "missing; a line of `fencepost export` has it")
    try:
        return decode(raw)
    except msgspec.MsgspecError as error:
        raise InvalidInput(field, str(error)) from None


def _decoded(line: bytes) -> tuple[Line, Event]:
    try:
        line.decode()  # because the decoder does not check the encoding of data
        given = _decode_line(line)
        data = _data(given)
    except UnicodeDecodeError as error:
        raise InvalidInput("event", f"not UTF-8 from byte {error.start} on") from None
    except msgspec.MsgspecError as error:
        raise InvalidInput("event", f"not a valid event: {error}") from None
    except RecursionError:
        problem = "nested too deeply to be decoded"
        advice = "; write it as a string, or as data_base64" if _deepest(line) == "data" else ""
        raise InvalidInput(_deepest(line), problem + advice) from None
    return given, Event(given.type, data=data, tags=given.tags, id=given.id, metadata=given.metadata)


def _data(given: Line) -> bytes:
    if given.data_base64 is not None:
        if given.data is not msgspec.UNSET:
            raise InvalidInput("data", "data and data_base64 are both given; use one of them")
        try:
            return b64decode(given.data_base64, validate=True)
        except (Base64Error, ValueError) as error:
            raise InvalidInput("data_base64", f"not base64: {error}") from None
    if given.data is msgspec.UNSET:
        return b""
    raw = bytes(given.data)
    return _decode_string(raw).encode() if raw.startswith(b'"') else raw


def _deepest(line: bytes) -> str:
    """The field of the line whose value is nested most deeply. Does not use recursion."""
    name, depth, found = "event", 0, (0, "event")
    for token in _TOKENS.findall(line):
        if token in b"[{":
            depth += 1
            found = max(found, (depth, name), key=lambda pair: pair[0])
        elif token in b"]}":
            depth -= 1
        elif depth == 1 and token.endswith(b":"):
            name = token.rstrip(b": \t\r\n").strip(b'"').decode()
    return found[1]


def to_json(event: SequencedEvent) -> bytes:
    """The event as a line, without the line break."""
    return msgspec.json.encode(to_builtins(event))


def to_builtins(event: SequencedEvent) -> dict[str, Any]:
    """The fields of the event's line; fields without a value are left out."""
    named: dict[str, Any] = {"position": event.position, "type": event.type, "tags": sorted(event.tags)}
    if is_object(event.data):
        named["data"] = msgspec.Raw(event.data)
    else:
        try:
            named["data"] = event.data.decode()
        except UnicodeDecodeError:
            named["data_base64"] = b64encode(event.data).decode()
    named["recorded_at"] = event.recorded_at
    if event.id is not None:
        named["id"] = event.id
    if event.metadata:
        named["metadata"] = event.metadata
    return named


def is_object(data: bytes) -> bool:
    """Whether the data is a JSON object or array that can go into a line unchanged."""
    if data[:1] + data[-1:] not in (b"{}", b"[]"):
        return False
    try:
        text = data.decode()
        if not text.isprintable() and has_controls(text):
            return False
        if len(data) > FEW_BRACKETS and data.count(b"[") + data.count(b"{") > FEW_BRACKETS:
            # How deep the decoder can go depends on the stack of its caller, so leave room for the stack of `append`.
            data = SLACK_OPEN + data + SLACK_CLOSE
        msgspec.json.decode(data)
    except (UnicodeDecodeError, msgspec.MsgspecError, RecursionError):
        return False
    return True
