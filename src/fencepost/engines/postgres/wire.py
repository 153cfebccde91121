"""The encoding of batches and verdicts.

A batch is one JSON document. Its structure is nested (appends contain events and conditions, which contain items and
tags), and both the client and the server process JSON in C. Binary data is base64. An append of one event is not
nested: its fields are the parameters of `append_one`.

If an earlier append of the batch could affect an append, the client sets `sees_batch`, and the server stores the
earlier ones first. `sees_batch` is computed from the linear cover of the conflict kernel, in which an event and a
query share a key whenever they match (theorem `linear_cover`). For most batches it is false.
tests/postgres/test_batches.py compares the verdicts with those of the memory engine.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, Literal, TypeAlias
from uuid import UUID

import msgspec
from psycopg.pq import Format

from ...buckets import read_keys, write_keys
from ...core.verdicts import Append, Behind, Changed, Conflict, Overlap, Verdict
from ...model import Delete, Event, Placed, Put, Query, QueryItem, Record, SequencedEvent

LAST_POSITION: Final = 2**63 - 2  # no event is above: one less than the largest bigint, so that 1 can be added
UNLESS: Final = -1  # used for `unless` in place of the index of a condition

# The formats of the arguments that `encode_one` returns.
FORMATS_OF_ONE: Final = (Format.BINARY,) * 4 + (Format.TEXT,) * 3
TEXT_OID: Final = 25

Afters: TypeAlias = Mapping[int, Sequence[int]]
"""For the `id()` of an append, where the search for each of its checks can begin."""

COSTLY_TAGS: Final = 64  # a search for this many tags takes milliseconds, even if no event has all tags of an item

_encode = msgspec.json.Encoder().encode
_pack_array = struct.Struct("!iiIii").pack  # number of dimensions, flag for NULLs, type, length, lower bound
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


class ChangeDocument(msgspec.Struct, omit_defaults=True):
    name: str
    expected: int
    value: bytes | None = None  # None deletes the record


class AppendDocument(msgspec.Struct, omit_defaults=True):
    before: int
    events: list[EventDocument]
    ids: list[UUID] | None = None
    checks: list[ItemDocument] | None = None
    checkpoint: str | None = None
    checkpoint_position: str | None = None
    records: list[ChangeDocument] | None = None
    sees_batch: bool = False


class VerdictDocument(msgspec.Struct):
    outcome: Literal["placed", "already", "conflict", "overlap", "behind", "changed"]
    first: int = 0
    last: int = 0
    detail: int = 0
    current: str = ""
    value: bytes = b""
    revisions: tuple[int, ...] | None = None
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


def encode_batch(appends: Sequence[Append], afters: Afters | None = None) -> list[bytes]:
    """The arguments of `append_batch`. `afters` has what `narrow_checks` has found."""
    documents = []
    marks = sees_batch(appends) if len(appends) > 1 else (False,)
    before = 0
    for append, mark in zip(appends, marks, strict=True):
        documents.append(_append_document(append, append.events, before, mark, afters))
        before += len(append.events)
    return _arguments(documents)


def is_one(appends: Sequence[Append]) -> bool:
    """Whether `append_one` can take the batch: one append of one event, without a checkpoint or records."""
    if len(appends) != 1:
        return False
    [append] = appends
    return append.checkpoint is None and not append.records and len(append.events) == 1


def encode_one(append: Append) -> list[bytes | None]:
    """The arguments of `append_one`."""
    (event,) = append.events
    metadata = event.raw_metadata
    checks = list(_checks(append))
    return [
        None if event.id is None else event.id.bytes,
        event.type.encode(),
        encode_array(sorted(event.tags)),
        event.data,
        None if metadata is None else metadata.encode(),
        _encode(checks) if checks else None,
        b"%d" % min((check.after for check in checks), default=LAST_POSITION),
    ]


def encode_array(texts: Sequence[str]) -> bytes:
    """A `text[]` in PostgreSQL's binary format."""
    elements = [_pack_length(len(text)) + text for text in map(str.encode, texts)]
    return b"".join([_pack_array(1, 0, TEXT_OID, len(texts), 1), *elements])


def encode_chunk(append: Append, begin: int, end: int, afters: Afters | None = None) -> list[bytes]:
    """The arguments of `append_batch` for a chunk of a large append. Only the first has the ids and conditions."""
    described = append if begin == 0 else Append(())
    return _arguments([_append_document(described, append.events[begin:end], 0, False, afters)])


def is_costly(appends: Sequence[Append]) -> bool:
    """Whether the search for the conditions of the appends may take long, because they name many tags."""
    tags = 0
    for append in appends:
        for condition in append.conditions:
            tags += sum(len(item.tags) for item in condition.fail_if_events_match.items)
        if append.unless is not None:
            tags += sum(len(item.tags) for item in append.unless.items)
    return tags > COSTLY_TAGS


def encode_checks(appends: Sequence[Append]) -> bytes:
    """The argument of `narrow_checks`."""
    return _encode([check for append in appends for check in _checks(append)])


def decode_afters(appends: Sequence[Append], answer: Sequence[int]) -> Afters:
    """What `narrow_checks` has found for each append."""
    remaining = iter(answer)
    return {id(append): [next(remaining) for _ in _checks(append)] for append in appends}  # in the order of the checks


def encode_items(query: Query) -> bytes | None:
    """The items of a query in JSON. None stands for all events."""
    return None if query.matches_all else _encode([_item_document(item) for item in query.items])


def sees_batch(appends: Sequence[Append]) -> list[bool]:
    """For each append, whether an earlier one that is not stored yet may affect it."""
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
    """Decode the answer of `append_batch`: a number if all were placed behind it, else a verdict for each."""
    if answer.startswith(b"["):
        documents = _decode_verdicts(answer)
        return [_verdict(append, document) for append, document in zip(appends, documents, strict=True)]
    verdicts: list[Verdict] = []
    head = int(answer)
    for append in appends:
        before, head = head, head + len(append.events)
        verdicts.append(Placed(before + 1, head))
    return verdicts


def decode_chunk(append: Append, begin: int, end: int, answer: bytes) -> Verdict:
    """Decode the answer for a chunk. Ids are checked against the whole append; new positions cover only this chunk."""
    (verdict,) = decode_verdicts([append], answer)
    if isinstance(verdict, Placed) and not verdict.already:
        return Placed(verdict.first, verdict.first + end - begin - 1, revisions=verdict.revisions)
    return verdict


def _verdict(append: Append, document: VerdictDocument) -> Verdict:
    outcome, first, last = document.outcome, document.first, document.last
    if outcome == "placed" or outcome == "already":
        return Placed(first, last, already=outcome == "already", revisions=document.revisions or ())
    if outcome == "conflict":
        event = document.event
        conflict = None if event is None else SequencedEvent(*msgspec.structs.astuple(event))
        return Conflict(append.conditions[document.detail], first, conflict)
    if outcome == "overlap":
        stored, missing = append.events[document.detail - 1].id, append.events[last - 1].id
        assert stored is not None
        assert missing is not None
        return Overlap(stored, first, missing)
    if outcome == "changed":
        change = append.records[document.detail - 1]
        current = Record(change.name, document.value, int(document.current)) if document.current else None
        return Changed(change.name, change.expected, current)
    assert append.checkpoint is not None
    return Behind(*append.checkpoint, int(document.current))


def _arguments(documents: Sequence[AppendDocument]) -> list[bytes]:
    plain = not any(one.sees_batch or one.checkpoint is not None or one.records is not None for one in documents)
    oldest = LAST_POSITION
    for one in documents:
        if one.ids is not None:
            oldest = 0
        for check in one.checks or ():
            oldest = min(oldest, check.after)
    return [_encode(documents), b"true" if plain else b"false", b"%d" % oldest]


def _append_document(
    append: Append, events: Sequence[Event], before: int, mark: bool, afters: Afters | None
) -> AppendDocument:
    document = AppendDocument(before, [_event_document(event) for event in events], sees_batch=mark)
    if append.events and append.events[0].id is not None:
        document.ids = [event.id for event in append.events if event.id is not None]
    if append.unless is not None or append.conditions:
        document.checks = list(_checks(append))
        if afters is not None:
            for check, after in zip(document.checks, afters[id(append)], strict=True):
                check.after = after
    if append.checkpoint is not None:
        name, position = append.checkpoint
        document.checkpoint, document.checkpoint_position = name, str(position)
    if append.records:
        document.records = [_change_document(change) for change in append.records]
    return document


def _change_document(change: Put | Delete) -> ChangeDocument:
    return ChangeDocument(change.name, change.expected, change.value if isinstance(change, Put) else None)


def _event_document(event: Event) -> EventDocument:
    return EventDocument(event.type, sorted(event.tags), event.data, event.id, event.raw_metadata)


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
    """The keys for ids, through which an append can affect another without matching its query.

    Checkpoints and records need none: the server changes them as soon as an append is accepted.
    """
    for event in append.events:
        if event.id is not None:
            yield "id", event.id
