"""Input: each value is stored byte for byte, or refused by a name; after a refusal nothing is stored."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from operator import methodcaller
from typing import Any, Final
from uuid import uuid4

import pytest

from ...errors import InvalidInput
from ...model import AppendCondition, Delete, Event, Put, Query, QueryItem, SequencedEvent, limits
from ..stores import Store
from .base import Contract, contents, events, no_new, positions, tagged, typed

ODD_STRINGS = [
    ",", "a,b", '"', "'", "''", "\\", "{", "}", "{a}", "[", "]", "=", "a=b", ":", "a:b:c", "/", "//", "%", "_", "a_b",
    "a%b", "*", "?", "$1", "NULL", "null", "\n", "\r\n", "\t", " ", " a ", "\x01", "\x7f", "\u00a0", "\u2028", "_e",
    "\U0001f600", "\U0001f468\u200d\U0001f469\u200d\U0001f467", "e\u0301", "\u00e9", "\ufeff", "\uffff",
    "\U0010ffff", "0", "-1", "1e9", "true", "\u202eabc", "\u0130", "\u0131", "\u00df", "SS",
    "--", ";", "); DROP TABLE events; --", "<b>", "&amp;", "\\u0000", "\\x00", "a" * limits.MAX_TAG_BYTES,
    "\u00e9" * (limits.MAX_TAG_BYTES // 2), "\U0001f600" * (limits.MAX_TAG_BYTES // 4),
]  # fmt: skip

MALFORMED_STRINGS = {
    "the empty string": "",
    "64 KiB": "x" * 65_536,
    "one byte too many": "x" * (limits.MAX_TAG_BYTES + 1),
    "one character too many": "\u00e9" * (limits.MAX_TAG_BYTES // 2) + "x",
    "NUL": "a\0b",
    "a lone surrogate": "a\ud800",
    "bytes": b"bytes",
    "a number": 5,
    "None": None,
}
assert limits.MAX_TYPE_BYTES == limits.MAX_NAME_BYTES == limits.MAX_TAG_BYTES, "the lists above stand for all three"

_ID: Final = uuid4()
_LARGEST: Final = Event("A", data=bytes(limits.MAX_DATA_BYTES))

append, read, subscribe, checkpoint = (
    partial(methodcaller, verb) for verb in ("append", "read", "subscribe", "checkpoint")
)

# What is wrong, which field is named, and how to do it to a store.
BAD_APPENDS: dict[str, tuple[str, Callable[[Store], object]]] = {
    "no events": ("events", append([])),
    "one event instead of a list": ("events", append(Event("A"))),
    "None instead of events": ("events", append(None)),
    "a string instead of events": ("events[0]", append("A")),
    "something else among the events": ("events[1]", append([Event("A"), "B"])),
    "too many events": ("events", append([Event("A")] * (limits.MAX_EVENTS + 1))),
    "too many bytes in all": ("events", append([_LARGEST] * (limits.MAX_APPEND_BYTES // limits.MAX_DATA_BYTES + 1))),
    "the same id twice": ("events", append([Event("A", id=_ID), Event("B", id=_ID)])),
    "ids for some of the events": ("events", append([Event("A", id=_ID), Event("B")])),
    "a query as a condition": ("condition", append(events("A"), Query.all())),
    "a number as a condition": ("condition", append(events("A"), 5)),
    "something else among the conditions": ("condition[1]", append(events("A"), [no_new(typed("B")), Query.all()])),
    "too many conditions": ("condition", append(events("A"), [no_new(typed("B"))] * (limits.MAX_CONDITIONS + 1))),
    "a condition as unless": ("unless", append(events("A"), unless=no_new(typed("B")))),
    "a name as a checkpoint": ("checkpoint", append(events("A"), checkpoint="name")),
    "three values as a checkpoint": ("checkpoint", append(events("A"), checkpoint=("a", 1, 2))),
    "a nameless checkpoint": ("checkpoint.name", append(events("A"), checkpoint=("", 1))),
    "a checkpoint below 0": ("checkpoint.position", append(events("A"), checkpoint=("a", -1))),
    "a checkpoint that is not an int": ("checkpoint.position", append(events("A"), checkpoint=("a", 1.5))),
    "a change instead of a list": ("records", append([], records=Put("a", b"", 0))),
    "something else among the changes": ("records[1]", append([], records=[Put("a", b"", 0), ("b", b"")])),
    "a record twice": ("records[1]", append([], records=[Put("a", b"", 0), Delete("a", 1)])),
    "too many records": ("records", append([], records=[Put(f"{n}", b"", 0) for n in range(limits.MAX_RECORDS + 1)])),
    "no events and no records": ("events", append([], records=[])),
}

BAD_READS: dict[str, tuple[str, Callable[[Store], object]]] = {
    "a type instead of a query": ("query", read("A")),
    "after below 0": ("after", read(after=-1)),
    "after beyond all positions": ("after", read(after=limits.MAX_POSITION + 1)),
    "after that is not an int": ("after", read(after="1")),
    "after that is a bool": ("after", read(after=True)),
    "up_to below 0": ("up_to", read(up_to=-1)),
    "up_to that is not an int": ("up_to", read(up_to=1.0)),
    "limit of 0": ("limit", read(limit=0)),
    "limit that is not an int": ("limit", read(limit="1")),
    "a subscription to a type": ("query", subscribe("A")),
    "a nameless record": ("name", lambda store: store.records.get("")),
    "a record with NUL in its name": ("name", lambda store: store.records.put("a\0", b"", expected=0)),
    "a record of text": ("value", lambda store: store.records.put("a", "text", expected=0)),  # type: ignore[arg-type]
    "a record that is too large": (
        "value",
        lambda store: store.records.put("a", bytes(limits.MAX_VALUE_BYTES + 1), expected=0),
    ),
    "a revision below 0": ("expected", lambda store: store.records.put("a", b"", expected=-1)),
    "a revision that is a bool": ("expected", lambda store: store.records.put("a", b"", expected=True)),
    "deleting a record that must not exist": ("expected", lambda store: store.records.delete("a", expected=0)),
    "a prefix that is not a str": ("prefix", lambda store: list(store.records.list(5))),  # type: ignore[arg-type]
    "a subscription after -1": ("after", subscribe(after=-1)),
    "the checkpoint without a name": ("checkpoint", checkpoint("")),
    "the checkpoint named by a number": ("checkpoint", checkpoint(1)),
}


def _any(value: Any) -> Any:
    """A value of a type that the verb does not take: what a caller without a type checker may give."""
    return value


class Input(Contract):
    def test_22_odd_tags_are_stored_exactly_and_found_alone(self, store: Store) -> None:
        store.append([Event("Tagged", tags={tag}) for tag in ODD_STRINGS])
        self._each_is_found(store, tagged, lambda event: event.tags)
        assert [event.tags for event in store.read()] == [frozenset({tag}) for tag in ODD_STRINGS]

    def test_22_odd_types_are_stored_exactly_and_found_alone(self, store: Store) -> None:
        store.append([Event(type) for type in ODD_STRINGS])
        self._each_is_found(store, typed, lambda event: {event.type})
        assert [event.type for event in store.read()] == ODD_STRINGS

    def test_22_odd_tags_conflict_with_themselves_alone(self, store: Store) -> None:
        for tag in dict.fromkeys(ODD_STRINGS):
            store.append([Event("Tagged", tags={tag})], no_new(tagged(tag)))
        assert len(list(store.read())) == len(set(ODD_STRINGS))

    def test_22_odd_names_and_values_of_metadata_are_stored_exactly(self, store: Store) -> None:
        short = [text[:100] for text in ODD_STRINGS]
        given = [{text: text, "other": text} for text in [*short, "", "\0"]]
        store.append([Event("Described", metadata=metadata) for metadata in given])
        assert [dict(event.metadata) for event in store.read()] == given

    def test_22_metadata_up_to_the_limit_is_stored_and_none_is_empty(self, store: Store) -> None:
        largest = {"m": "x" * (limits.MAX_METADATA_BYTES - len('{"m":""}'))}
        store.append([Event("Described", metadata=largest), Event("Plain")])
        assert [event.metadata for event in store.read()] == [largest, {}]

    def test_22_odd_names_of_checkpoints_are_kept_apart(self, store: Store) -> None:
        names = list(dict.fromkeys(ODD_STRINGS))
        for number, name in enumerate(names, start=1):
            store.append([], checkpoint=(name, number))
        assert [store.checkpoint(name) for name in names] == list(range(1, len(names) + 1))

    def test_22_data_is_stored_byte_for_byte(self, store: Store) -> None:
        given = [
            b"",
            bytes(range(256)),
            bytes(range(255, -1, -1)),
            b"\0",
            b"\0\0",
            b"no JSON {",
            b"\xff\xfe\xfa",
            b'{"a": 1}',
            b'  {"a":  1.0}\n',
            *[bytes([byte]) for byte in range(256)],
            bytes(limits.MAX_DATA_BYTES),
            b"\xff" * limits.MAX_DATA_BYTES,
        ]
        store.append([Event("Stored", data=data) for data in given])
        assert [event.data for event in store.read()] == given

    @pytest.mark.parametrize("count", [0, 1, limits.MAX_TAGS])
    def test_22_so_many_tags_are_stored_and_each_subset_matches(self, store: Store, count: int) -> None:
        tags = [f"tag:{number}" for number in range(count)]
        placed = store.append([Event("Tagged", tags=tags), Event("Tagged", tags={"other"})])
        stored = next(iter(store.read()))
        assert stored.tags == frozenset(tags)
        for subset in (tags[:1], tags[-1:], tags[::2], tags):
            if subset:
                assert positions(store.read(tagged(*subset))) == [placed.first]
                assert positions(store.read(Query.of(types={"Tagged"}, tags=subset))) == [placed.first]

    @pytest.mark.parametrize("count", [limits.MAX_TAGS + 1, 65])
    def test_22_more_tags_are_refused(self, store: Store, count: int) -> None:
        tags = {f"tag:{number}" for number in range(count)}
        self._refuses(store, "tags", lambda: store.append([Event("Tagged", tags=tags)]))
        self._refuses(store, "tags", lambda: store.read(tagged(*tags)))

    def test_22_duplicate_tags_are_one_tag(self, store: Store) -> None:
        placed = store.append([Event("Tagged", tags=["a", "b", "a"] * 10)])
        (stored,) = store.read(tagged("a"))
        assert (stored.tags, stored.position) == (frozenset({"a", "b"}), placed.first)

    def test_22_one_tag_as_a_bare_string_is_refused(self, store: Store) -> None:
        self._refuses(store, "tags", lambda: store.append([Event("Tagged", tags="wallet")]))
        self._refuses(store, "types", lambda: store.read(Query.of(types="Tagged")))

    @pytest.mark.parametrize("wrong", MALFORMED_STRINGS)
    def test_22_refused_as_a_type_and_as_a_tag_is(self, store: Store, wrong: str) -> None:
        value = _any(MALFORMED_STRINGS[wrong])
        self._refuses(store, "type", lambda: store.append([Event("Good"), Event(value)]))
        self._refuses(store, "tags", lambda: store.append([Event("Good"), Event("Bad", tags=["good", value])]))
        self._refuses(store, "types", lambda: store.append([Event("Good")], no_new(typed(value))))
        self._refuses(store, "tags", lambda: store.append([Event("Good")], unless=tagged(value)))

    @pytest.mark.parametrize("data", ["text", None, 5, [1], {"a": 1}], ids=str)
    def test_22_data_that_is_not_bytes_is_refused(self, store: Store, data: object) -> None:
        self._refuses(store, "data", lambda: store.append([Event("Good"), Event("Bad", data=_any(data))]))

    def test_22_too_much_data_is_refused_with_its_size_and_the_limit(self, store: Store) -> None:
        refused = self._refuses(
            store, "data", lambda: store.append([Event("Big", data=bytes(limits.MAX_DATA_BYTES + 1))])
        )
        assert str(limits.MAX_DATA_BYTES + 1) in str(refused)
        assert f"limit is {limits.MAX_DATA_BYTES}" in str(refused)

    @pytest.mark.parametrize(
        "metadata",
        [{"m": "x" * limits.MAX_METADATA_BYTES}, {"m": 1}, {1: "m"}, {"m": None}, {"m": "\ud800"}, ["m"], "m"],
        ids=["too much", "a number", "a numbered name", "None", "a lone surrogate", "a list", "a string"],
    )
    def test_22_malformed_metadata_is_refused(self, store: Store, metadata: object) -> None:
        self._refuses(store, "metadata", lambda: store.append([Event("Bad", metadata=_any(metadata))]))

    def test_22_an_id_that_is_no_uuid_is_refused(self, store: Store) -> None:
        self._refuses(store, "id", lambda: store.append([Event("Bad", id=_any(str(uuid4())))]))

    def test_22_a_query_of_no_items_or_too_many_is_refused(self, store: Store) -> None:
        self._refuses(store, "items", lambda: store.read(Query([])))
        self._refuses(store, "items", lambda: store.read(Query([QueryItem(types={"A"})] * (limits.MAX_ITEMS + 1))))
        self._refuses(store, "items[0]", lambda: store.read(Query(_any([Query.all()]))))
        self._refuses(store, "items", lambda: store.read(Query(_any(None))))
        self._refuses(store, "types", lambda: store.read(typed(*map(str, range(limits.MAX_TYPES + 1)))))

    def test_22_items_times_types_have_a_limit_in_one_query(self, store: Store) -> None:
        types = [f"Type{number}" for number in range(limits.MAX_BUCKETS // 10)]
        items = [QueryItem(types=types, tags={f"tag:{number}"}) for number in range(10)]
        assert list(store.read(Query(items))) == []
        refused = self._refuses(store, "items", lambda: store.read(Query([*items, QueryItem()])))
        assert str(limits.MAX_BUCKETS + 1) in str(refused)
        assert f"limit is {limits.MAX_BUCKETS}" in str(refused)
        self._refuses(store, "items", lambda: store.read(Query(items) | Query.of(types={"One"}, tags={"more"})))

    def test_22_the_conditions_of_one_append_have_a_limit_together(self, store: Store) -> None:
        half = Query(
            QueryItem(types={"A", "B"}, tags={f"tag:{number}"}) for number in range(limits.MAX_CONDITION_BUCKETS // 4)
        )
        most = [no_new(half), no_new(half)]
        assert store.append(events("Decided"), most).first
        assert store.append(events("Decided"), most[0], unless=half).first
        one = tagged("one more")
        refused = self._refuses(store, "condition", lambda: store.append(events("A"), [*most, no_new(one)]))
        assert str(limits.MAX_CONDITION_BUCKETS + 1) in str(refused)
        assert str(limits.MAX_CONDITION_BUCKETS) in str(refused)
        self._refuses(store, "unless", lambda: store.append(events("A"), most, unless=one))

    @pytest.mark.parametrize("after", [-1, limits.MAX_POSITION + 1, 1.5, "1", None, True])
    def test_22_a_condition_after_no_position_is_refused(self, store: Store, after: object) -> None:
        self._refuses(
            store, "after", lambda: store.append(events("A"), AppendCondition(Query.all(), after=_any(after)))
        )

    def test_22_a_condition_on_no_query_is_refused(self, store: Store) -> None:
        bad = _any(typed("A").items[0])
        self._refuses(store, "fail_if_events_match", lambda: store.append(events("A"), AppendCondition(bad)))

    @pytest.mark.parametrize("wrong", BAD_APPENDS)
    def test_22_refused_is_an_append_with(self, store: Store, wrong: str) -> None:
        field, append = BAD_APPENDS[wrong]
        self._refuses(store, field, lambda: append(store))

    @pytest.mark.parametrize("wrong", BAD_READS)
    def test_22_refused_is_reading_with(self, store: Store, wrong: str) -> None:
        field, read = BAD_READS[wrong]
        self._refuses(store, field, lambda: read(store))

    def test_22_seventy_thousand_events_in_one_append_are_stored_in_order(self, store: Store) -> None:
        given = [Event("Many", data=b"%d" % number, tags={f"tag:{number % 7}"}) for number in range(70_000)]
        placed = store.append(given, no_new(tagged("tag:3")))
        count = 0
        for event, expected in zip(store.read(), given, strict=True):
            assert event.data == expected.data
            assert event.tags == expected.tags
            count += 1
        assert count == 70_000
        assert store.head() == placed.last
        assert len(list(store.read(tagged("tag:6")))) == 10_000
        if self.gapless:
            assert placed.last - placed.first + 1 == 70_000

    def test_22_a_query_of_the_most_items_is_answered(self, store: Store) -> None:
        placed = store.append([Event("A", tags={f"tag:{number}"}) for number in range(0, 2 * limits.MAX_ITEMS, 2)])
        items = [QueryItem(types={"A"}, tags={f"tag:{number}"}) for number in range(limits.MAX_ITEMS)]
        assert len(list(store.read(Query(items)))) == limits.MAX_ITEMS // 2
        condition = no_new(Query(items[: limits.MAX_CONDITION_BUCKETS]), placed.last)
        assert store.append(events("Decided"), condition).first > placed.last

    def test_22_the_most_types_in_one_item_are_answered(self, store: Store) -> None:
        store.append([Event(f"Type{number}", tags={"tag"}) for number in range(0, 2 * limits.MAX_TYPES, 2)])
        names = [f"Type{number}" for number in range(limits.MAX_TYPES)]
        assert len(list(store.read(typed(*names)))) == limits.MAX_TYPES // 2
        assert len(list(store.read(Query.of(types=names, tags={"tag"})))) == limits.MAX_TYPES // 2

    def test_an_event_is_read_as_it_was_appended(self, store: Store) -> None:
        given = [
            Event("Plain"),
            Event("Full", data=b"\0\xff", tags={"b", "a"}, id=uuid4(), metadata={"by": "Ada", "at": "home"}),
        ]
        for event in given:
            store.append([event])
        assert contents(store.read()) == given

    def _refuses(self, store: Store, field: str, call: Callable[[], object]) -> InvalidInput:
        before = store.append(events("Before")).last
        with pytest.raises(InvalidInput) as refused:
            call()
        assert refused.value.field == field
        assert field in str(refused.value)
        assert store.head() == before
        assert positions(store.read(after=before - 1)) == [before]
        return refused.value

    def _each_is_found(
        self, store: Store, query: Callable[[str], Query], of: Callable[[SequencedEvent], Iterable[str]]
    ) -> None:
        log = list(store.read())
        for string in ODD_STRINGS:
            assert list(store.read(query(string))) == [event for event in log if string in of(event)]
