"""What a role that may only execute the append functions can do: append, and nothing that breaks a promise to others.

Each malformed call is refused by an error that names the field, and leaves nothing behind. The torture program
postgres_calls sends such calls at random.
"""

from __future__ import annotations

import json
import random
from base64 import b64encode
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from tests.support.postgres import PostgresServer, new_database
from tests.torture.postgres_calls import Connection, attack, caller, examine

import fencepost
from fencepost import ConditionFailed, Event, EventStore, Placed, Put
from fencepost.engine import recorded
from fencepost.model.limits import (
    MAX_DATA_BYTES,
    MAX_METADATA_BYTES,
    MAX_NAME_BYTES,
    MAX_POSITION,
    MAX_TAG_BYTES,
    MAX_TAGS,
    MAX_TYPE_BYTES,
    MAX_VALUE_BYTES,
)
from fencepost.testing.contract.base import contents, events, no_new, positions, tagged

CALLS = 60
NO_LIMIT = 2**63 - 1


class Caller:
    """Calls the functions with any arguments."""

    def __init__(self, connection: Connection, schema: str) -> None:
        self.connection = connection
        self.schema = schema

    def batch(self, *appends: dict[str, Any], plain: bool = True, oldest: int | None = NO_LIMIT) -> Any:
        return self._value("append_batch(%s::json, %s, %s)", json.dumps(appends), plain, oldest)

    def one(
        self,
        *,
        id: Any = None,
        type: Any = "A",
        tags: Any = "{}",
        data: Any = b"",
        metadata: Any = None,
        checks: Any = None,
        oldest: int | None = NO_LIMIT,
    ) -> Any:
        call = "append_one(%s, %s, %s::text[], %s, %s::json, %s::json, %s)"
        return self._value(call, id, type, tags, data, metadata, checks, oldest)

    def record(self, *records: dict[str, Any]) -> Any:
        return self._value("record_appends(%s::json)", json.dumps(records))

    def store_and_record(self, count: int, *records: dict[str, Any]) -> None:
        """In one transaction, as a store that records conditions does."""
        with self.connection.transaction():
            self.batch({"before": 0, "events": [document()] * count})
            self.record(*records)

    def _value(self, call: str, *arguments: Any) -> Any:
        row = self.connection.execute(f'SELECT "{self.schema}".{call}'.encode(), arguments).fetchone()
        assert row is not None
        return row[0]


@pytest.fixture
def role(url: str, database_url: str, schema: str) -> Iterator[Caller]:
    with caller(database_url, schema) as connection:
        yield Caller(connection, schema)


def document(**fields: Any) -> dict[str, Any]:
    """An event as it travels."""
    return {"type": "A", "tags": [], "data": "", **fields}


@pytest.mark.parametrize("seed", range(6))
def test_random_calls_break_no_promise(store: EventStore, role: Caller, seed: int) -> None:
    chance = random.Random(seed)
    accepted = [attack(role.connection, role.schema, chance) for _ in range(CALLS)]
    assert True in accepted
    assert False in accepted
    examine(store, chance)


@pytest.mark.parametrize("before", [-1, 0, 2, 7, 2**40, -(2**40), None])
def test_an_event_at_another_position_than_the_next_is_refused(store: EventStore, role: Caller, before: Any) -> None:
    store.append(events("A", count=3))
    with pytest.raises(psycopg.IntegrityError):
        role.batch({"before": 0, "events": [document()]}, {"before": before, "events": [document()]})
    assert store.head() == 3


def test_a_hole_below_the_head_is_not_filled(store: EventStore, role: Caller, connection: Connection) -> None:
    """Where old events were deleted, their positions are free; no append may get one of them."""
    store.append(events("A", count=5))
    connection.execute(f'DELETE FROM "{role.schema}".event WHERE position <= 3'.encode())
    with pytest.raises(psycopg.IntegrityError, match="before: 1 events were to be stored behind position 5, not at 2"):
        role.batch({"before": -4, "events": [document()]})
    assert positions(store.read()) == [4, 5]


@pytest.mark.parametrize("count", [0, 5, -1, None])
@pytest.mark.parametrize("plain", [True, False])
def test_events_are_counted_by_the_server(store: EventStore, role: Caller, count: Any, plain: bool) -> None:
    given = {"before": 0, "count": count, "events": [document(), document()], "sees_batch": True}
    role.batch(given, {**given, "before": 2}, plain=plain)
    assert positions(store.read()) == [1, 2, 3, 4]


@pytest.mark.parametrize("plain", [True, False])
def test_a_fifth_tag_is_indexed_whatever_the_caller_says(store: EventStore, role: Caller, plain: bool) -> None:
    tags = [f"tag:{number}" for number in range(6)]
    role.one(tags=tags)
    role.batch({"before": 0, "count": 1, "many_tags": False, "events": [document(tags=tags)]}, plain=plain)
    assert positions(store.read(tagged("tag:4"))) == [1, 2]
    with pytest.raises(ConditionFailed):
        store.append(events("B"), no_new(tagged("tag:5"), after=1))


BAD_TAGS = {
    "NULL": ("{NULL}", "tags: NULL"),
    "NULL behind others": ("{a,b,c,d,NULL}", "tags: NULL"),
    "empty": ('{""}', "tags: 0 bytes"),
    "unsorted": ("{b,a}", "tags: they must be in the order"),
    "twice": ("{a,a}", "tags: they must be in the order"),
    "two dimensions": ("{{a,b}}", "tags: an array of one dimension"),
    "lower bound 0": ("[0:1]={a,b}", "tags: an array of one dimension with the lower bound 1"),
    "lower bound 5": ("[5:6]={a,b}", "tags: an array of one dimension with the lower bound 1"),
    "too long": (["x" * (MAX_TAG_BYTES + 1)], "tags: 1025 bytes"),
    "too long in bytes": (["é" * 513], "tags: 1026 bytes"),
    "too many": ([f"{n:02}" for n in range(MAX_TAGS + 1)], "tags: 21 tags"),
    "missing": (None, '"tags"'),
}
BAD_METADATA = {
    "no object": ("[]", "metadata: a JSON object of strings"),
    "a number": ('{"a":1}', "metadata: a JSON object of strings"),
    "nested": ('{"a":{"b":"c"}}', "metadata: a JSON object of strings"),
    "null": ("null", "metadata: a JSON object of strings"),
    "half a surrogate pair": ('{"a":"\\ud800"}', "metadata: a JSON object of strings"),
    "a name twice": ('{"a":"b","a":"c"}', "metadata: a name is there twice"),
    "a name in two spellings": ('{"a":"b","\\u0061":"c"}', "metadata: a JSON object of strings"),
    "too large": (json.dumps({"a": "x" * MAX_METADATA_BYTES}, separators=(",", ":")), "metadata: 16392 bytes"),
    "no JSON": ("{", "json"),
}
BAD_FIELDS = [
    *(pytest.param("tags", value, problem, id=f"tags {name}") for name, (value, problem) in BAD_TAGS.items()),
    *(
        pytest.param("metadata", value, problem, id=f"metadata {name}")
        for name, (value, problem) in BAD_METADATA.items()
    ),
    pytest.param("type", "", "type: 0 bytes", id="type empty"),
    pytest.param("type", "x" * (MAX_TYPE_BYTES + 1), "type: 1025 bytes", id="type too long"),
    pytest.param("type", None, '"type"', id="type missing"),
    pytest.param("data", bytes(MAX_DATA_BYTES + 1), "data: 1048577 bytes", id="data too large"),
    pytest.param("data", None, '"data"', id="data missing"),
]


@pytest.mark.parametrize(("field", "value", "problem"), BAD_FIELDS)
def test_a_malformed_event_is_refused_and_nothing_is_stored(
    store: EventStore, role: Caller, field: str, value: Any, problem: str
) -> None:
    with pytest.raises(psycopg.Error, match=problem):
        role.one(**{field: value})
    if isinstance(value, bytes):
        value = b64encode(value).decode()
    for plain in (True, False):
        good = {"before": 0, "events": [document()]}
        with pytest.raises(psycopg.Error, match=problem):
            role.batch(good, {"before": 1, "events": [document(**{field: value})]}, plain=plain)
    assert store.head() == 0


@pytest.mark.parametrize(
    "event",
    [
        document(data="*"),
        document(data="QQ"),
        document(id="x"),
        document(type="\0"),
        document(tags=["a\0"]),
        document(tags=["\ud800"]),
        document(tags="a"),
        document(tags=[["a", "b"]]),
        document(tags={"a": "b"}),
    ],
)
def test_a_malformed_document_is_refused_and_nothing_is_stored(store: EventStore, role: Caller, event: Any) -> None:
    for plain in (True, False):
        with pytest.raises(psycopg.Error):
            role.batch({"before": 0, "events": [document()]}, {"before": 1, "events": [event]}, plain=plain)
    assert store.head() == 0


def test_the_server_accepts_all_that_the_library_accepts(store: EventStore, role: Caller) -> None:
    """The limits in sql/tables.sql are those of fencepost.model."""
    largest = Event(
        "x" * MAX_TYPE_BYTES,
        data=bytes(MAX_DATA_BYTES),
        tags={f"{number:02}".ljust(MAX_TAG_BYTES, "x") for number in range(MAX_TAGS)},
        id=uuid4(),
        metadata={"a": "x" * (MAX_METADATA_BYTES - 8)},
    )
    odd = Event(
        "é", id=uuid4(), tags={"\n", "é", "\U0001f600", "z", "Z", "~"}, metadata={"": "", '"\\/': "\0\x7f\u2028"}
    )
    name = "n" * MAX_NAME_BYTES
    changes = [Put(name, bytes(MAX_VALUE_BYTES), 0)]
    placed = store.append([largest, odd], checkpoint=(name, MAX_POSITION), records=changes)
    assert placed == Placed(1, 2, revisions=(1,))
    assert contents(store.read()) == [largest, odd]
    assert store.checkpoint(name) == MAX_POSITION


def test_metadata_may_hold_every_character(store: EventStore) -> None:
    characters = [chr(code) for code in range(0x11000) if not 0xD800 <= code < 0xE000]
    pieces = ["".join(characters[start : start + 1_000]) for start in range(0, len(characters), 1_000)]
    given = [Event("A", metadata={piece: piece}) for piece in pieces]
    store.append(given)
    assert contents(store.read()) == given


@pytest.mark.parametrize(
    ("name", "position"),
    [
        ("c", "NaN"),
        ("c", "Infinity"),
        ("c", -1),
        ("c", 1.5),
        ("c", MAX_POSITION + 1),
        ("c", "x"),
        ("c", None),
        ("", 1),
        ("n" * (MAX_NAME_BYTES + 1), 1),
    ],
)
def test_a_malformed_checkpoint_is_refused(store: EventStore, role: Caller, name: str, position: Any) -> None:
    given = {"before": 0, "events": [document()], "checkpoint": name, "checkpoint_position": position}
    with pytest.raises(psycopg.Error):
        role.batch(given, plain=False)
    assert (store.head(), store.checkpoint("c")) == (0, 0)


@pytest.mark.parametrize(
    "changes",
    [
        [{"name": "r", "expected": 0, "value": "AA=="}, {"name": "r", "expected": 0, "value": "AA=="}],
        [{"name": "r", "expected": 0, "value": b64encode(bytes(MAX_VALUE_BYTES + 1)).decode()}],
        [{"name": "r", "expected": 0}],
        [{"name": "n" * (MAX_NAME_BYTES + 1), "expected": 0, "value": ""}],
        [{"name": "", "expected": 0, "value": ""}],
        [{"expected": 0, "value": ""}],
        [{"name": "r", "expected": "x", "value": ""}],
        [{"name": "r", "expected": 0, "value": "?"}],
    ],
    ids=[
        "twice",
        "too large",
        "deleting nothing",
        "long name",
        "no name",
        "name missing",
        "not a number",
        "not base64",
    ],
)
def test_a_malformed_change_of_a_record_is_refused(store: EventStore, role: Caller, changes: Any) -> None:
    with pytest.raises(psycopg.Error):
        role.batch({"before": 0, "events": [document()], "records": changes}, plain=False)
    assert (store.head(), list(store.records.list())) == (0, [])


@pytest.mark.parametrize("expected", [None, -1, 0, 2])
def test_a_record_changes_only_from_the_revision_that_it_has(
    store: EventStore, role: Caller, expected: int | None
) -> None:
    record = store.records.put("r", b"0", expected=0)
    for change in ({"value": "AA=="}, {}):
        role.batch({"before": 0, "events": [], "records": [{"name": "r", "expected": expected, **change}]}, plain=False)
    role.batch({"before": 0, "events": [], "records": [{"name": "r", "expected": 1}]}, plain=True)
    assert list(store.records.list()) == [record]


def test_a_checkpoint_never_goes_back(store: EventStore, role: Caller) -> None:
    store.append(events("A"), checkpoint=("c", 5))
    role.batch({"before": 0, "events": [], "checkpoint": "c", "checkpoint_position": 4}, plain=False)
    role.batch({"before": 0, "events": [], "checkpoint": "c", "checkpoint_position": 4}, plain=True)
    assert store.checkpoint("c") == 5


def test_one_id_is_stored_once_whatever_the_caller_says(store: EventStore, role: Caller) -> None:
    id = str(uuid4())
    for ids in (None, [], [str(uuid4())], [None]):
        twice = [document(id=id), document(id=id)]
        with pytest.raises(psycopg.errors.UniqueViolation):
            role.batch({"before": 0, "ids": ids, "events": twice})
    role.one(id=id)
    with pytest.raises(psycopg.errors.UniqueViolation):
        role.batch({"before": 0, "ids": [str(uuid4())], "events": [document(id=id)]})
    assert store.head() == 1


def test_a_caller_that_lies_about_its_own_checks_appends_blindly_and_others_see_it(
    store: EventStore, role: Caller
) -> None:
    store.append(events("A", "seat:1"))
    check = {"condition": 0, "after": 0, "types": [], "tags": ["seat:1"]}
    role.batch({"before": 0, "checks": [check], "events": [document(tags=["seat:1"])]}, oldest=NO_LIMIT)
    role.one(tags=["seat:1"], checks=json.dumps([check]), oldest=NO_LIMIT)
    role.batch(
        {"before": 0, "events": [document(tags=["seat:1"])]},
        {"before": 1, "checks": [{**check, "after": 3}], "events": [document(tags=["seat:1"])]},
        plain=False,
    )
    assert positions(store.read(tagged("seat:1"))) == [1, 2, 3, 4, 5]
    with pytest.raises(ConditionFailed):
        store.append(events("B"), no_new(tagged("seat:1"), after=4))


def test_a_caller_reads_the_event_that_its_condition_conflicts_with(store: EventStore, role: Caller) -> None:
    """This breaks no promise, but EXECUTE without SELECT does not keep events secret."""
    store.append([Event("A", data=b"secret", tags={"seat:1"})])
    check = {"condition": 0, "after": 0, "types": [], "tags": ["seat:1"]}
    (verdict,) = role.batch({"before": 0, "checks": [check], "events": [document()]}, plain=False)
    assert verdict["event"]["data"] == b64encode(b"secret").decode()
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        role.connection.execute(f'SELECT * FROM "{role.schema}".event'.encode())


@pytest.mark.parametrize("names", ["'$user', pg_catalog", "pg_temp, pg_catalog"])
def test_the_settings_of_a_session_change_nothing(store: EventStore, role: Caller, names: str) -> None:
    """Least of all what the names of operators and functions mean."""
    for statement in (
        "CREATE TEMP TABLE event (position bigint)",
        "CREATE FUNCTION pg_temp.octet_length(text) RETURNS integer LANGUAGE sql IMMUTABLE AS 'SELECT 1'",
        f"SET search_path = {names}",
        "SET standard_conforming_strings = off",
        "SET array_nulls = off",
        "SET enable_indexscan = off",
        "SET transform_null_equals = on",
    ):
        role.connection.execute(statement.encode())
    with pytest.raises(psycopg.Error, match="type: 0 bytes"):
        role.one(type="")
    with pytest.raises(psycopg.Error, match="metadata: a JSON object"):
        role.one(metadata='{"a":1}')
    role.one(tags=["a", "b", "c", "d", "e"], metadata='{"a":"b"}')
    assert positions(store.read(tagged("e"))) == [1]


def record(first: int, last: int, **fields: Any) -> dict[str, Any]:
    return {"first": first, "last": last, "conditions": [], "unless": None, **fields}


def test_conditions_are_recorded_only_of_ones_own_appends(url: str, role: Caller) -> None:
    with fencepost.open(url, record_conditions=True) as store:
        store.append(events("A", count=2), no_new(tagged("x")))
        with fencepost.open(url) as other:
            other.append(events("B", count=2))
        for first, last in ((1, 2), (2, 2), (3, 3), (3, 4), (4, 4), (5, 5), (0, 0), (-1, 4), (4, 3), (4, NO_LIMIT)):
            with pytest.raises(psycopg.errors.InsufficientPrivilege, match=f"positions {first} to {last}"):
                role.record(record(first, last))
        for first, last in ((3, 5), (4, 5), (4, 4), (5, 6), (1, 5)):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                role.store_and_record(1, record(first, last))
        role.store_and_record(2, record(5, 5), record(6, 6))
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            role.record(record(6, 6))
        assert [(each.first, each.last) for each in recorded(store)] == [(1, 2), (5, 5), (6, 6)]
        assert next(recorded(store)).conditions == (no_new(tagged("x")),)


def test_no_event_is_recorded_twice(store: EventStore, role: Caller) -> None:
    for second in (record(1, 2), record(2, 2), record(2, 3)):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            role.store_and_record(3, record(1, 2), second)
    assert store.head() == 0


QUERY = {"items": [{"types": ["A"], "tags": ["a"]}]}
CONDITION = {"fail_if_events_match": QUERY, "after": 0}


@pytest.mark.parametrize(
    "fields",
    [
        {"conditions": None},
        {"conditions": {}},
        {"conditions": [1]},
        {"conditions": [{}]},
        {"conditions": [{**CONDITION, "more": 1}]},
        {"conditions": [{**CONDITION, "after": -1}]},
        {"conditions": [{**CONDITION, "after": 1.0}]},
        {"conditions": [{**CONDITION, "after": "1"}]},
        {"conditions": [{**CONDITION, "after": MAX_POSITION + 1}]},
        {"conditions": [CONDITION] * 101},
        {"unless": []},
        {"unless": {}},
        {"unless": {"items": []}},
        {"unless": {"items": [{"types": [], "tags": [], "more": []}]}},
        {"unless": {"items": [{"types": [], "tags": [""]}]}},
        {"unless": {"items": [{"types": [], "tags": [1]}]}},
        {"unless": {"items": [{"types": [], "tags": "a"}]}},
        {"unless": {"items": [{"types": ["x" * 1025], "tags": []}]}},
        {"unless": {"items": [{"types": [], "tags": [f"{n}" for n in range(21)]}]}},
        {"unless": {"items": [{"types": [], "tags": ["\ud800"]}]}},
    ],
)
def test_what_cannot_be_read_again_is_not_recorded(store: EventStore, role: Caller, fields: dict[str, Any]) -> None:
    with pytest.raises(psycopg.Error):
        role.store_and_record(1, record(1, 1, **fields))
    assert store.head() == 0
    role.store_and_record(1, record(1, 1, conditions=[CONDITION] * 100, unless=QUERY))
    (kept,) = recorded(store)
    assert kept.conditions == (no_new(fencepost.Query.of(types={"A"}, tags={"a"})),) * 100


def test_the_owner_is_held_to_the_same_limits_and_index(store: EventStore, schema: str, connection: Connection) -> None:
    """As in a COPY from another table, or an edited dump."""

    def copy(*rows: tuple[Any, ...]) -> None:
        statement = f'COPY "{schema}".event (position, recorded_at, type, tags, data, metadata) FROM STDIN'.encode()
        with connection.cursor() as cursor, cursor.copy(statement) as copying:
            for row in rows:
                copying.write_row((*row[:1], "2020-01-01", *row[1:]))

    for row in (
        (0, "A", [], b"", None),
        (1, "", [], b"", None),
        (1, "A", ["b", "a"], b"", None),
        (1, "A", [], b"", "[]"),
    ):
        with pytest.raises(psycopg.errors.CheckViolation):
            copy(row)
    copy((1, "A", ["a", "b", "c", "d", "e", "f"], b"", '{"a":"b"}'))
    assert positions(store.read(tagged("e", "f"))) == [1]


def test_a_dump_restored_elsewhere_is_the_same_store(postgres_url: str, schema: str) -> None:
    """With its constraints, its trigger and its index of further tags."""
    tags = [f"tag:{number}" for number in range(7)]
    programs = PostgresServer()  # which is not started
    try:
        url, other = new_database(postgres_url), new_database(postgres_url)
        with fencepost.open(url, schema=schema, create=True) as store:
            store.append([Event("A", tags=tags, metadata={"a": "\0"})], checkpoint=("c", 1))
            log = list(store.read())
        script = programs.folder / "dump.sql"
        script.write_text(programs.run("pg_dump", f"--schema={schema}", url))
        programs.run("psql", "-v", "ON_ERROR_STOP=1", "-q", "-f", str(script), other)
        with fencepost.open(other, schema=schema) as restored:
            assert list(restored.read()) == log
            assert list(restored.read(tagged("tag:6"))) == log
            restored.append([Event("B", tags=tags)])
            assert positions(restored.read(tagged("tag:6"))) == [1, 2]
    finally:
        programs.close()
