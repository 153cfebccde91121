"""Lines of JSON of many stored events, several times faster than one by one.

The line of an event is the one that `event_to_json` makes, byte for byte; tests/copying/test_event_lines.py compares
them for generated events. The speed comes from using the stored form of tags, time, id and metadata as it is,
after a check that it is the form that Fencepost writes. The data and the tags of many events are checked together, as
one JSON array, which has as many elements as there are events, each with the bytes of its event. If a check of many
fails, each event is checked alone, and an event for which a check fails goes through `event_to_json`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from .. import SequencedEvent
from ..engine import NOT_DECODABLE, decode_moment, encode_json
from .event_json import FIRST_TEXT_POSITION, SLACK_CLOSE, SLACK_OPEN, escape_controls, event_to_json, is_json_value

MOST_TYPES: Final = 10_000
_decode_lists: Final = msgspec.json.Decoder(list[list[str]]).decode
_decode_raws: Final = msgspec.json.Decoder(list[msgspec.Raw]).decode
_decode_strings: Final = msgspec.json.Decoder(list[str]).decode
_decode_mapping: Final = msgspec.json.Decoder(dict[str, str]).decode
_encode: Final = msgspec.json.Encoder().encode


class EventLines:
    """Makes lines; remembers the types and the second that it has seen."""

    def __init__(self) -> None:
        self._types: dict[str, str] = {}
        self._second: int | None = None
        self._prefix = ""

    def encode(self, events: Iterable[SequencedEvent], *, terminal: bool = False) -> bytes:
        """The lines of the events, each with its line break."""
        events = list(events)
        lines = self._lines(events, checked=_have_plain_tags(events) and _have_plain_data(events))
        text = "\n".join([*lines, ""])
        if text.isascii() and "\x7f" not in text:
            return text.encode()
        return b"\n".join([*(escape_controls(line.encode(), formats=terminal) for line in lines), b""])

    def _lines(self, events: Iterable[SequencedEvent], *, checked: bool) -> list[str]:
        """`checked` says that the tags and the data of every event can go into its line as they are."""
        lines = []
        types, at, moment = self._types, None, ""
        for event in events:
            id, metadata = event.raw_id, event.raw_metadata
            if (
                not isinstance(event.raw_recorded_at, int)
                or (id is not None and (not isinstance(id, bytes) or len(id) != 16))
                or (metadata is not None and not _is_plain_metadata(metadata))
                or not (checked or _is_plain_tags(event.raw_tags))
            ):
                lines.append(event_to_json(event).decode())
                continue
            if event.raw_recorded_at != at:  # events of one append share it
                at = event.raw_recorded_at
                try:
                    moment = self._encode_moment(at)
                except NOT_DECODABLE:
                    at = None
                    lines.append(event_to_json(event).decode())
                    continue
            type = types.get(event.type) or self._type(event.type)
            position = event.position if event.position < FIRST_TEXT_POSITION else f'"{event.position}"'
            data = f'"data":{event.data.decode()},' if checked else _data(event.data)
            rest = "" if id is None else _id(id)
            if metadata is not None:
                rest += f',"metadata":{metadata}'
            lines.append(
                f'{{"position":{position},"type":{type},"tags":{event.raw_tags},{data}"recorded_at":"{moment}"{rest}}}'
            )
        return lines

    def _type(self, type: str) -> str:
        if len(self._types) >= MOST_TYPES:
            self._types.clear()
        encoded = self._types[type] = _encode(type).decode()
        return encoded

    def _encode_moment(self, microseconds: int) -> str:
        second, fraction = divmod(microseconds, 1_000_000)
        if second != self._second:
            self._prefix = decode_moment(second * 1_000_000).replace(tzinfo=None).isoformat()
            self._second = second
        return f"{self._prefix}.{fraction:06}Z" if fraction else f"{self._prefix}Z"


def _have_plain_tags(events: Sequence[SequencedEvent]) -> bool:
    """Whether the tags of each event are in the very form that Fencepost writes, and need no escapes."""
    texts = [event.raw_tags for event in events]
    try:
        joined = ",".join(texts)  # type: ignore[arg-type]
        lists = _decode_lists(f"[{joined}]")
    except (TypeError, *NOT_DECODABLE):  # TypeError: the tags of an event have been decoded
        return False
    if "\\" in joined or len(lists) != len(texts):
        return False
    # Without escapes, a list has one text.
    if texts != [f'["{names}"]' if names else "[]" for names in map('","'.join, lists)]:
        return False
    return not any(len(names) > 1 and _disordered(names) for names in lists)


def _disordered(names: list[str]) -> bool:
    if len(names) == 2:
        return names[0] >= names[1]
    if len(names) == 3:
        return not names[0] < names[1] < names[2]
    return sorted(set(names)) != names


def _have_plain_data(events: Sequence[SequencedEvent]) -> bool:
    """Whether the data of each event is printable JSON, an object or an array."""
    datas = [event.data for event in events]
    if not {data[:1] for data in datas} <= {b"{", b"["}:
        return False
    whole = b"".join((SLACK_OPEN, b"[", b",".join(datas), b"]", SLACK_CLOSE))
    try:
        # JSON has no other control characters than these and tabs, so ASCII needs no slower check.
        is_harmless = whole.isascii() and b"\n" not in whole and b"\r" not in whole and b"\x7f" not in whole
        if not is_harmless and not whole.decode().isprintable():
            return False
        msgspec.json.decode(whole)  # because raw elements may hold numbers that are out of range
        return list(map(bytes, _decode_raws(memoryview(whole)[len(SLACK_OPEN) : -len(SLACK_CLOSE)]))) == datas
    except NOT_DECODABLE:
        return False


def _is_plain_tags(tags: object) -> bool:
    """Whether the tags are in the very form that Fencepost writes."""
    if not isinstance(tags, str):
        return False
    try:
        names = _decode_strings(tags)
    except NOT_DECODABLE:
        return False
    return _encode(names) == tags.encode() and sorted(set(names)) == names


def _is_plain_metadata(metadata: object) -> bool:
    """Whether the metadata is in the very form that Fencepost writes, and not empty."""
    if not isinstance(metadata, str):
        return False
    try:
        mapping = _decode_mapping(metadata)
    except NOT_DECODABLE:
        return False
    return bool(mapping) and encode_json(mapping) == metadata.encode()


def _data(data: bytes) -> str:
    """The field that holds the data, with its comma; nothing if there is no data."""
    if not data:
        return ""
    if is_json_value(data):
        return f'"data":{data.decode()},'
    try:
        return f'"data_text":{_encode(data.decode()).decode()},'
    except UnicodeDecodeError:
        return f'"data_base64":{_encode(data).decode()},'


def _id(id: bytes) -> str:
    text = id.hex()
    return f',"id":"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"'
