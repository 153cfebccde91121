"""Topics choose events, and a message has an id and a key that depend only on its event."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
from tests.consumers.places import Added

import fencepost
from fencepost import Event, EventStore, InvalidInput, Query
from fencepost.consumers.outbox import Message, Outbox, Topic, rounds

from .receivers import Collector


@pytest.fixture
def store() -> Iterator[EventStore]:
    with fencepost.open("memory:") as store:
        yield store


def message(topic: Topic, store: EventStore, event: Event) -> Message:
    position = store.append([event]).last
    (stored,) = store.read(after=position - 1)
    return Message(topic, stored)


def test_the_id_of_the_event_is_the_deduplication_key(store: EventStore) -> None:
    id = UUID(int=7)
    assert message(Topic("t", source="/s"), store, Event("A", id=id)).id == str(id)


def test_an_event_without_an_id_is_known_by_source_and_position(store: EventStore) -> None:
    assert message(Topic("t", source="/s"), store, Event("A")).id == "/s#1"


def test_the_key_is_the_value_of_the_tag_and_the_first_of_several(store: EventStore) -> None:
    topic = Topic("t", source="/s", key="course")
    assert message(topic, store, Event("A", tags={"course:rust", "student:ada"})).key == "rust"
    assert message(topic, store, Event("A", tags={"course:rust", "course:go"})).key == "go"
    assert message(topic, store, Event("A", tags={"courses:x"})).key is None


def test_types_are_names_or_event_classes_and_the_query_may_be_given_instead() -> None:
    assert Topic("t", source="/s", types={Added, "B"}).query == Query.of(types={"Added", "B"})
    assert Topic("t", source="/s", tags={"a:1"}).query == Query.of(tags={"a:1"})
    either = Query.of(types={"A"}) | Query.of(tags={"b:1"})
    assert Topic("t", source="/s", query=either).query == either


def test_fencepost_s_own_records_are_published_only_if_they_are_named(store: EventStore) -> None:
    event = message(Topic("t", source="/s"), store, Event("fencepost.LeaseTaken")).event
    assert not Topic("t", source="/s").includes(event)
    assert Topic("t", source="/s", types={"fencepost.LeaseTaken"}).includes(event)


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"source": ""}, "source"),
        ({"source": "a b"}, "source"),
        ({"source": "/s", "types": "A"}, "types"),
        ({"source": "/s", "tags": "a:1"}, "tags"),
        ({"source": "/s", "key": "a:1"}, "key"),
        ({"source": "/s", "key": ""}, "key"),
        ({"source": "/s", "types": {"A"}, "query": Query.all()}, "query"),
    ],
)
def test_a_topic_that_makes_no_sense_is_refused(arguments: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidInput, match=field):
        Topic("t", **arguments)


def test_an_outbox_refuses_what_is_not_a_publisher_and_failures_that_break_the_order() -> None:
    topic = Topic("t", source="/s", key="course")
    with pytest.raises(InvalidInput, match="publisher"):
        Outbox("o", topic, object())  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="partitions"):
        Outbox("o", Topic("t", source="/s"), Collector(), partitions=2)
    with pytest.raises(InvalidInput, match="failures"):
        Outbox("o", topic, Collector(), failures=fencepost.consumers.Failures(then="set aside"))


def test_by_default_a_failed_message_is_set_aside_with_its_key() -> None:
    keyed = Outbox("o", Topic("t", source="/s", key="course"), Collector())
    assert (keyed.failures.then, keyed.failures.key, keyed.failures.attempts) == ("set aside", "course", 5)
    assert Outbox("o", Topic("t", source="/s"), Collector()).failures.key is None


def test_rounds_keep_the_order_of_each_key(store: EventStore) -> None:
    topic = Topic("t", source="/s", key="k")
    sent = [message(topic, store, Event("A", tags={f"k:{key}"} if key != "-" else ())) for key in "aab-b-ac"]
    split = rounds(sent)
    assert [[each.key or "-" for each in part] for part in split] == [["a", "b", "-", "c"], ["a", "b", "-"], ["a"]]
    assert sorted((each for part in split for each in part), key=sent.index) == sent
    for key in ("a", "b", None):
        positions = [each.event.position for part in split for each in part if each.key == key]
        assert positions == sorted(positions)
