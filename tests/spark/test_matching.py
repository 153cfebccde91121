"""Many queries by many events, against the definition of matching."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from tests.spark.conftest import NASTY_TAGS, stored

import fencepost
from fencepost import AppendCondition, Event, InvalidInput, Query, QueryItem
from fencepost.buckets import matches
from fencepost.spark import events, match, matching
from fencepost.testing import strategies

TAGS = [*(f"wallet:w{number}" for number in range(12)), "region:eu", *NASTY_TAGS, "absent"]
TYPES = ["WalletOpened", "MoneyAdded", "Odd", "Absent"]


def random_query(chance: random.Random) -> Query:
    return Query(
        QueryItem(
            types=chance.sample(TYPES, chance.choice((0, 0, 1, 2))),
            tags=chance.sample(TAGS, chance.choice((0, 1, 1, 2, 3))),
        )
        for _ in range(chance.choice((1, 1, 2, 3)))
    )


def pairs_by_definition(log: str, queries: dict[str, AppendCondition]) -> list[tuple[str, int]]:
    return sorted(
        (name, event.position)
        for name, condition in queries.items()
        for event in stored(log)
        if event.position > condition.after and matches(event, condition.fail_if_events_match)
    )


@pytest.mark.parametrize("most", [200_000, 0], ids=["on the driver", "on the workers"])
def test_all_pairs_are_found_and_no_others(
    spark: SparkSession, log: str, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    chance = random.Random(7)
    queries = {f"q{number}": AppendCondition(random_query(chance), chance.choice((0, 250))) for number in range(150)}
    queries["all"] = AppendCondition(Query.all())
    given: Any = queries
    if not most:
        monkeypatch.setattr(matching, "BROADCAST_ITEMS", 0)
        rows = [(name, each.fail_if_events_match.to_json(), each.after) for name, each in queries.items()]
        given = spark.createDataFrame(rows, "query_id string, query string, after long")
    found = match(events(spark, log, columns="position long, type string, tags array<string>"), given)
    assert found.columns == ["query_id", "position", "type", "tags"]
    expected = pairs_by_definition(log, queries)
    assert sorted((row["query_id"], row["position"]) for row in found.collect()) == expected
    assert len(expected) > 1_000


@pytest.mark.parametrize("most", [200_000, 0], ids=["on the driver", "on the workers"])
def test_pairs_of_generated_logs_and_queries_are_those_of_the_definition(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(matching, "BROADCAST_ITEMS", most)
    logs, asked = strategies.logs, st.lists(strategies.queries, min_size=20, max_size=40)

    @given(log=logs, asked=asked)
    @settings(max_examples=2, suppress_health_check=list(HealthCheck))  # each takes Spark a second or two
    def compare(log: list[Event], asked: list[Query]) -> None:
        rows = [(position, event.type, sorted(event.tags)) for position, event in enumerate(log, start=1)]
        frame = spark.createDataFrame(rows, "position long, type string, tags array<string>")
        queries = {f"q{number}": query for number, query in enumerate(asked)}
        given_rows = [(name, query.to_json()) for name, query in queries.items()]
        frames = queries if most else spark.createDataFrame(given_rows, "query_id string, query string")
        found = sorted((row["query_id"], row["position"]) for row in match(frame, frames).collect())
        expected = [
            (name, position)
            for name, query in queries.items()
            for position, event in enumerate(log, start=1)
            if matches(event, query)
        ]
        assert found == sorted(expected)

    compare()


@given(
    event=strategies.events, item=strategies.items, common=st.dictionaries(st.sampled_from(strategies.TAGS), st.just(9))
)
def test_an_event_that_matches_an_item_has_one_of_its_keys(
    event: Event, item: QueryItem, common: dict[str, int]
) -> None:
    written = {*event.tags, matching.TYPE + event.type, matching.ALL}
    keys = [key for _, key in matching._keys_of(item, common)]
    assert bool(written.intersection(keys)) >= matches(event, Query([item]))


def test_queries_in_a_frame_have_ranges(spark: SparkSession, log: str) -> None:
    query = Query.of(types={"WalletOpened"}).to_json()
    queries = spark.createDataFrame(
        [("a", query, 10, 20), ("b", query, None, 5)], "query_id string, query string, after long, up_to long"
    )
    found = match(events(spark, log), queries).collect()
    opened = [event.position for event in stored(log) if event.type == "WalletOpened"]
    expected = [("a", at) for at in opened if 10 < at <= 20] + [("b", at) for at in opened if at <= 5]
    assert sorted((row["query_id"], row["position"]) for row in found) == expected


def test_the_key_of_an_item_is_its_rarest_tag() -> None:
    item = QueryItem(tags={"a:common", "b:rarer", "c:rare"})
    assert matching._keys_of(item, {"a:common": 900, "b:rarer": 20}) == [(matching.TAG, "c:rare")]


def test_malformed_queries_are_named(spark: SparkSession, log: str) -> None:
    frame = events(spark, log, columns="position long, type string, tags array<string>")
    with pytest.raises(InvalidInput, match=r"query 'broken'.*not valid JSON"):
        match(frame, spark.createDataFrame([("broken", "{")], "query_id string, query string"))
    with pytest.raises(InvalidInput, match="query 'nothing': it is null"):
        match(frame, spark.createDataFrame([("nothing", None)], "query_id string, query string"))
    with pytest.raises(InvalidInput, match=r"queries\['x'\]"):
        match(frame, {"x": "no query"})  # type: ignore[dict-item]
    with pytest.raises(InvalidInput, match="'tags' is missing"):
        match(frame.drop("tags"), {"x": Query.all()})
    for name in ("key", "query_id"):
        with pytest.raises(InvalidInput, match=f"events: .*a column '{name}'"):
            match(frame.withColumn(name, frame["type"]), {"x": Query.all()})


def test_every_choice_of_a_key_is_one_that_the_kernel_allows(log: str) -> None:
    """A matching event has written each of the keys that an item can choose from."""
    chance = random.Random(11)
    with fencepost.open(log) as store:
        written = [(event, {event.type} | event.tags) for event in store.read()]
    for _ in range(200):
        for item in random_query(chance).items:
            keys = {key.removeprefix(matching.TYPE) for _, key in matching._keys_of(item, {})}
            if keys == {matching.ALL}:
                continue
            for event, own in written:
                if matches(event, Query([item])):
                    assert keys & own
