"""The conflict kernel: buckets meet exactly when an event matches, and the linear cover misses nothing."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fencepost import Event, Query, QueryItem
from fencepost.buckets import ANY, matches, read_keys, read_targets, subsets, write_buckets, write_keys
from fencepost.testing import strategies


@given(event=strategies.events, query=strategies.queries)
def test_buckets_meet_exactly_when_the_event_matches(event: Event, query: Query) -> None:
    assert bool(set(write_buckets(event)) & set(read_targets(query))) == matches(event, query)


@given(event=strategies.events, query=strategies.queries, more=st.integers(0, 2))
def test_subsets_as_large_as_the_largest_item_are_enough(event: Event, query: Query, more: int) -> None:
    largest = max(len(item.tags) for item in query.items)
    buckets = set(write_buckets(event, up_to=largest + more))
    assert bool(buckets & set(read_targets(query))) == matches(event, query)


@given(event=strategies.events, query=strategies.queries)
def test_keys_meet_whenever_the_event_matches(event: Event, query: Query) -> None:
    written = set(write_keys(event))
    for item in query.items:
        if matches(event, Query([item])):
            assert written & set(read_keys(item))


@given(event=strategies.events, query=strategies.queries)
def test_matching_is_what_its_words_say(event: Event, query: Query) -> None:
    def item_matches(item: QueryItem) -> bool:
        right_type = event.type in item.types if item.types else True
        return right_type and all(tag in event.tags for tag in item.tags)

    assert matches(event, query) == any(map(item_matches, query.items))


@given(event=strategies.events)
def test_an_event_writes_two_buckets_for_each_subset_of_its_tags(event: Event) -> None:
    buckets = list(write_buckets(event))
    assert len(buckets) == len(set(buckets)) == 2 * 2 ** len(event.tags)


@given(event=strategies.events)
def test_an_event_writes_keys_linear_in_its_tags(event: Event) -> None:
    assert len(list(write_keys(event))) == 2 + len(event.tags)


def test_a_query_reads_one_bucket_for_each_item_and_type() -> None:
    query = Query.of(types={"B", "A"}, tags={"y", "x"}) | Query.of(tags={"z"}) | Query.all()
    assert list(read_targets(query)) == [(("x", "y"), "A"), (("x", "y"), "B"), (("z",), ANY), ((), ANY)]


def test_a_tag_never_meets_a_type_of_the_same_name() -> None:
    assert not set(write_keys(Event("same"))) & set(read_keys(QueryItem(tags={"same"})))
    assert not set(write_keys(Event("other", tags={"same"}))) & set(read_keys(QueryItem(types={"same"})))


def test_subsets_begin_with_the_empty_one_and_stop_where_they_are_told() -> None:
    assert list(subsets("abc", up_to=1)) == [(), ("a",), ("b",), ("c",)]
    assert len(list(subsets("abcd"))) == 16
    assert list(subsets("ab", up_to=9)) == [(), ("a",), ("b",), ("a", "b")]
