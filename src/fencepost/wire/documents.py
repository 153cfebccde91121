"""Appends, queries and events as JSON documents.

`data` is bytes in a store. In a document it is a JSON value if the bytes are JSON, and base64 text in `data_base64`
otherwise. The value stands in the document exactly as it is stored, with its spaces and the order of its names, so
the bytes survive the journey. Bytes with line breaks travel as base64, because a line of NDJSON has none.

A document with an unknown name is refused: it is more often a typing error than a wish to have the name ignored.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from collections.abc import Sequence
from datetime import datetime
from typing import Any, TypeVar
from uuid import UUID

import msgspec
from msgspec import UNSET, Raw, UnsetType

from ..core.judging import Append
from ..errors import InvalidInput
from ..model import AppendCondition, Event, Query, QueryItem, RecordedAppend, SequencedEvent
from .positions import WirePosition, from_wire, to_wire

Document = TypeVar("Document")


class ItemDocument(msgspec.Struct, forbid_unknown_fields=True):
    types: list[str] = []
    tags: list[str] = []


class QueryDocument(msgspec.Struct, forbid_unknown_fields=True):
    items: list[ItemDocument]


class ConditionDocument(msgspec.Struct, forbid_unknown_fields=True):
    fail_if_events_match: QueryDocument
    after: WirePosition = 0


class CheckpointDocument(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    position: WirePosition


class EventDocument(msgspec.Struct, forbid_unknown_fields=True):
    """An event to be stored."""

    type: str
    data: Raw | UnsetType = UNSET
    data_base64: str | UnsetType = UNSET
    tags: list[str] = []
    id: UUID | None = None
    metadata: dict[str, str] = {}


class AppendDocument(msgspec.Struct, forbid_unknown_fields=True):
    events: list[EventDocument] = []
    condition: ConditionDocument | list[ConditionDocument] | None = None
    unless: QueryDocument | None = None
    checkpoint: CheckpointDocument | None = None


class ReadDocument(msgspec.Struct, forbid_unknown_fields=True):
    query: QueryDocument | None = None
    after: WirePosition = 0
    upto: WirePosition | None = None
    limit: int | None = None
    backwards: bool = False


class SequencedDocument(msgspec.Struct, omit_defaults=True):
    """An event as it is stored."""

    position: WirePosition
    type: str
    tags: list[str]
    recorded_at: datetime
    data: Raw | UnsetType = UNSET
    data_base64: str | UnsetType = UNSET
    id: UUID | None = None
    metadata: dict[str, str] = {}


class PlacedDocument(msgspec.Struct):
    first: WirePosition
    last: WirePosition
    already: bool


def parsed(body: bytes, kind: type[Document]) -> Document:
    """The document, or `InvalidInput` that names the place in it that is wrong."""
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as error:
        problem, _, place = str(error).partition(" - at `$.")
        raise InvalidInput(place.rstrip("`") or "body", problem) from None
    except (msgspec.DecodeError, UnicodeError) as error:
        raise InvalidInput("body", f"not valid JSON: {error}") from None
    except RecursionError:
        raise InvalidInput("body", "arrays or objects are nested too deeply to be decoded") from None


def query_from(document: QueryDocument | None, field: str = "query") -> Query | None:
    if document is None:
        return None
    items = []
    for index, item in enumerate(document.items):
        with naming(f"{field}.items[{index}]"):
            items.append(QueryItem(types=item.types, tags=item.tags))
    with naming(field):
        return Query(items)


def conditions_from(document: ConditionDocument | Sequence[ConditionDocument] | None) -> list[AppendCondition]:
    one = isinstance(document, ConditionDocument)
    given = [document] if isinstance(document, ConditionDocument) else document or ()
    conditions = []
    for index, each in enumerate(given):
        field = "condition" if one else f"condition[{index}]"
        query = query_from(each.fail_if_events_match, f"{field}.fail_if_events_match")
        assert query is not None
        with naming(field):
            conditions.append(AppendCondition(query, after=from_wire(each.after, "after")))
    return conditions


def append_from(document: AppendDocument) -> Append:
    events = []
    for index, each in enumerate(document.events):
        with naming(f"events[{index}]"):
            data = data_from(each.data, each.data_base64)
            events.append(Event(each.type, data=data, tags=each.tags, id=each.id, metadata=each.metadata))
    conditions = conditions_from(document.condition)
    unless = query_from(document.unless, "unless")
    given = document.checkpoint
    checkpoint = None if given is None else (given.name, from_wire(given.position, "checkpoint.position"))
    return Append(tuple(events), tuple(conditions), unless, checkpoint)


def document_of(event: SequencedEvent) -> SequencedDocument:
    value = json_value(event.data)
    return SequencedDocument(
        to_wire(event.position),
        event.type,
        sorted(event.tags),
        event.recorded_at,
        UNSET if value is None else value,
        UNSET if value is not None or not event.data else b64encode(event.data).decode(),
        event.id,
        dict(event.metadata),
    )


def sequenced_from(document: SequencedDocument) -> SequencedEvent:
    return SequencedEvent(
        from_wire(document.position, "position"),
        document.type,
        frozenset(document.tags),
        data_from(document.data, document.data_base64),
        document.recorded_at,
        document.id,
        document.metadata,
    )


def recorded_document(append: RecordedAppend) -> dict[str, Any]:
    return {
        "first": to_wire(append.first),
        "last": to_wire(append.last),
        "conditions": Raw(append.conditions_json.encode()),
        "unless": None if append.unless_json is None else Raw(append.unless_json.encode()),
    }


def json_value(data: bytes) -> Raw | None:
    """The bytes as a JSON value, or None if they are not one that would come back byte for byte.

    >>> json_value(b'{"a": 1}') is None, json_value(b" 1") is None, json_value(b"{") is None
    (False, True, True)
    """
    if not data or data[0] in b" \t" or data[-1] in b" \t" or b"\n" in data or b"\r" in data:
        return None
    try:
        msgspec.json.decode(data)
    except (ValueError, RecursionError):  # not JSON, not UTF-8, or nested too deeply for a parser
        return None
    return Raw(data)


def data_from(value: Raw | UnsetType, base64: str | UnsetType) -> bytes:
    if base64 is UNSET:
        return b"" if value is UNSET else bytes(value)
    if value is not UNSET:
        raise InvalidInput("data_base64", "give data or data_base64, not both")
    try:
        return b64decode(base64, validate=True)
    except (NotBase64, ValueError):
        raise InvalidInput("data_base64", "not valid base64") from None


class naming:
    """Errors in the block name the field inside the given one."""

    def __init__(self, field: str) -> None:
        self._field = field

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, InvalidInput):
            raise InvalidInput(f"{self._field}.{error.field}", error.problem) from None
