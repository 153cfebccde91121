"""Events and queries of UmaDB as those of Fencepost, and back.

UmaDB keeps the order of metadata, tracking information on each event, and uuids of some events of an append, where
Fencepost has ids for all of them or for none. Fencepost's metadata is a mapping without
order. So these are kept in entries of the metadata whose names begin with `fencepost.umadb.`: they are written only if
they are needed, and are not shown to UmaDB's clients. A tracking source is a checkpoint whose name begins with
`umadb/`. An empty query, and a condition without a query, match every event, as they do in UmaDB.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any, Final, TypeVar
from uuid import UUID

import msgspec

from ... import model
from ...errors import InvalidInput
from ...wire.documents import naming
from . import messages

PRIVATE: Final = "fencepost.umadb."
ORDER: Final = f"{PRIVATE}order"
TRACKING: Final = f"{PRIVATE}tracking"
UUID_ALONE: Final = f"{PRIVATE}uuid"
CHECKPOINTS: Final = "umadb/"
LONGEST_SOURCE: Final = 255
LARGEST_POSITION: Final = 2**64 - 1

Value = TypeVar("Value")


def query_from(given: Any | None) -> model.Query:
    """`given` is a Query message, or None."""
    if given is None or not given.items:
        return model.Query.all()
    items = []
    for index, item in enumerate(given.items):
        with naming(f"query.items[{index}]"):
            items.append(model.QueryItem(types=list(item.types), tags=list(item.tags)))
    return model.Query(items)


def condition_from(given: Any) -> model.AppendCondition:
    query = query_from(given.fail_if_events_match if given.HasField("fail_if_events_match") else None)
    return model.AppendCondition(query, after=given.after if given.HasField("after") else 0)


def checkpoint_of(source: str) -> str:
    """The name of the checkpoint that stands for tracking information."""
    size = len(source.encode())
    if size > LONGEST_SOURCE:
        raise InvalidInput("tracking_info.source", f"{size} bytes, the limit is {LONGEST_SOURCE}")
    return CHECKPOINTS + source


def events_from(given: Sequence[Any], tracking: Any | None) -> list[model.Event]:
    events = []
    # Only if every event has a uuid, a repeated append is recognised by them. Then the uuids are event ids.
    has_ids = all(each.uuid for each in given)
    for index, each in enumerate(given):
        try:
            events.append(_event_from(each, tracking, has_ids))
        except InvalidInput as error:
            raise InvalidInput(f"events[{index}].{error.field}", error.problem) from None
    return events


def _event_from(given: Any, tracking: Any | None, has_id: bool) -> model.Event:
    if tracking is None and not given.uuid and not given.metadata:
        return model.Event(given.event_type, data=given.data, tags=list(given.tags))
    metadata: dict[str, str] = {}
    for entry in given.metadata:
        if entry.key.startswith(PRIVATE):
            raise InvalidInput("metadata", f"the key {entry.key!r:.80} is not allowed: {PRIVATE} begins private names")
        if entry.key in metadata:
            raise InvalidInput("metadata", f"the key {entry.key!r:.80} is there twice")
        metadata[entry.key] = entry.value
    if list(metadata) != sorted(metadata):
        metadata[ORDER] = msgspec.json.encode(list(metadata)).decode()
    uuid = _uuid_from(given.uuid)
    if uuid is not None and not has_id:
        metadata[UUID_ALONE] = str(uuid)
    if tracking is not None:
        metadata[TRACKING] = msgspec.json.encode([tracking.source, tracking.position]).decode()
    id = uuid if has_id else None
    return model.Event(given.event_type, data=given.data, tags=given.tags, id=id, metadata=metadata)


def _uuid_from(text: str) -> UUID | None:
    if not text:
        return None
    try:
        return UUID(text)
    except ValueError:
        raise InvalidInput("uuid", f"not a UUID: {text!r:.80}") from None


def _decode_tracking(text: str) -> tuple[str, int]:
    source, position = msgspec.json.decode(text, type=tuple[str, int])
    if not 0 <= position <= LARGEST_POSITION:
        raise ValueError("not a position of UmaDB")
    return source, position


def shown_metadata(metadata: Mapping[str, str], uuid: str) -> tuple[list[tuple[str, str]], str, tuple[str, int] | None]:
    """What UmaDB's clients see of stored metadata: its entries in order, the uuid, and the tracking information."""
    left = dict(metadata)
    tracking = _taken(left, TRACKING, _decode_tracking)
    uuid = _taken(left, UUID_ALONE, lambda text: str(UUID(text))) or uuid
    order = _taken(left, ORDER, lambda text: _order_of(text, left.keys() - {ORDER}))
    return [(name, left[name]) for name in (sorted(left) if order is None else order)], uuid, tracking


def _taken(metadata: dict[str, str], name: str, decode: Callable[[str], Value]) -> Value | None:
    """Remove the private entry. An entry that this module did not write stays where it is, as any other entry."""
    text = metadata.get(name)
    if text is None:
        return None
    try:
        value = decode(text)
    except ValueError:  # which the errors of msgspec are, too
        return None
    del metadata[name]
    return value


def _order_of(text: str, names: Set[str]) -> list[str]:
    order = msgspec.json.decode(text, type=list[str])
    if len(order) != len(names) or set(order) != names:
        raise ValueError("not an order of these names")
    return order


def sequenced_message(event: model.SequencedEvent) -> Any:
    """The event as a message object. `encoding` writes the same bytes faster."""
    entries, uuid, tracking = shown_metadata(event.metadata, "" if event.id is None else str(event.id))
    made = messages.SequencedEvent(
        position=checked_position(event.position),
        event=messages.Event(
            event_type=event.type,
            tags=sorted(event.tags),
            data=event.data,
            uuid=uuid,
            metadata=[messages.MetadataEntry(key=name, value=value) for name, value in entries],
        ),
    )
    if tracking is not None:
        made.tracking_info.source, made.tracking_info.position = tracking
        made.tracking_info.SetInParent()
    return made


def checked_position(position: int) -> int:
    if position > LARGEST_POSITION:
        raise InvalidInput(
            "position",
            f"{position} has more than 64 bits, too many for UmaDB's interface; use HTTP for this store",
        )
    return position
