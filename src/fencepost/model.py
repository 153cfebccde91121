"""The words of a store: events, queries, conditions, and how large they may be.

Everything here is an immutable value that is checked when it is made, so that nothing
malformed gets as far as a store: an event that exists can be stored by every engine, and a
query that exists can be answered by every engine. A refusal names the field, the size of what
was given and the limit.

`SequencedEvent` is what a store gives back. Millions of them are read in a go, so it keeps
the stored form of tags, times, ids and metadata and decodes each on first access.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import Any, Final, TypeVar
from uuid import UUID

import msgspec

from .errors import InvalidInput

# The limits are the same for every engine, so that an application can move from one to another.
MAX_TYPE_BYTES: Final = 1_024  # a key of every engine's index; far below each one's key limit
MAX_TAG_BYTES: Final = 1_024  # likewise
MAX_TAGS: Final = 20  # an event's postings are linear in its tags; so are FoundationDB's keys
MAX_DATA_BYTES: Final = 1_048_576  # larger things belong into a blob store, with their address here
MAX_METADATA_BYTES: Final = 16_384  # as JSON: it is for ids and names, not for content
MAX_EVENTS: Final = 100_000  # in one append: it is one transaction, and others wait for it
MAX_APPEND_BYTES: Final = 67_108_864  # of data in one append, for the same reason
MAX_CONDITIONS: Final = 100  # in one append
MAX_ITEMS: Final = 1_000  # in one query
MAX_TYPES: Final = 1_000  # in one item
MAX_NAME_BYTES: Final = 1_024  # of a checkpoint
MAX_POSITION: Final = 2**96 - 1  # the widest positions: FoundationDB's versionstamps

NOTHING: Final[frozenset[str]] = frozenset()

Checked = TypeVar("Checked")


@dataclass(frozen=True, slots=True, init=False)
class Event:
    """Something that happened, to be stored.

    >>> Event("WalletOpened", data=b'{"owner": "Ada"}', tags={"wallet:w1"}).tags
    frozenset({'wallet:w1'})
    """

    type: str
    data: bytes
    tags: frozenset[str]
    id: UUID | None
    metadata: Mapping[str, str] = field(hash=False)

    def __init__(
        self,
        type: str,
        *,
        data: bytes = b"",
        tags: Iterable[str] = NOTHING,
        id: UUID | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> None:
        put = object.__setattr__
        put(self, "type", checked_type(type, "type"))
        put(self, "data", _checked_data(data))
        put(self, "tags", checked_tags(tags, "tags"))
        put(self, "id", checked_id(id))
        put(self, "metadata", _checked_metadata(metadata) if metadata else {})


class SequencedEvent(msgspec.Struct, eq=False, gc=False):
    """An event as it is stored: with its position and the time at which it was recorded.

    Engines make it from what they store, in this order, with tags and metadata as JSON text,
    the time as microseconds since 1970 and the id as 16 bytes; the decoded values do as well.
    """

    position: int
    type: str
    _tags: str | frozenset[str]
    data: bytes
    _recorded_at: int | datetime
    _id: bytes | UUID | None = None
    _metadata: str | Mapping[str, str] | None = None

    @property
    def tags(self) -> frozenset[str]:
        tags = self._tags
        if isinstance(tags, str):
            tags = self._tags = decode_tags(tags)
        return tags

    @property
    def recorded_at(self) -> datetime:
        moment = self._recorded_at
        if isinstance(moment, int):
            moment = self._recorded_at = decode_moment(moment)
        return moment

    @property
    def id(self) -> UUID | None:
        id = self._id
        if isinstance(id, bytes):
            id = self._id = UUID(bytes=id)
        return id

    @property
    def metadata(self) -> Mapping[str, str]:
        metadata = self._metadata
        if not isinstance(metadata, Mapping):
            metadata = self._metadata = decode_metadata(metadata)
        return metadata

    @property
    def stored(self) -> tuple[int, str, str, bytes, int, bytes | None, str | None]:
        """The fields in the stored form, whichever form they are in now."""
        tags, at, metadata = self._tags, self._recorded_at, self._metadata
        return (
            self.position,
            self.type,
            tags if isinstance(tags, str) else encode_tags(tags),
            self.data,
            at if isinstance(at, int) else encode_moment(at),
            self.stored_id,
            metadata if metadata is None or isinstance(metadata, str) else encode_metadata(metadata),
        )

    @property
    def stored_id(self) -> bytes | None:
        return self._id.bytes if isinstance(self._id, UUID) else self._id

    @property
    def event(self) -> Event:
        """What was appended, without position and time."""
        return Event(self.type, data=self.data, tags=self.tags, id=self.id, metadata=self.metadata)

    def _values(self) -> tuple[object, ...]:
        return self.position, self.type, self.tags, self.data, self.recorded_at, self.id, self.metadata

    def __eq__(self, other: object) -> bool:
        return self._values() == other._values() if isinstance(other, SequencedEvent) else NotImplemented

    def __ne__(self, other: object) -> bool:  # a Struct has its own, which knows nothing of the above
        return not self == other

    def __hash__(self) -> int:
        return hash((self.position, self.type, self.data))

    def __repr__(self) -> str:
        return (
            f"SequencedEvent(position={self.position}, type={self.type!r}, tags={sorted(self.tags)}, "
            f"data={self.data!r}, recorded_at={self.recorded_at.isoformat()}, id={self.id}, metadata={self.metadata})"
        )


@dataclass(frozen=True, slots=True, init=False)
class QueryItem:
    """Matches an event whose type is one of `types` and which has ALL of `tags`.

    No types means any type, no tags means any tags, neither means every event.
    """

    types: frozenset[str]
    tags: frozenset[str]

    def __init__(self, *, types: Iterable[str] = NOTHING, tags: Iterable[str] = NOTHING) -> None:
        named = _checked_strings(types, "types", MAX_TYPES, MAX_TYPE_BYTES)
        object.__setattr__(self, "types", named)
        object.__setattr__(self, "tags", checked_tags(tags, "tags"))


@dataclass(frozen=True, slots=True, init=False)
class Query:
    """Matches an event that one of its items matches.

    >>> wallets = Query.of(tags={"wallet:w1"}) | Query.of(tags={"wallet:w2"})
    >>> len(wallets.items)
    2
    """

    items: tuple[QueryItem, ...]

    def __init__(self, items: Iterable[QueryItem]) -> None:
        given = checked_all(items, "items", QueryItem)
        if not given:
            raise InvalidInput("items", "a query needs at least 1 item; Query.all() matches every event")
        if len(given) > MAX_ITEMS:
            raise InvalidInput("items", f"{len(given)} items, the limit is {MAX_ITEMS}")
        object.__setattr__(self, "items", given)

    @classmethod
    def all(cls) -> Query:
        """Matches every event."""
        return _ALL

    @classmethod
    def of(cls, *, types: Iterable[str] = NOTHING, tags: Iterable[str] = NOTHING) -> Query:
        """A query of one item."""
        return cls((QueryItem(types=types, tags=tags),))

    def __or__(self, other: Query) -> Query:
        if not isinstance(other, Query):
            return NotImplemented
        return Query(dict.fromkeys(self.items + other.items))

    @property
    def matches_all(self) -> bool:
        """Whether one of the items matches every event."""
        return any(not item.types and not item.tags for item in self.items)

    def to_json(self) -> str:
        """The form in which queries travel: through options, columns, commands and the wire."""
        return msgspec.json.encode(_query_to_builtins(self)).decode()

    @classmethod
    def from_json(cls, text: str | bytes) -> Query:
        return _query_from_builtins(_parsed(text, "query"), "query")


@dataclass(frozen=True, slots=True)
class AppendCondition:
    """The append fails if an event after position `after` matches the query."""

    fail_if_events_match: Query
    after: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.fail_if_events_match, Query):
            raise InvalidInput("fail_if_events_match", f"a Query is needed, not {_kind(self.fail_if_events_match)}")
        checked_position(self.after, "after")

    def to_json(self) -> str:
        query = _query_to_builtins(self.fail_if_events_match)
        return msgspec.json.encode({"fail_if_events_match": query, "after": self.after}).decode()

    @classmethod
    def from_json(cls, text: str | bytes) -> AppendCondition:
        return _condition_from_builtins(_parsed(text, "condition"), "condition")


@dataclass(frozen=True, slots=True)
class Placed:
    """Where an append's events are.

    `already` says that nothing was written now: the events are there from an earlier append
    with the same ids, or `unless` matched the event at `first`. An append of no events, for
    its checkpoint alone, is placed at the head.
    """

    first: int
    last: int
    already: bool = False


@dataclass(frozen=True, slots=True)
class RecordedAppend:
    """What an append was conditional on, kept with the positions of its events.

    `conditions_json` is a JSON array of conditions, `unless_json` a query's JSON or None: the stored
    form, which `conditions` and `unless` decode.
    """

    first: int
    last: int
    conditions_json: str = "[]"
    unless_json: str | None = None

    @property
    def conditions(self) -> tuple[AppendCondition, ...]:
        given = _parsed(self.conditions_json, "conditions")
        if not isinstance(given, list):
            raise InvalidInput("conditions", f"a JSON array is needed, not {_kind(given)}")
        return tuple(_condition_from_builtins(each, f"conditions[{index}]") for index, each in enumerate(given))

    @property
    def unless(self) -> Query | None:
        return None if self.unless_json is None else _query_from_builtins(_parsed(self.unless_json, "unless"), "unless")


def encode_conditions(conditions: Iterable[AppendCondition]) -> str:
    return f"[{','.join([condition.to_json() for condition in conditions])}]"


def event_of(type: str, data: bytes, tags: Iterable[str], metadata: Mapping[str, str] | None) -> Event:
    """An event of a type that was checked before, as that of a declared event was."""
    event, put = object.__new__(Event), object.__setattr__
    put(event, "type", type)
    put(event, "data", _checked_data(data))
    put(event, "tags", checked_tags(tags, "tags"))
    put(event, "id", None)
    put(event, "metadata", _checked_metadata(metadata) if metadata else {})
    return event


def item_of(types: frozenset[str], tags: Iterable[str]) -> QueryItem:
    """An item for types that were checked before, as those of declared events were."""
    item = object.__new__(QueryItem)
    object.__setattr__(item, "types", types)
    object.__setattr__(item, "tags", checked_tags(tags, "tags"))
    return item


def query_of_items(items: tuple[QueryItem, ...]) -> Query:
    """A query of items that come from other queries, so that each of them is known to be one."""
    if not 0 < len(items) <= MAX_ITEMS:
        return Query(items)  # which says so
    query = object.__new__(Query)
    object.__setattr__(query, "items", items)
    return query


def checked_type(value: object, field: str) -> str:
    return _checked_string(value, field, MAX_TYPE_BYTES)


def checked_tags(value: Iterable[str], field: str) -> frozenset[str]:
    return _checked_strings(value, field, MAX_TAGS, MAX_TAG_BYTES)


def checked_name(value: object, field: str) -> str:
    return _checked_string(value, field, MAX_NAME_BYTES)


def checked_position(value: object, field: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise InvalidInput(field, f"a position is an int, not {_kind(value)}")
    if not 0 <= value <= MAX_POSITION:
        raise InvalidInput(field, f"{value} is not between 0 and {MAX_POSITION}")
    return value


def checked_all(values: Iterable[Checked], field: str, kind: type[Checked]) -> tuple[Checked, ...]:
    """The values as a tuple, each of them of the kind."""
    try:
        given = tuple(values)
    except TypeError:
        raise InvalidInput(field, f"a list of {kind.__name__} is needed, not {_kind(values)}") from None
    for index, value in enumerate(given):
        if not isinstance(value, kind):
            raise InvalidInput(f"{field}[{index}]", f"{kind.__name__} is needed, not {_kind(value)}")
    return given


# Tags travel and rest as a sorted JSON array, metadata as a JSON object with sorted names:
# readable by every tool, exact for every string, and equal texts for equal values.
_decode_strings = msgspec.json.Decoder(list[str]).decode
_decode_mapping = msgspec.json.Decoder(dict[str, str]).decode
_encode = msgspec.json.Encoder(order="deterministic").encode
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)


def encode_tags(tags: Iterable[str]) -> str:
    """
    >>> encode_tags({"wallet:w1", "owner:ada"})
    '["owner:ada","wallet:w1"]'
    """
    return _encode(sorted(tags)).decode()


def decode_tags(text: str) -> frozenset[str]:
    return frozenset(_decode_strings(text))


def encode_metadata(metadata: Mapping[str, str]) -> str | None:
    """No metadata is stored as nothing at all."""
    return _encode(metadata).decode() if metadata else None


def decode_metadata(text: str | None) -> Mapping[str, str]:
    return _decode_mapping(text) if text else {}


def decode_moment(microseconds: int) -> datetime:
    """Exact, unlike the way through a float of seconds."""
    return _EPOCH + timedelta(microseconds=microseconds)


def encode_moment(moment: datetime) -> int:
    return (moment - _EPOCH) // timedelta(microseconds=1)


def _checked_string(value: object, field: str, limit: int) -> str:
    if type(value) is not str and not isinstance(value, str):
        raise InvalidInput(field, f"a str is needed, not {_kind(value)}")
    if value.isascii():  # which also says that it has as many bytes as characters
        size = len(value)
    else:
        try:
            size = len(value.encode())
        except UnicodeEncodeError as error:
            raise InvalidInput(
                field, f"not valid Unicode: a lone surrogate at index {error.start} of {value!r:.80}"
            ) from None
    if not 0 < size <= limit:
        raise InvalidInput(field, f"{size} bytes of UTF-8, from 1 to {limit} are allowed: {value!r:.80}")
    if "\0" in value:
        raise InvalidInput(field, f"NUL is not allowed, since not every engine can hold it: {value!r:.80}")
    return str.__str__(value)  # the text itself, which str() of an enum is not


def _checked_strings(values: Iterable[str], field: str, most: int, limit: int) -> frozenset[str]:
    if isinstance(values, (str, bytes)):
        raise InvalidInput(field, f"a set of strings is needed, not one {_kind(values)}: write {{{values!r:.80}}}")
    try:
        given = frozenset(values)
    except TypeError:
        raise InvalidInput(field, f"a set of strings is needed, not {_kind(values)}") from None
    if len(given) > most:
        raise InvalidInput(field, f"{len(given)} {field}, the limit is {most}")
    return frozenset([_checked_string(value, field, limit) for value in given])


def _checked_data(value: object) -> bytes:
    if not isinstance(value, bytes):
        if not isinstance(value, (bytearray, memoryview)):
            raise InvalidInput("data", f"bytes are needed, not {_kind(value)}: encode it first")
        value = bytes(value)
    if len(value) > MAX_DATA_BYTES:
        raise InvalidInput("data", f"{len(value)} bytes, the limit is {MAX_DATA_BYTES}")
    return value


def checked_id(value: object) -> UUID | None:
    if value is not None and not isinstance(value, UUID):
        raise InvalidInput("id", f"a uuid.UUID is needed, not {_kind(value)}")
    return value


def _checked_metadata(value: object) -> Mapping[str, str]:
    if not isinstance(value, Mapping):
        raise InvalidInput("metadata", f"a mapping of str to str is needed, not {_kind(value)}")
    for name, content in value.items():
        if not isinstance(name, str) or not isinstance(content, str):
            raise InvalidInput("metadata", f"names and values are str, unlike {name!r:.80}: {content!r:.80}")
    try:
        size = len(_encode(dict(value)))
    except UnicodeEncodeError:
        raise InvalidInput("metadata", "not valid Unicode: a lone surrogate in a name or value") from None
    if size > MAX_METADATA_BYTES:
        raise InvalidInput("metadata", f"{size} bytes as JSON, the limit is {MAX_METADATA_BYTES}")
    return dict(value)


def _kind(value: object) -> str:
    return "None" if value is None else type(value).__name__


def _query_to_builtins(query: Query) -> dict[str, Any]:
    return {"items": [{"types": sorted(item.types), "tags": sorted(item.tags)} for item in query.items]}


def _query_from_builtins(given: Any, field: str) -> Query:
    _check_names(given, field, {"items"})
    items = given.get("items")
    if not isinstance(items, list):
        raise InvalidInput(f"{field}.items", f"an array is needed, not {_kind(items)}")
    made = []
    for index, item in enumerate(items):
        _check_names(item, f"{field}.items[{index}]", {"types", "tags"})
        try:
            made.append(QueryItem(types=item.get("types", ()), tags=item.get("tags", ())))
        except InvalidInput as error:
            raise InvalidInput(f"{field}.items[{index}].{error.field}", error.problem) from None
    return Query(made)


def _condition_from_builtins(given: Any, field: str) -> AppendCondition:
    _check_names(given, field, {"fail_if_events_match", "after"})
    if "fail_if_events_match" not in given:
        raise InvalidInput(field, "fail_if_events_match is missing")
    query = _query_from_builtins(given["fail_if_events_match"], f"{field}.fail_if_events_match")
    return AppendCondition(query, after=given.get("after", 0))


def _check_names(given: Any, field: str, known: set[str]) -> None:
    if not isinstance(given, dict):
        raise InvalidInput(field, f"a JSON object is needed, not {_kind(given)}")
    unknown = given.keys() - known
    if unknown:
        raise InvalidInput(field, f"unknown name {min(unknown)!r}; known are {', '.join(sorted(known))}")


def _parsed(text: str | bytes, field: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise InvalidInput(field, f"not valid JSON: {error}") from None


_ALL: Final = Query((QueryItem(),))
