"""What travels: a batch as one JSON document to the server, verdicts and events back.

JSON, since a batch is ragged (appends have events have tags; conditions have items have tags) and both
ends read and write it in C. Binary data goes as base64. An append of one event is not ragged: it goes as the
parameters of `append_one`.

An append that could be affected by an earlier one of its batch is marked with `sees_batch`, so that the
server stores those before it first. The mark comes from the linear cover of the conflict kernel, which
meets whenever an event matches (theorem `linear_cover`), and most batches need none.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Literal
from uuid import UUID

import msgspec
from psycopg.pq import Format

from ...buckets import read_keys, write_keys
from ...commit import Append, Behind, Conflicting, Overlapping, Verdict
from ...model import Event, Placed, Query, QueryItem, SequencedEvent, encode_metadata

LAST_POSITION: Final = 2**63 - 2  # of a bigint, with room for one more; no event is ever above
UNLESS: Final = -1  # stands for the index of a condition
TAGS_IN_ROW: Final = 4  # so many tags are indexed in the row of their event, as postgres.sql has it

# How the arguments of `append_one` are given, see `encode_one`.
FORMATS_OF_ONE: Final = (Format.BINARY,) * 4 + (Format.TEXT,) * 3
TEXT_OID: Final = 25

_encode = msgspec.json.Encoder().encode
_pack_array = struct.Struct("!iiIii").pack  # dimensions, whether there are NULLs, type, length, first index
_pack_length = struct.Struct("!i").pack


class EventDocument(msgspec.Struct, omit_defaults=True):
    type: str
    tags: list[str]
    data: bytes
    id: UUID | None = None
    metadata: str | None = None


class ItemDocument(msgspec.Struct):
    types: list[str]
    tags: list[str]
    condition: int = 0
    after: int = 0


class AppendDocument(msgspec.Struct, omit_defaults=True):
    before: int
    count: int
    events: list[EventDocument]
    ids: list[UUID] | None = None
    checks: list[ItemDocument] | None = None
    checkpoint: str | None = None
    checkpoint_position: str | None = None
    many_tags: bool = False
    sees_batch: bool = False


class VerdictDocument(msgspec.Struct):
    outcome: Literal["placed", "already", "conflict", "overlap", "behind"]
    first: int = 0
    last: int = 0
    detail: int = 0
    current: str = ""
    event: StoredDocument | None = None


class StoredDocument(msgspec.Struct):
    position: int
    type: str
    tags: frozenset[str]
    data: bytes
    recorded_at: int
    id: UUID | None
    metadata: str | None


_decode_verdicts = msgspec.json.Decoder(list[VerdictDocument]).decode


def encode_batch(appends: Sequence[Append]) -> list[bytes]:
    """The arguments of `append_batch`."""
    documents = []
    marks = sees_batch(appends) if len(appends) > 1 else (False,)
    before = 0
    for append, mark in zip(appends, marks, strict=True):
        documents.append(_append_document(append, append.events, before, mark))
        before += len(append.events)
    return _arguments(documents)


def is_one(appends: Sequence[Append]) -> bool:
    """Whether this is for `append_one`: one event, with as many tags as its row indexes, and no checkpoint."""
    if len(appends) != 1 or appends[0].checkpoint is not None:
        return False
    events = appends[0].events
    return len(events) == 1 and len(events[0].tags) <= TAGS_IN_ROW


def encode_one(append: Append) -> list[bytes | None]:
    """The arguments of `append_one`."""
    (event,) = append.events
    metadata = encode_metadata(event.metadata)
    checks = list(_checks(append))
    return [
        None if event.id is None else event.id.bytes,
        event.type.encode(),
        _encode_array(sorted(event.tags)),
        event.data,
        None if metadata is None else metadata.encode(),
        _encode(checks) if checks else None,
        b"%d" % min((check.after for check in checks), default=LAST_POSITION),
    ]


def encode_part(append: Append, begin: int, end: int) -> list[bytes]:
    """Some events of one large append. The first part is judged for all of it, the others follow blindly."""
    judged = append if begin == 0 else Append(())
    return _arguments([_append_document(judged, append.events[begin:end], 0, False)])


def encode_items(query: Query) -> bytes | None:
    """What to read; nothing stands for everything."""
    return None if query.matches_all else _encode([_item_document(item) for item in query.items])


def sees_batch(appends: Sequence[Append]) -> list[bool]:
    """Which appends may be affected by one before them that is not stored by then."""
    marks = []
    written: set[tuple[str, object]] = set()
    for append in appends:
        mark = not written.isdisjoint(_keys_read(append))
        if mark:
            written.clear()
        marks.append(mark)
        written.update(_keys_written(append))
    return marks


def decode_verdicts(appends: Sequence[Append], answer: bytes) -> list[Verdict]:
    """What `append_batch` says: a number when all were placed behind it, else a verdict for each."""
    if answer.startswith(b"["):
        documents = _decode_verdicts(answer)
        return [_verdict(append, document) for append, document in zip(appends, documents, strict=True)]
    verdicts: list[Verdict] = []
    head = int(answer)
    for append in appends:
        before, head = head, head + len(append.events)
        verdicts.append(Placed(before + 1, head))
    return verdicts


def decode_part(append: Append, begin: int, end: int, answer: bytes) -> Verdict:
    """What it says of a part: ids are judged, and counted, in the whole append, and what is placed is the part."""
    (verdict,) = decode_verdicts([append], answer)
    if isinstance(verdict, Placed) and not verdict.already:
        return Placed(verdict.first, verdict.first + end - begin - 1)
    return verdict


def _verdict(append: Append, document: VerdictDocument) -> Verdict:
    outcome, first, last = document.outcome, document.first, document.last
    if outcome == "placed" or outcome == "already":
        return Placed(first, last, already=outcome == "already")
    if outcome == "conflict":
        event = document.event
        conflict = None if event is None else SequencedEvent(*msgspec.structs.astuple(event))
        return Conflicting(append.conditions[document.detail], first, conflict)
    if outcome == "overlap":
        stored, missing = append.events[document.detail - 1].id, append.events[last - 1].id
        assert stored is not None
        assert missing is not None
        return Overlapping(stored, first, missing)
    assert append.checkpoint is not None
    return Behind(*append.checkpoint, int(document.current))


def _arguments(documents: Sequence[AppendDocument]) -> list[bytes]:
    plain = not any(one.sees_batch or one.many_tags or one.checkpoint is not None for one in documents)
    oldest = LAST_POSITION
    for one in documents:
        if one.ids is not None:
            oldest = 0
        for check in one.checks or ():
            oldest = min(oldest, check.after)
    return [_encode(documents), b"true" if plain else b"false", b"%d" % oldest]


def _append_document(append: Append, events: Sequence[Event], before: int, mark: bool) -> AppendDocument:
    document = AppendDocument(before, len(events), [_event_document(event) for event in events], sees_batch=mark)
    document.many_tags = any(len(event.tags) > TAGS_IN_ROW for event in events)
    if append.events and append.events[0].id is not None:
        document.ids = [event.id for event in append.events if event.id is not None]
    if append.unless is not None or append.conditions:
        document.checks = list(_checks(append))
    if append.checkpoint is not None:
        name, position = append.checkpoint
        document.checkpoint, document.checkpoint_position = name, str(position)
    return document


def _encode_array(texts: Sequence[str]) -> bytes:
    """A `text[]` as PostgreSQL has it in binary."""
    parts = [_pack_array(1, 0, TEXT_OID, len(texts), 1)]
    for text in texts:
        encoded = text.encode()
        parts += _pack_length(len(encoded)), encoded
    return b"".join(parts)


def _event_document(event: Event) -> EventDocument:
    return EventDocument(event.type, sorted(event.tags), event.data, event.id, encode_metadata(event.metadata))


def _checks(append: Append) -> Iterator[ItemDocument]:
    if append.unless is not None:
        for item in append.unless.items:
            yield _item_document(item, UNLESS)
    for index, condition in enumerate(append.conditions):
        after = min(condition.after, LAST_POSITION)
        for item in condition.fail_if_events_match.items:
            yield _item_document(item, index, after)


def _item_document(item: QueryItem, condition: int = 0, after: int = 0) -> ItemDocument:
    return ItemDocument(sorted(item.types), sorted(item.tags), condition, after)


def _keys_read(append: Append) -> Iterator[tuple[str, object]]:
    queries = [condition.fail_if_events_match for condition in append.conditions]
    if append.unless is not None:
        queries.append(append.unless)
    for query in queries:
        for item in query.items:
            yield from read_keys(item)
    yield from _own_keys(append)


def _keys_written(append: Append) -> Iterator[tuple[str, object]]:
    for event in append.events:
        yield from write_keys(event)
    yield from _own_keys(append)


def _own_keys(append: Append) -> Iterable[tuple[str, object]]:
    """What two appends of a batch may share besides matching: ids, and a checkpoint."""
    for event in append.events:
        if event.id is not None:
            yield "id", event.id
    if append.checkpoint is not None:
        yield "checkpoint", append.checkpoint[0]
