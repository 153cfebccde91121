"""Malformed calls of PostgreSQL's append functions, by a role that may do nothing but execute them.

Such a role may append whatever it likes, and no more. Whatever it sends, the log stays gapless, every event can be
read, every query gives what a filter of the full log gives, and no conflict is missed by a client that behaves.
"""

from __future__ import annotations

import json
import random
import time
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

import psycopg
from tests.support.postgres import PostgresServer

import fencepost
from fencepost import AppendCondition, ConditionFailed, Event, EventStore, Put, Query, SequencedEvent
from fencepost.engine import recorded
from fencepost.engines.postgres import install

Connection = psycopg.Connection[tuple[Any, ...]]

FUNCTIONS = ("append_batch", "append_one", "record_appends")
TAGS = [f"tag:{number}" for number in range(12)]
TYPES = ["A", "B", "C"]
CALLS = 150  # between two examinations of the store


def run(seconds: float, seed: int) -> str:
    deadline = time.monotonic() + seconds
    chance = random.Random(seed)
    stored = refused = rounds = 0
    with PostgresServer(fsync="off") as server:
        while rounds == 0 or time.monotonic() < deadline:
            rounds += 1
            schema = f"store_{rounds}"
            install(server.url(), schema)
            with caller(server.url(), schema) as attacker, fencepost.open(server.url(), schema=schema) as store:
                try:
                    for _ in range(CALLS):
                        if attack(attacker, schema, chance):
                            stored += 1
                        else:
                            refused += 1
                    examine(store, chance)
                except Exception as error:
                    raise AssertionError(f"seed {seed}, round {rounds}: {error}") from error
    return f"{stored} calls accepted and {refused} refused, the store examined {rounds} times"


@contextmanager
def caller(url: str, schema: str) -> Iterator[Connection]:
    """A connection of a role that may execute the functions of a store, and nothing else."""
    role = f"caller_{schema}"
    with psycopg.connect(url, autocommit=True) as owner:
        owner.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'secret'".encode())
        owner.execute(f'GRANT USAGE ON SCHEMA "{schema}" TO {role}'.encode())
        for function in FUNCTIONS:
            owner.execute(f'GRANT EXECUTE ON FUNCTION "{schema}".{function} TO {role}'.encode())
    parts = urlsplit(url)
    own = parts._replace(netloc=f"{role}:secret@{parts.netloc.rpartition('@')[2]}").geturl()
    with psycopg.connect(own, autocommit=True, client_encoding="UTF8") as connection:
        yield connection


def attack(connection: Connection, schema: str, chance: random.Random) -> bool:
    """Make one call, or a transaction of several. False: the server refused it."""
    placed = chance.randrange(60)
    try:
        with connection.transaction():
            for _ in range(chance.choice([1, 1, 1, 2, 3])):
                statement, arguments = random_call(schema, chance, placed)
                answer = connection.execute(statement.encode(), arguments).fetchone()
                if answer is not None and str(answer[0]).isdigit():
                    placed = int(answer[0]) + 1  # which is where the call has stored its first event
    except psycopg.Error:
        return False
    return True


def random_call(schema: str, chance: random.Random, placed: int) -> tuple[str, list[Any]]:
    function = chance.choice(FUNCTIONS)
    if function == "append_batch":
        batch = random_batch(chance)
        oldest = chance.choice([None, 0, 0, -1, 3, 2**63 - 1])
        return f'SELECT "{schema}".append_batch(%s::json, %s, %s)', [
            dumps(batch, chance),
            chance.choice([True, True, False, None]),
            oldest,
        ]
    if function == "append_one":
        return f'SELECT "{schema}".append_one(%s, %s, %s::text[], %s, %s::json, %s::json, %s)', [
            chance.choice([None, None, random_id(chance)]),
            chance.choice([*TYPES, "", None, "x" * 1025]) if chance.random() < 0.2 else "A",
            random_array(chance),
            chance.choice([b"", b"x", None, bytes(2**20 + 1)]) if chance.random() < 0.1 else b"data",
            random_metadata(chance) if chance.random() < 0.3 else None,
            dumps([random_check(chance)], chance) if chance.random() < 0.3 else None,
            chance.choice([None, 0, 2**63 - 1, -5]),
        ]
    first = placed + chance.choice([0, 0, 0, -1, 1])
    record = {"first": first, "last": first + chance.choice([0, 0, 0, 1, -1]), "conditions": [], "unless": None}
    spoil(record, chance, [
        ("conditions", lambda: chance.choice([None, {}, [1], [{"after": 1.5, "fail_if_events_match": {"items": []}}]])),
        ("unless", lambda: chance.choice([{}, [], {"items": []}, {"items": [{"types": [], "tags": [""]}]}])),
        ("last", lambda: 2**63 - 1),
    ])  # fmt: skip
    return f'SELECT "{schema}".record_appends(%s::json)', [dumps([record], chance)]


def random_batch(chance: random.Random) -> Any:
    appends = []
    before = 0
    for _ in range(chance.choice([1, 1, 2, 5])):
        events = [random_event(chance) for _ in range(chance.choice([0, 1, 1, 2, 4]))]
        append: dict[str, Any] = {"before": before, "count": len(events), "events": events}
        if chance.random() < 0.3:
            append["checks"] = [random_check(chance) for _ in range(chance.choice([1, 2]))]
        if chance.random() < 0.2:
            append["ids"] = [event.get("id") or random_id(chance) for event in events if isinstance(event, dict)]
        if chance.random() < 0.2:
            append["checkpoint"], append["checkpoint_position"] = "c", chance.randrange(50)
        if chance.random() < 0.2:
            append["records"] = [
                {"name": name, "expected": chance.randrange(5), "value": chance.choice([None, "AA==", ""])}
                for name in chance.sample("rst", chance.choice([1, 1, 2]))
            ]
        append["sees_batch"] = chance.random() < 0.3
        append["many_tags"] = chance.random() < 0.3
        before += len(events)
        spoil(append, chance, [
            ("before", lambda: chance.choice([None, -1, 1, 7, 2**62, "x", -(2**63)])),
            ("count", lambda: chance.choice([None, 0, -1, 9, 2**40])),
            ("events", lambda: chance.choice([None, {}, [None], [1], "x", []])),
            ("checks", lambda: chance.choice([{}, "x", [1], [{}]])),
            ("ids", lambda: chance.choice([[None], ["x"], [[random_id(chance)]], []])),
            ("records", lambda: chance.choice([
                {}, "x", [1], [{}], [{"name": "r", "expected": None}], [{"name": "r", "expected": 0}],
                [{"name": None, "expected": 0, "value": ""}], [{"name": "r", "expected": -1, "value": "?"}],
                [{"name": "r", "expected": 0, "value": ""}] * 2, [{"name": "n" * 1025, "expected": 0, "value": ""}],
                [{"name": "../deleted", "expected": 0, "value": "A" * 100_000}], [{"name": "r", "expected": 2**63 - 1}],
            ])),
            ("checkpoint", lambda: chance.choice(["", "n" * 1025, None, 7])),
            ("checkpoint_position", lambda: chance.choice(["NaN", "Infinity", -1, 1.5, None, 2**96, "x", 10**40])),
        ], rate=0.03)  # fmt: skip
        appends.append(append)
    return chance.choice([None, {}, 1, [1], [[]]]) if chance.random() < 0.02 else appends


def random_event(chance: random.Random) -> dict[str, Any]:
    event: dict[str, Any] = {
        "type": chance.choice(TYPES),
        "tags": sorted(chance.sample(TAGS, chance.choice([0, 1, 2, 4, 5, 6, 8]))),
        "data": b64encode(b"data").decode(),
    }
    if chance.random() < 0.2:
        event["id"] = random_id(chance)
    if chance.random() < 0.2:
        event["metadata"] = '{"a":"b"}' if chance.random() < 0.8 else random_metadata(chance)
    spoil(event, chance, [
        ("type", lambda: chance.choice([None, "", "x" * 1025, "\0", "\ud800", 7, ["A"]])),
        ("tags", lambda: random_tags(chance)),
        ("data", lambda: chance.choice([None, "*", "QQ", "QQ==", "Q Q = =", b64encode(bytes(2**20 + 1)).decode(), 5])),
        ("id", lambda: chance.choice(["x", 7, "", None])),
        ("position", lambda: 1),
        ("recorded_at", lambda: "infinity"),
    ], rate=0.02)  # fmt: skip
    return event


def random_tags(chance: random.Random) -> Any:
    return chance.choice([
        None, [None], ["tag:1", None], [""], ["tag:2", "tag:1"], ["tag:1", "tag:1"], [["tag:1", "tag:2"]], "tag:1",
        "{tag:1}", "[5:6]={tag:1,tag:2}", [["tag:1"], ["tag:2"]], ["x" * 1025], [f"t{n:02}" for n in range(21)], {}, 5,
        ["tag:0", "tag:1", "tag:2", "tag:3", None, "tag:4"], ["tag:1\0"], ["\udfff"], [{"a": 1}], [1, 2], [[], []],
    ])  # fmt: skip


def random_array(chance: random.Random) -> Any:
    """Of the type text[], also in forms that only a literal can have."""
    if chance.random() < 0.8:
        return sorted(chance.sample(TAGS, chance.choice([0, 1, 4, 5, 7, 12])))
    return chance.choice([
        None, "{}", "{NULL}", '{""}', "{tag:2,tag:1}", "{tag:1,tag:1}", "{{tag:1,tag:2}}", "{{tag:1},{tag:2}}",
        "[0:1]={tag:1,tag:2}", "[5:6]={tag:1,tag:2}", "[-3:-2]={tag:1,tag:2}", "{tag:1,NULL,tag:2}",
        ["x" * 1025], [f"t{n:02}" for n in range(21)], "{tag:0,tag:1,tag:2,tag:3,NULL,tag:5}",
    ])  # fmt: skip


def random_metadata(chance: random.Random) -> str | None:
    return chance.choice([
        None, '{"a":"b"}', '{"a":"\\u0000"}', "{}", '{"a":1}', '{"a":null}', "[]", "7", "null", '"a"', '{"a":{}}', "{",
        '{"a":"b","a":"c"}', '{"a":"b","\\u0061":"c"}', '{"a":"\\ud800"}', '{"\\udc00":"x"}', '{ "a":"b"}',
        '{"a":"\\/"}',
        '{"a":"' + "x" * 16_384 + '"}',
    ])  # fmt: skip


def random_check(chance: random.Random) -> Any:
    check: dict[str, Any] = {"condition": 0, "after": chance.randrange(40), "types": [], "tags": [chance.choice(TAGS)]}
    spoil(check, chance, [
        ("condition", lambda: chance.choice([None, -1, -7, 2**40])),
        ("after", lambda: chance.choice([None, -1, 10**30, "x", 2**63 - 1])),
        ("types", lambda: chance.choice([None, ["A"], [None], "A", [["A"]]])),
        ("tags", lambda: random_tags(chance)),
    ], rate=0.1)  # fmt: skip
    return check


def random_id(chance: random.Random) -> str:
    return str(UUID(int=chance.randrange(40)))


def spoil(
    given: dict[str, Any], chance: random.Random, ways: list[tuple[str, Callable[[], Any]]], rate: float = 0.1
) -> None:
    for name, value in ways:
        if chance.random() < rate:
            given[name] = value()


def dumps(document: Any, chance: random.Random) -> str:
    """As JSON; now and then with a name that is there twice."""
    text = json.dumps(document)
    if chance.random() < 0.1:
        text = text.replace('"before": 0', '"before": 0, "before": 3', 1).replace(
            '"type": "A"', '"type": 1, "type": "B"', 1
        )
    return text


def examine(store: EventStore, chance: random.Random) -> None:
    """Whether the store keeps its promises to well-behaved clients."""
    log = list(store.read())
    assert [event.position for event in log] == list(range(1, store.head() + 1)), "the log has gaps"
    for event in log:
        assert event.event.tags == event.tags  # which checks every field against the limits
        assert event.recorded_at.tzinfo is not None
    assert [event.position for event in store.read(backwards=True)] == [event.position for event in reversed(log)]
    tags = [*sorted({tag for event in log for tag in event.tags}), "absent"]
    for tag in tags:
        compare(store, log, Query.of(tags={tag}))
        compare(store, log, Query.of(tags={tag, chance.choice(tags)}, types={chance.choice(TYPES)}))
        check_conflicts(store, Query.of(tags={tag}))
    for type_ in {event.type for event in log}:
        compare(store, log, Query.of(types={type_}))
        check_conflicts(store, Query.of(types={type_}))
    for name in ("c", "7", "n" * 1024):
        assert 0 <= store.checkpoint(name) < 2**96
    for record in store.records.list():
        assert Put(record.name, record.value, record.revision)  # which checks every field against the limits
        changed = store.records.put(record.name, b"changed", expected=record.revision)
        assert store.records.get(record.name) == changed, "a record cannot be changed"
    last = 0
    for append in recorded(store):
        assert last < append.first <= append.last <= len(log), f"recorded: {append}"
        assert (append.conditions, append.unless) is not None  # which decodes both
        last = append.last


def compare(store: EventStore, log: list[SequencedEvent], query: Query) -> None:
    (item,) = query.items
    matching = [e for e in log if item.tags <= e.tags and (not item.types or e.type in item.types)]
    assert list(store.read(query)) == matching, f"{query} is answered wrongly"
    assert list(store.read(query, backwards=True)) == matching[::-1], f"{query} is answered wrongly backwards"


def check_conflicts(store: EventStore, query: Query) -> None:
    """A well-behaved client that has not seen the last matching event is refused."""
    last = next(iter(store.read(query, backwards=True, limit=1)), None)
    if last is not None:
        for count in (1, 2):
            refused = None
            try:
                store.append([Event("Late")] * count, AppendCondition(query, after=last.position - 1))
            except ConditionFailed as error:
                refused = error
            assert refused is not None, f"{query}: the event at {last.position} was missed"
            assert refused.conflict == last
