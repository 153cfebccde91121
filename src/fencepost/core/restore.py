"""Checks the arguments of `restore`: events of another store must be as valid as events that were appended.

A restore checks millions of events. So events are first tested many at once. That test passes only events in the stored
form that Fencepost itself writes: tags as sorted JSON without spaces, and so on. If it does not pass them, each event
is checked alone, which names the field that is wrong. tests/unit/test_restore_checks.py holds that the quick tests let
nothing pass that the full check refuses, and no text in another form.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from operator import lt
from typing import Any, Final

import msgspec

from ..errors import InvalidInput
from ..model import (
    RecordedAppend,
    SequencedEvent,
    checked_all,
    checked_id,
    checked_position,
    checked_tags,
    checked_type,
    limits,
)
from ..model.checks import checked_data, checked_metadata
from ..model.encodings import NOT_DECODABLE, encode_json

CHUNK_EVENTS: Final = 1_024  # tested at once

_decode_sets: Final = msgspec.json.Decoder(list[frozenset[str]]).decode
_decode_mappings: Final = msgspec.json.Decoder(list[dict[str, str]]).decode


def checked_restore(
    events: Iterable[SequencedEvent], appends: Iterable[RecordedAppend]
) -> tuple[tuple[SequencedEvent, ...], tuple[RecordedAppend, ...]]:
    """The arguments of `restore`. Events of another store must be as valid as events that were appended."""
    taken = checked_all(events, "events", SequencedEvent)
    if len(taken) > limits.MAX_EVENTS:
        raise InvalidInput("events", f"{len(taken)} events, the limit is {limits.MAX_EVENTS}")
    size = sum([len(event.data) for event in taken])
    if size > limits.MAX_APPEND_BYTES:
        raise InvalidInput("events", f"{size} bytes of data at once, the limit is {limits.MAX_APPEND_BYTES}")
    seen = SeenStrings()
    checked: list[SequencedEvent] = []
    for start in range(0, len(taken), CHUNK_EVENTS):
        chunk = taken[start : start + CHUNK_EVENTS]
        checked += chunk if seen.pass_together(chunk) else _checked_each(chunk, start, seen)
    _check_order(checked)
    return tuple(checked), _checked_records(appends, {event.position for event in checked} if appends else ())


def _checked_each(events: Sequence[SequencedEvent], start: int, seen: SeenStrings) -> Iterator[SequencedEvent]:
    for index, event in enumerate(events, start):
        try:
            yield seen.checked(event)
        except InvalidInput as error:
            raise InvalidInput(f"events[{index}].{error.field}", error.problem) from None


def _check_order(events: Sequence[SequencedEvent]) -> None:
    """Raise `InvalidInput` unless positions grow and no id occurs twice."""
    positions = [event.position for event in events]
    ids = [id for id in [event.stored_id for event in events] if id is not None]
    if all(map(lt, (0, *positions), positions)) and len(set(ids)) == len(ids):
        return
    previous, known = 0, set[bytes]()
    for index, event in enumerate(events):
        position, id = event.position, event.stored_id
        if position <= previous:
            raise InvalidInput(
                f"events[{index}].position", f"{position} is not above the position before it, {previous}"
            )
        previous = position
        if id in known:
            raise InvalidInput(f"events[{index}].id", f"{event.id} is the id of two events")
        if id is not None:
            known.add(id)


class SeenStrings:
    """Remembers strings that were found valid. A restore checks millions of types and tags, and most of them repeat."""

    def __init__(self) -> None:
        self._types: set[str] = set()
        self._tags: set[str] = set()

    def pass_together(self, events: Sequence[SequencedEvent]) -> bool:
        """Whether all of the events are valid and in stored form; False if an event has to be checked alone."""
        positions = [event.position for event in events]
        types = [event.type for event in events]
        datas = [event.data for event in events]
        ids: list[Any] = [id for id in [event.raw_id for event in events] if id is not None]
        return (
            _types_of(positions) == {int}
            and min(positions) >= 0
            and max(positions) <= limits.MAX_POSITION
            and _types_of(types) == {str}
            and self._know_types(set(types))
            and _types_of(datas) == {bytes}
            and max(map(len, datas)) <= limits.MAX_DATA_BYTES
            and _types_of([event.raw_recorded_at for event in events]) == {int}
            and (not ids or (_types_of(ids) == {bytes} and set(map(len, ids)) == {16}))
            and self._know_tags([event.raw_tags for event in events])
            and _are_stored_metadata([text for text in [event.raw_metadata for event in events] if text is not None])
        )

    def _know_types(self, types: set[str]) -> bool:
        try:
            self._types.update([checked_type(name, "type") for name in types - self._types])
        except InvalidInput:
            return False
        return True

    def _know_tags(self, texts: list[Any]) -> bool:
        """Whether the texts are valid tags in stored form; remembers the tags if so."""
        sets = _decoded(texts, _decode_sets)
        if sets is None or max(map(len, sets)) > limits.MAX_TAGS:
            return False
        new = frozenset().union(*sets) - self._tags
        if not self._are_plain(new):
            try:
                for tag in new:
                    checked_tags((tag,), "tags")
            except InvalidInput:
                return False
            self._tags |= new
        return True

    def _are_plain(self, tags: frozenset[str]) -> bool:
        """Whether the tags are ASCII within the limits, as almost all are; remembers them if so."""
        for tag in tags:
            if type(tag) is not str or not tag.isascii() or not 0 < len(tag) <= limits.MAX_TAG_BYTES or "\0" in tag:
                return False
        self._tags |= tags
        return True

    def checked(self, event: SequencedEvent) -> SequencedEvent:
        """The event in the form in which an append stores it, or `InvalidInput` if no append could have stored it."""
        checked_position(event.position, "position")
        if event.type not in self._types:
            self._types.add(checked_type(event.type, "type"))
        tags = event.tags
        if len(tags) > limits.MAX_TAGS or not (tags <= self._tags or self._are_plain(tags)):
            self._tags |= checked_tags(tags, "tags")
        data, metadata = checked_data(event.data), checked_metadata(event.metadata)
        if event.raw_id is not None and not (isinstance(event.raw_id, bytes) and len(event.raw_id) == 16):
            checked_id(event.raw_id)
        if not isinstance(event.raw_recorded_at, int) and event.recorded_at.tzinfo is None:
            raise InvalidInput("recorded_at", "a datetime with a time zone is needed")
        return SequencedEvent(event.position, event.type, tags, data, event.raw_recorded_at, event.raw_id, metadata)


def _types_of(values: Iterable[object]) -> set[type]:
    return set(map(type, values))


def _decoded(texts: list[Any], decode: Callable[[str], list[Any]]) -> list[Any] | None:
    """The values of JSON texts, decoded together; None if a text is not the one that Fencepost writes for its value.

    The encoder sorts sets and the names of mappings, and it escapes line breaks. So the joined texts are equal only if
    every text is equal to the one that is written for its value.
    """
    try:
        values = decode(f"[{','.join(texts)}]")
        is_stored = b"\n".join(map(encode_json, values)) == "\n".join(texts).encode()
    except (TypeError, *NOT_DECODABLE):  # TypeError: a value that has been decoded before
        return None
    return values if is_stored else None


def _are_stored_metadata(texts: list[Any]) -> bool:
    if not texts:
        return True
    values = _decoded(texts, _decode_mappings)
    if values is None or not all(values):
        return False
    return max([len(text.encode()) for text in texts]) <= limits.MAX_METADATA_BYTES


def _checked_records(appends: Iterable[RecordedAppend], ends: Container[int]) -> tuple[RecordedAppend, ...]:
    taken = checked_all(appends, "appends", RecordedAppend)
    previous = 0
    for index, append in enumerate(taken):
        if not previous < append.first <= append.last:
            problem = f"{append.first} to {append.last} is not above the append before it, which ends at {previous}"
            raise InvalidInput(f"appends[{index}]", problem)
        if append.last not in ends:
            raise InvalidInput(
                f"appends[{index}]", f"its last position, {append.last}, is not the position of one of the events"
            )
        try:
            append.conditions, append.unless  # noqa: B018
        except InvalidInput as error:
            raise InvalidInput(f"appends[{index}].{error.field}", error.problem) from None
        previous = append.last
    return taken
