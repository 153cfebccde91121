"""The index is exact despite hash collisions, and each query reads few pages."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

import fencepost
from fencepost import AppendCondition, ConditionFailed, Event, EventStore, Placed, Query, QueryItem
from fencepost.buckets import matches
from fencepost.engines.postgres import install, load
from fencepost.engines.postgres.install import script
from fencepost.testing.contract.base import events, no_new, positions, tagged

EVENTS = 20_000
# Pages of 8 KiB. The log has some 700, each index of tags 100, so a scan through one of them is noticed.
FEW = 250
WALKED = 6_000  # where two long streams never meet, one is walked along once; leaping would take 24,000


@pytest.fixture(scope="module")
def large(database_url: str) -> str:
    """The schema of a store with frequent, rare and disjoint tags and types."""
    schema = "large"
    install(database_url, schema)
    load(database_url, (_event(number) for number in range(EVENTS)), schema=schema)
    return schema


def _event(number: int) -> Event:
    tags = {"hot", f"wallet:{number % 5_000}", f"parity:{number % 2}"}
    if number % 20 < 2:
        tags.add(f"warm:{number % 20}")
    rare = number == EVENTS // 2
    return Event("Rare" if rare else f"Type{number % 4}", data=b"x" * 100, tags=tags | ({"rare"} if rare else set()))


def pages_touched(connection: psycopg.Connection[Any], schema: str, query: Query, after: int) -> int:
    """How many pages the check of a condition looks at, with the plans that it has after many checks."""
    (item,) = query.items
    call = f'SELECT "{schema}".matches(%s::text[], %s::text[], %s, 1000000, 1, false)'
    arguments: list[Any] = [sorted(item.types), sorted(item.tags), after]
    for setting in ("plan_cache_mode = force_generic_plan", "enable_seqscan = off", "enable_bitmapscan = off"):
        connection.execute(f"SET {setting}".encode())
    for _ in range(3):
        connection.execute(call.encode(), arguments)
    row = connection.execute(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {call}".encode(), arguments).fetchone()
    assert row is not None
    plan = row[0][0]["Plan"]
    return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])


@pytest.mark.parametrize("after", [0, EVENTS // 2 + 1, EVENTS - 10])
@pytest.mark.parametrize(
    "query",
    [
        tagged("hot"),
        tagged("absent"),
        tagged("wallet:1"),
        tagged("hot", "absent"),
        tagged("hot", "wallet:1"),
        tagged("hot", "parity:0", "wallet:1"),
        tagged("hot", "rare"),
        tagged("wallet:1", "wallet:2"),
        Query.of(types={"Absent"}),
        Query.of(types={"Type1"}),
        Query.of(types={"Rare"}),
        Query.of(types={"Absent"}, tags={"hot"}),
        Query.of(types={"Rare"}, tags={"hot"}),
        Query.of(types={"Rare", "Absent"}, tags={"hot", "parity:1"}),
        Query.of(types={"Type1", "Type2"}, tags={"hot"}),
        Query.all(),
    ],
    ids=lambda query: query.to_json() if isinstance(query, Query) else None,
)
def test_a_check_looks_at_few_pages(large: str, connection: psycopg.Connection[Any], query: Query, after: int) -> None:
    assert pages_touched(connection, large, query, after) <= FEW


@pytest.mark.parametrize(
    "query", [tagged("warm:0", "warm:1"), Query.of(types={"Type1"}, tags={"warm:0"})], ids=["tags", "tag and type"]
)
def test_of_long_streams_that_never_meet_one_is_walked_along(
    large: str, connection: psycopg.Connection[Any], query: Query
) -> None:
    assert pages_touched(connection, large, query, 0) <= WALKED


@pytest.mark.parametrize(
    ("tags", "types"),
    [(["hot", "rare"], []), (["hot"], ["Rare"]), (["hot", "parity:0", "rare"], ["Absent", "Rare"])],
)
@pytest.mark.parametrize("backwards", [False, True])
def test_streams_are_followed_to_where_all_of_them_meet(
    large: str, connection: psycopg.Connection[Any], tags: list[str], types: list[str], backwards: bool
) -> None:
    """Stopping where only some streams agree would be correct, since each event is checked, but slow."""
    call = f'SELECT "{large}".leap(%s::text[], %s::text[], %s, %s)'.encode()
    start = EVENTS if backwards else 1
    assert connection.execute(call, [tags, types, start, backwards]).fetchone() == (EVENTS // 2 + 1,)
    assert connection.execute(call, [[*tags, "absent"], types, start, backwards]).fetchone() == (None,)


QUERIES = [
    tagged("hot"),
    tagged("wallet:1"),
    tagged("hot", "wallet:17"),
    tagged("warm:0", "warm:1"),
    tagged("warm:0", "parity:0", "hot"),
    Query.of(types={"Type1"}),
    Query.of(types={"Type1", "Rare"}),
    Query.of(types={"Type1"}, tags={"parity:1"}),
    Query.of(types={"Rare"}, tags={"hot"}),
    Query.of(types={"Type0", "Type2"}, tags={"warm:0"}),
    Query([QueryItem(tags={"warm:0"}), QueryItem(types={"Rare"}), QueryItem(types={"Type3"}, tags={"wallet:3"})]),
    Query([QueryItem(tags={"warm:0"}), QueryItem(types={"Type3"}, tags={"wallet:3"})]),  # one has more than a page
    Query([QueryItem(tags={"wallet:1"}), QueryItem(types={"Type2", "Type1"}, tags={"wallet:2", "hot"})]),
    Query.all(),
]


@pytest.mark.parametrize("query", QUERIES, ids=lambda query: query.to_json())
def test_a_reading_finds_exactly_what_matches(large: str, database_url: str, query: Query) -> None:
    expected = [number for number in range(1, EVENTS + 1) if matches(_event(number - 1), query)]
    chance = random.Random(7)
    with fencepost.open(database_url, schema=large) as store:
        assert positions(store.read(query)) == expected
        assert positions(store.read(query, backwards=True)) == expected[::-1]
        for _ in range(10):
            after = chance.randrange(EVENTS)
            up_to = chance.randrange(after, EVENTS + 1)
            limit = chance.choice([1, 3, 100, 1_000])
            within = [number for number in expected if after < number <= up_to]
            assert positions(store.read(query, after=after, up_to=up_to, limit=limit)) == within[:limit]
            backwards = store.read(query, after=after, up_to=up_to, limit=limit, backwards=True)
            assert positions(backwards) == within[::-1][:limit]


@pytest.mark.parametrize("query", QUERIES, ids=lambda query: query.to_json())
def test_a_condition_names_the_first_match(large: str, database_url: str, query: Query) -> None:
    expected = [number for number in range(1, EVENTS + 1) if matches(_event(number - 1), query)]
    with fencepost.open(database_url, schema=large) as store:
        for after in (0, 1, expected[len(expected) // 2] if expected else 10, EVENTS - 5):
            first = next((number for number in expected if number > after), None)
            if first is None:
                continue
            with pytest.raises(ConditionFailed) as failed:
                store.append(events("New"), AppendCondition(query, after))
            assert failed.value.conflict.position == first


@pytest.fixture
def colliding(database_url: str, connection: psycopg.Connection[Any], schema: str) -> Iterator[EventStore]:
    """A store in which all tags have one of two hashes."""
    connection.execute(
        "CREATE OR REPLACE FUNCTION public.bad_hash(tag text, seed bigint) RETURNS bigint "
        "LANGUAGE sql IMMUTABLE STRICT RETURN length(tag) % 2"
    )
    connection.execute(script(schema).replace("hashtextextended(", "public.bad_hash(").encode())
    connection.execute(f"UPDATE \"{schema}\".store SET hash = hashtextextended('fencepost', 0)".encode())
    with fencepost.open(database_url, schema=schema) as store:
        yield store


def test_tags_whose_hashes_collide_are_told_apart(colliding: EventStore) -> None:
    tags = [f"{'x' * size}{number}" for size in (1, 2) for number in range(6)]
    chance = random.Random(3)
    given = [Event(f"Type{n % 3}", tags=chance.sample(tags, chance.randrange(8))) for n in range(300)]
    colliding.append(given)
    for _ in range(60):
        query = Query.of(types=chance.sample(["Type0", "Type1"], chance.randrange(3)), tags=chance.sample(tags, 2))
        after = chance.randrange(300)
        expected = [n for n, event in enumerate(given, start=1) if matches(event, query) and n > after]
        assert positions(colliding.read(query, after=after)) == expected
        assert positions(colliding.read(query, after=after, backwards=True)) == expected[::-1]
        if expected:
            with pytest.raises(ConditionFailed) as failed:
                colliding.append(events("New"), no_new(query, after))
            assert failed.value.conflict.position == expected[0]


def test_a_reading_by_one_tag_leaves_out_those_that_collide_with_it(colliding: EventStore) -> None:
    given = [Event("A", tags={f"x{n % 5}", f"x{(n * 7) % 11}", f"yy{n % 3}"}) for n in range(600)]
    colliding.append(given)
    for tag in ("x1", "x9", "yy2", "x99"):
        expected = [n for n, event in enumerate(given, start=1) if tag in event.tags]
        for limit in (1, 7, 50, None):
            assert positions(colliding.read(tagged(tag), limit=limit)) == expected[:limit]
            assert positions(colliding.read(tagged(tag), limit=limit, backwards=True)) == expected[::-1][:limit]


def test_a_collision_is_no_conflict(colliding: EventStore) -> None:
    colliding.append(events("A", "seat:1", "row:1"))
    assert colliding.append(events("A"), no_new(tagged("seat:2", "row:1"))) == Placed(2, 2)
