"""Appends, queries and readings as JSON documents. Events in them have the form of `fencepost.tools.EventDocument`.

A document with an unknown name is refused: it is more often a typing error than a wish to have the name ignored.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec
from msgspec import Raw

from ... import AppendCondition, Delete, Put, Query, QueryItem, Record
from ...engine import Append, RecordedAppend
from ...errors import InvalidInput
from ...tools import EventDocument, WirePosition, event_of, from_wire, to_wire

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


class RecordDocument(msgspec.Struct, forbid_unknown_fields=True):
    """A record as the server returns it. msgspec encodes bytes as base64."""

    name: str
    revision: int
    value_base64: bytes


class PutDocument(msgspec.Struct, forbid_unknown_fields=True):
    """The body of a request that sets one record."""

    value_base64: bytes
    expected: int


class ChangeDocument(msgspec.Struct, forbid_unknown_fields=True):
    """A change of a record inside an append. Without a value, the record is deleted."""

    name: str
    expected: int
    value_base64: bytes | None = None


class AppendDocument(msgspec.Struct, forbid_unknown_fields=True):
    events: list[EventDocument] = []
    condition: ConditionDocument | list[ConditionDocument] | None = None
    unless: QueryDocument | None = None
    checkpoint: CheckpointDocument | None = None
    records: list[ChangeDocument] = []


class ReadDocument(msgspec.Struct, forbid_unknown_fields=True):
    query: QueryDocument | None = None
    after: WirePosition = 0
    up_to: WirePosition | None = None
    limit: int | None = None
    backwards: bool = False


class PlacedDocument(msgspec.Struct, omit_defaults=True):
    first: WirePosition
    last: WirePosition
    already: bool
    revisions: tuple[int, ...] = ()


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
            events.append(event_of(each))
    conditions = conditions_from(document.condition)
    unless = query_from(document.unless, "unless")
    given = document.checkpoint
    checkpoint = None if given is None else (given.name, from_wire(given.position, "checkpoint.position"))
    changes = []
    for index, change in enumerate(document.records):
        with naming(f"records[{index}]"):
            changes.append(change_from(change))
    return Append(tuple(events), tuple(conditions), unless, checkpoint, tuple(changes))


def change_from(document: ChangeDocument) -> Put | Delete:
    if document.value_base64 is None:
        return Delete(document.name, document.expected)
    return Put(document.name, document.value_base64, document.expected)


def record_document(record: Record) -> RecordDocument:
    return RecordDocument(record.name, record.revision, record.value)


def recorded_document(append: RecordedAppend) -> dict[str, Any]:
    return {
        "first": to_wire(append.first),
        "last": to_wire(append.last),
        "conditions": Raw(append.conditions_json.encode()),
        "unless": None if append.unless_json is None else Raw(append.unless_json.encode()),
    }


class naming:
    """Errors in the block name the field inside the given one."""

    def __init__(self, field: str) -> None:
        self._field = field

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, InvalidInput):
            raise InvalidInput(f"{self._field}.{error.field}", error.problem) from None
