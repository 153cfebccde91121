"""An event as a line of JSON, in both directions.

What `read` prints, `append` accepts, and stores the same bytes again: so one store can be piped
into another. Data is any bytes, and JSON can hold only some of them as they are. An object or
array goes verbatim into the line, other text as a string, and the rest as base64.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Iterable, Iterator
from typing import Any
from uuid import UUID

import msgspec

from ..errors import InvalidInput
from ..model import Event, SequencedEvent


class Line(msgspec.Struct, forbid_unknown_fields=True):
    """What a line may say. The store gives its own position and time: those of the input are passed over."""

    type: str
    tags: list[str] = []
    data: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    data_base64: str | None = None
    id: UUID | None = None
    metadata: dict[str, str] = {}
    position: Any = None
    recorded_at: Any = None


_decode_line = msgspec.json.Decoder(Line).decode
_decode_string = msgspec.json.Decoder(str).decode


def parse(lines: Iterable[bytes]) -> Iterator[Event]:
    """The events on the lines; empty lines are passed over. A refusal names the line."""
    for number, line in enumerate(lines, start=1):
        if line.strip():
            try:
                yield from_json(line)
            except InvalidInput as error:
                raise InvalidInput(f"line {number}, {error.field}", error.problem) from None


def from_json(line: bytes) -> Event:
    try:
        line.decode()  # the decoder does not look inside of data, which it leaves as it is
        given = _decode_line(line)
        data = _data(given)
    except UnicodeDecodeError as error:
        raise InvalidInput("event", f"not UTF-8 from byte {error.start} on") from None
    except msgspec.MsgspecError as error:
        raise InvalidInput("event", f"not as expected: {error}") from None
    return Event(given.type, data=data, tags=given.tags, id=given.id, metadata=given.metadata)


def _data(given: Line) -> bytes:
    if given.data_base64 is not None:
        if given.data is not msgspec.UNSET:
            raise InvalidInput("data", "data and data_base64 are both there; leave one of them out")
        try:
            return b64decode(given.data_base64, validate=True)
        except (Base64Error, ValueError) as error:
            raise InvalidInput("data_base64", f"not base64: {error}") from None
    if given.data is msgspec.UNSET:
        return b""
    raw = bytes(given.data)
    return _decode_string(raw).encode() if raw.startswith(b'"') else raw


def to_json(event: SequencedEvent) -> bytes:
    """One line, without its end."""
    return msgspec.json.encode(to_builtins(event))


def to_builtins(event: SequencedEvent) -> dict[str, Any]:
    """What is not there is left out."""
    named: dict[str, Any] = {"position": event.position, "type": event.type, "tags": sorted(event.tags)}
    if _is_object(event.data):
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


def _is_object(data: bytes) -> bool:
    """Whether the data is a JSON object or array that fits into a line as it is."""
    if data[:1] + data[-1:] not in (b"{}", b"[]") or b"\n" in data or b"\r" in data:
        return False
    try:
        data.decode()
        msgspec.json.decode(data)
    except (UnicodeDecodeError, msgspec.MsgspecError):
        return False
    return True
