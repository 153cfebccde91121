"""The values of a store are immutable and are checked when they are created."""

from __future__ import annotations

import operator
import pickle
from collections.abc import Callable
from copy import copy
from datetime import datetime, timedelta, timezone
from enum import Enum
from functools import reduce
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost import AppendCondition, Event, InvalidInput, Placed, Query, QueryItem, SequencedEvent, StoreCorrupt
from fencepost.buckets import matches
from fencepost.model import (
    decode_metadata,
    decode_moment,
    decode_tags,
    encode_metadata,
    encode_moment,
    encode_tags,
    item_of,
    query_of_items,
)
from fencepost.model.limits import (
    MAX_BUCKETS,
    MAX_DATA_BYTES,
    MAX_ITEMS,
    MAX_POSITION,
    MAX_TAG_BYTES,
    MAX_TAGS,
    MAX_TYPE_BYTES,
    MAX_TYPES,
)
from fencepost.testing import strategies

texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=20)
moments = st.datetimes(timezones=st.just(timezone.utc))


def test_an_event_cannot_be_changed() -> None:
    event = Event("A", tags={"x"})
    with pytest.raises(AttributeError):
        event.type = "B"  # type: ignore[misc]
    with pytest.raises(AttributeError):
        event.tags.add("y")  # type: ignore[attr-defined]


def test_an_event_keeps_what_it_was_given_although_the_giver_changes_it() -> None:
    data, tags, metadata = bytearray(b"abc"), {"x"}, {"by": "Ada"}
    event = Event("A", data=data, tags=tags, metadata=metadata)
    data[0], metadata["by"] = 0, "Bob"
    tags.add("y")
    assert (event.data, event.tags, event.metadata) == (b"abc", frozenset({"x"}), {"by": "Ada"})


def test_a_stored_event_cannot_be_changed() -> None:
    event = SequencedEvent(1, "A", '["x"]', b"", 0, None, '{"by":"Ada"}')
    for name in ("position", "type", "raw_tags", "data", "raw_id", "raw_metadata"):
        with pytest.raises(AttributeError):
            setattr(event, name, None)
    event.metadata["by"] = "Bob"
    assert event.metadata == {"by": "Ada"}


def test_metadata_cannot_be_changed_after_its_check() -> None:
    event = Event("A", metadata={"by": "Ada"})
    event.metadata["by"] = 7  # type: ignore[assignment]
    with pytest.raises((AttributeError, TypeError)):
        event.metadata = {}  # type: ignore[misc]
    assert event.metadata == {"by": "Ada"}
    assert event == Event("A", metadata={"by": "Ada"})


class Liar(str):
    """A str that answers the checks as it likes."""

    def isascii(self) -> bool:
        return True

    def __len__(self) -> int:
        return 1

    def __contains__(self, _: object) -> bool:
        return False

    def __hash__(self) -> int:
        return 0

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("hostile")


class LyingBytes(bytes):
    def __len__(self) -> int:
        return 0

    def __bytes__(self) -> bytes:
        raise RuntimeError("hostile")


class LyingId(UUID):
    @property
    def bytes(self) -> bytes:  # type: ignore[override]
        return b"short"


class LyingInt(int):
    def __le__(self, _: int) -> bool:
        return True

    __ge__ = __lt__ = __gt__ = __le__


@pytest.mark.parametrize("text", ["\0", "\ud800", "x" * (MAX_TAG_BYTES + 1)])
def test_a_subclass_of_str_is_checked_by_what_it_holds(text: str) -> None:
    for make in (
        lambda: Event(Liar(text)),
        lambda: Event("A", tags=[Liar(text)]),
        lambda: Query.of(types=[Liar(text)]),
        lambda: Query.of(tags=[Liar(text)]),
    ):
        with pytest.raises(InvalidInput):
            make()


def test_values_of_subclasses_become_values_of_the_plain_class() -> None:
    event = Event(Liar("A"), data=LyingBytes(b"abc"), tags=[Liar("x")], metadata={Liar("by"): Liar("Ada")})
    assert [type(value) for value in (event.type, event.data, *event.tags, *event.metadata)] == [str, bytes, str, str]
    assert event == Event("A", data=b"abc", tags={"x"}, metadata={"by": "Ada"})
    condition = AppendCondition(Query.all(), after=LyingInt(3))
    assert type(condition.after) is int


@pytest.mark.parametrize(
    "make",
    [
        lambda: Event("A", data=LyingBytes(MAX_DATA_BYTES + 1)),
        lambda: Event("A", metadata={"by": Liar("\ud800")}),
        lambda: Event("A", metadata=type("Odd", (dict,), {"items": lambda self: [(1, 2)]})(a="b")),
        lambda: AppendCondition(Query.all(), after=LyingInt(-1)),
    ],
)
def test_a_value_that_lies_about_itself_is_refused(make: Callable[[], object]) -> None:
    with pytest.raises(InvalidInput):
        make()


def test_an_id_of_a_subclass_becomes_a_plain_one() -> None:
    assert type(Event("A", id=LyingId(int=1)).id) is UUID
    assert Event("A", id=LyingId(int=1)).id == UUID(int=1)


def test_events_are_equal_by_their_contents() -> None:
    id = uuid4()
    one = Event("A", data=b"1", tags=["x", "y"], id=id, metadata={"a": "1", "b": "2"})
    assert one == Event("A", data=b"1", tags=["y", "x"], id=id, metadata={"b": "2", "a": "1"})
    assert hash(one) == hash(copy(one))
    for other in [Event("B"), Event("A"), Event("A", data=b"1", tags=["x"], id=id)]:
        assert one != other


def sequenced(**changes: object) -> SequencedEvent:
    values = {"position": 1, "type": "A", "tags": frozenset({"x"}), "data": b"1", "moment": 1_000_001, "id": None}
    values |= {"metadata": {"by": "Ada"}} | changes
    return SequencedEvent(*values.values())  # type: ignore[arg-type]


def test_stored_events_are_equal_by_their_contents_in_whatever_form_they_are_held() -> None:
    id = uuid4()
    moment = datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(microseconds=1_000_001)
    decoded = sequenced(id=id, moment=moment)
    encoded = sequenced(id=id.bytes, tags='["x"]', metadata='{"by":"Ada"}')
    assert decoded == encoded
    assert operator.ne(decoded, encoded) is False
    assert hash(decoded) == hash(encoded)
    assert repr(decoded) == repr(encoded)


@pytest.mark.parametrize(
    "change",
    [{"position": 2}, {"type": "B"}, {"tags": frozenset()}, {"data": b""}, {"moment": 1}, {"metadata": None}],
    ids=str,
)
def test_stored_events_that_differ_are_not_equal(change: dict[str, object]) -> None:
    assert sequenced() != sequenced(**change)
    assert operator.eq(sequenced(), sequenced(**change)) is False
    assert sequenced() != "something else"


def test_a_stored_event_gives_back_what_was_appended() -> None:
    event = Event("A", data=b"1", tags={"x"}, id=uuid4(), metadata={"by": "Ada"})
    stored = sequenced(id=event.id)
    assert stored.event == event


@pytest.mark.parametrize(
    "value",
    [
        Event("A", data=b"\0", tags={"x"}, id=UUID(int=1), metadata={"by": "Ada"}),
        sequenced(),
        sequenced(id=UUID(int=1).bytes, tags='["x"]', metadata=None),
        QueryItem(types={"A"}),
        Query.all(),
        AppendCondition(Query.of(tags={"x"}), after=5),
        Placed(1, 2, already=True),
    ],
    ids=lambda value: type(value).__name__,
)
def test_values_travel_between_processes(value: object) -> None:
    assert pickle.loads(pickle.dumps(value)) == value
    assert copy(value) == value


def test_queries_are_joined_without_repeating_items() -> None:
    one, two = Query.of(types={"A"}), Query.of(tags={"x"})
    assert (one | two | one).items == one.items + two.items
    with pytest.raises(TypeError):
        _ = one | "A"  # type: ignore[operator]


def test_a_query_says_whether_it_matches_all() -> None:
    assert Query.all().matches_all
    assert (Query.of(types={"A"}) | Query.all()).matches_all
    assert not Query.of(types={"A"}).matches_all
    assert not Query.of(tags={"x"}).matches_all


@given(query=strategies.queries)
def test_queries_travel_as_json(query: Query) -> None:
    assert Query.from_json(query.to_json()) == query
    assert Query.from_json(query.to_json().encode()) == query


@given(query=strategies.queries, after=st.integers(0, MAX_POSITION))
def test_conditions_travel_as_json(query: Query, after: int) -> None:
    condition = AppendCondition(query, after=after)
    assert AppendCondition.from_json(condition.to_json()) == condition


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("", "query"),
        ("[]", "query"),
        ("{}", "query.items"),
        ('{"items": {}}', "query.items"),
        ('{"items": [], "extra": 1}', "query"),
        ('{"items": [5]}', "query.items[0]"),
        ('{"items": [{"tag": ["x"]}]}', "query.items[0]"),
        ('{"items": [{}, {"tags": [""]}]}', "query.items[1].tags"),
        ('{"items": [{"types": "A"}]}', "query.items[0].types"),
    ],
)
def test_malformed_json_is_refused_by_the_path_to_what_is_wrong(text: str, field: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        Query.from_json(text)
    assert refused.value.field == field


@given(tags=st.frozensets(texts, max_size=5))
def test_tags_rest_as_a_sorted_array_and_come_back(tags: frozenset[str]) -> None:
    assert decode_tags(encode_tags(tags)) == tags
    assert encode_tags(tags) == encode_tags(sorted(tags, reverse=True))


@given(metadata=st.dictionaries(texts, texts | st.just("\0")))
def test_metadata_rests_as_an_object_and_comes_back(metadata: dict[str, str]) -> None:
    assert decode_metadata(encode_metadata(metadata)) == metadata
    assert encode_metadata(metadata) == encode_metadata(dict(reversed(metadata.items())))


@given(moment=moments)
def test_moments_are_exact_to_the_microsecond(moment: datetime) -> None:
    assert decode_moment(encode_moment(moment)) == moment


@pytest.mark.parametrize(
    ("make", "limit"),
    [
        (lambda size: Event("x" * size), MAX_TYPE_BYTES),
        (lambda size: Event("A", tags={"x" * size}), MAX_TAG_BYTES),
        (lambda size: Event("A", tags=map(str, range(size))), MAX_TAGS),
        (lambda size: Event("A", data=bytes(size)), MAX_DATA_BYTES),
        (lambda size: Query([QueryItem()] * size), MAX_ITEMS),
        (
            lambda size: Query([QueryItem(types=map(str, range(size // 2 + half))) for half in (0, size % 2)]),
            MAX_BUCKETS,
        ),
        (lambda size: query_of_items((item_of(frozenset(map(str, range(size - 1))), ()), QueryItem())), MAX_BUCKETS),
        (lambda size: item_of(frozenset(map(str, range(size))), ()), MAX_TYPES),
        (lambda size: AppendCondition(Query.all(), after=size), MAX_POSITION),
    ],
    ids=["type", "tag", "tags", "data", "items", "buckets", "buckets of items", "types of an item", "after"],
)
def test_a_limit_is_reached_but_not_passed_and_the_refusal_names_both_sizes(make, limit: int) -> None:  # type: ignore[no-untyped-def]
    make(limit)
    with pytest.raises(InvalidInput, match=str(limit)) as refused:
        make(limit + 1)
    assert str(limit + 1) in str(refused.value)


class Kind(str, Enum):  # noqa: UP042  as many have it, and str() of it is another text
    OPENED = "Opened"


class Marked(str):
    """A subclass of str, as numpy and template engines define them."""

    __slots__ = ()


def test_a_type_that_is_a_member_of_an_enum_is_its_text() -> None:
    event = Event(Kind.OPENED, tags={Marked("a")})
    assert event.type == "Opened"
    assert matches(event, Query.of(types={Kind.OPENED}, tags={Marked("a")}))


def test_what_is_kept_of_strings_is_str_itself() -> None:
    event = Event(Marked("T"), tags={Marked("a")})
    item = Query.of(types={Kind.OPENED}, tags={Marked("a")}).items[0]
    assert {type(text) for text in (event.type, *event.tags, *item.types, *item.tags)} == {str}


@pytest.mark.parametrize(
    ("field", "stored"),
    [
        ("tags", (1, "A", "[", b"", 0)),
        ("tags", (1, "A", "[[[[", b"", 0)),
        ("tags", (1, "A", "{}", b"", 0)),
        ("recorded_at", (1, "A", "[]", b"", 2**63)),
        ("recorded_at", (1, "A", "[]", b"", -(2**63))),
        ("id", (1, "A", "[]", b"", 0, b"short")),
        ("metadata", (1, "A", "[]", b"", 0, None, '{"a": 1}')),
        ("metadata", (1, "A", "[]", b"", 0, None, '{"a": ' + "[" * 10_000)),
    ],
)
def test_a_stored_field_that_cannot_be_decoded_is_corrupt_and_named(field: str, stored: tuple[object, ...]) -> None:
    event = SequencedEvent(*stored)  # type: ignore[arg-type]
    with pytest.raises(StoreCorrupt, match=f"the {field} of the event at position 1 cannot be decoded"):
        getattr(event, field)
    assert event.data == b""


def test_many_queries_are_joined_in_linear_time(monkeypatch: pytest.MonkeyPatch) -> None:
    hashed = 0
    hash_of = QueryItem.__hash__

    def counted(item: QueryItem) -> int:
        nonlocal hashed
        hashed += 1
        return hash_of(item)

    monkeypatch.setattr(QueryItem, "__hash__", counted)
    queries = [Query.of(tags={f"t:{number}"}) for number in range(200)]
    joined = reduce(operator.or_, queries)
    assert joined == Query([query.items[0] for query in queries])
    assert joined.buckets == 200
    assert hashed <= 5 * len(queries)
