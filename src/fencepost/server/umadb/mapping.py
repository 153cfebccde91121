"""Events and queries of UmaDB as those of Fencepost, and back.

UmaDB keeps the order of tags and of metadata, tracking information on each event, and uuids of some events of an
append, where Fencepost has ids for all of them or for none. Fencepost's tags are a set and its metadata is a mapping
without order. So these are kept in entries of the metadata whose names begin with `fencepost.umadb.`: they are written
only if they are needed, and are not shown to UmaDB's clients. A tracking source is a checkpoint whose name begins with
`umadb/`; its position is one above UmaDB's, because tracking may be at 0 and a checkpoint at 0 was never set. An empty
query, and a condition without a query, match every event. The nil UUID means that an event has no id.
tests/server/test_umadb.py compares all of this with UmaDB's own server.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence, Set
from typing import Any, Final, TypeVar
from uuid import UUID

import msgspec

from ... import AppendCondition, Event, Query, QueryItem, SequencedEvent
from ...engine import NOT_DECODABLE
from ...errors import InvalidInput
from ..wire.documents import naming

PRIVATE: Final = "fencepost.umadb."
ORDER: Final = f"{PRIVATE}order"
TAG_ORDER: Final = f"{PRIVATE}tags"  # for each tag in the order of the client, its place among the sorted tags
TRACKING: Final = f"{PRIVATE}tracking"
UUID_ALONE: Final = f"{PRIVATE}uuid"
CHECKPOINTS: Final = "umadb/"
NIL: Final = UUID(int=0)
LONGEST_SOURCE: Final = 255
LARGEST_POSITION: Final = 2**64 - 1

Value = TypeVar("Value")

_decode_tags: Final = msgspec.json.Decoder(list[str]).decode


def query_from(given: Any | None) -> Query:
    """`given` is a Query message, or None."""
    if given is None or not given.items:
        return Query.all()
    items = []
    for index, item in enumerate(given.items):
        with naming(f"query.items[{index}]"):
            items.append(QueryItem(types=list(item.types), tags=list(item.tags)))
    return Query(items)


def condition_from(given: Any) -> AppendCondition:
    query = query_from(given.fail_if_events_match if given.HasField("fail_if_events_match") else None)
    return AppendCondition(query, after=given.after if given.HasField("after") else 0)


def checkpoint_of(source: str) -> str:
    """The name of the checkpoint that stands for tracking information."""
    size = len(source.encode())
    if size > LONGEST_SOURCE:
        raise InvalidInput("tracking_info.source", f"{size} bytes, the limit is {LONGEST_SOURCE}")
    return CHECKPOINTS + source


def events_from(given: Sequence[Any], tracking: Any | None) -> list[Event]:
    events = []
    uuids = []
    for index, each in enumerate(given):
        with naming(f"events[{index}]"):
            uuids.append(_uuid_from(each.uuid))
    # Only if every event has a uuid, a repeated append is recognised by them. Then the uuids are event ids.
    has_ids = None not in uuids and NIL not in uuids
    for index, (each, uuid) in enumerate(zip(given, uuids, strict=True)):
        with naming(f"events[{index}]"):
            events.append(_event_from(each, tracking, uuid, has_ids))
    return events


def _event_from(given: Any, tracking: Any | None, uuid: UUID | None, has_id: bool) -> Event:
    tags = list(given.tags)
    ordered = sorted(set(tags))
    if tracking is None and uuid is None and not given.metadata and tags == ordered:
        return Event(given.event_type, data=given.data, tags=tags)
    metadata: dict[str, str] = {}
    for entry in given.metadata:
        if entry.key.startswith(PRIVATE):
            raise InvalidInput("metadata", f"the key {entry.key!r:.80} is not allowed: {PRIVATE} begins private names")
        if entry.key in metadata:
            raise InvalidInput("metadata", f"the key {entry.key!r:.80} is there twice")
        metadata[entry.key] = entry.value
    if list(metadata) != sorted(metadata):
        metadata[ORDER] = msgspec.json.encode(list(metadata)).decode()
    if tags != ordered:
        metadata[TAG_ORDER] = msgspec.json.encode([ordered.index(tag) for tag in tags]).decode()
    if uuid is not None and not has_id:
        metadata[UUID_ALONE] = str(uuid)
    if tracking is not None:
        metadata[TRACKING] = msgspec.json.encode([tracking.source, tracking.position]).decode()
    return Event(given.event_type, data=given.data, tags=tags, id=uuid if has_id else None, metadata=metadata)


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


def _tags_of(text: str, tags: list[str]) -> list[str]:
    places = msgspec.json.decode(text, type=list[int])
    if set(places) != set(range(len(tags))):
        raise ValueError("not an order of these tags")
    return [tags[place] for place in places]


def add_events(response: Any, events: Iterable[SequencedEvent]) -> None:
    """Add the events to the `events` of a response. `StoreCorrupt` if a field of one cannot be decoded."""
    add = response.events.add
    for event in events:
        made = add(position=checked_position(event.position)).event
        made.event_type, made.data = event.type, event.data
        if event.raw_id is None and not event.raw_metadata and isinstance(event.raw_tags, str):
            try:
                made.tags.extend(_decode_tags(event.raw_tags))
            except NOT_DECODABLE:
                made.tags.extend(sorted(event.tags))  # raises the error that names the event
        else:
            _add_rest(response.events[-1], event)


def _add_rest(made: Any, event: SequencedEvent) -> None:
    left, tags = dict(event.metadata), sorted(event.tags)
    tracking = _taken(left, TRACKING, _decode_tracking)
    made.event.uuid = _taken(left, UUID_ALONE, lambda text: str(UUID(text))) or str(event.id or "")
    made.event.tags.extend(_taken(left, TAG_ORDER, lambda text: _tags_of(text, tags)) or tags)
    order = _taken(left, ORDER, lambda text: _order_of(text, left.keys() - {ORDER}))
    for name in sorted(left) if order is None else order:
        made.event.metadata.add(key=name, value=left[name])
    if tracking is not None:
        made.tracking_info.source, made.tracking_info.position = tracking
        made.tracking_info.SetInParent()


def checked_position(position: int) -> int:
    if position > LARGEST_POSITION:
        raise InvalidInput(
            "position",
            f"{position} has more than 64 bits, too many for UmaDB's interface; use HTTP for this store",
        )
    return position
