"""Creating and opening a store, and the privileges of roles."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import psycopg
import pytest
from msgspec.structs import replace
from tests.postgres.conftest import with_option

import fencepost
from fencepost import (
    ConditionFailed,
    Event,
    EventStore,
    FormatUnsupported,
    InvalidInput,
    Placed,
    Put,
    StoreError,
)
from fencepost.engine import recorded, restore
from fencepost.engines.postgres import install, load
from fencepost.engines.postgres.connection_pool import ConnectionPool
from fencepost.testing.contract.base import contents, events, no_new, positions, tagged, together, typed, types


def test_a_store_that_is_not_there_is_refused_with_what_to_do(database_url: str, schema: str) -> None:
    with pytest.raises(FormatUnsupported, match="fencepost postgres install"):
        fencepost.open(database_url, schema=schema)


def test_installing_makes_a_store_and_installing_again_leaves_it_alone(database_url: str, schema: str) -> None:
    assert install(database_url, schema)
    with fencepost.open(database_url, schema=schema) as store:
        store.append(events("A"))
        assert not install(database_url, schema)
        assert store.head() == 1


def test_of_two_that_install_at_once_one_makes_the_store(database_url: str, schema: str) -> None:
    made = together(*[lambda: install(database_url, schema)] * 4)
    assert sorted(made) == [False, False, False, True]


def test_a_store_of_another_version_is_refused(
    url: str, database_url: str, schema: str, connection: psycopg.Connection[Any]
) -> None:
    connection.execute(f'UPDATE "{schema}".store SET version = 2'.encode())
    for act in (lambda: fencepost.open(url), lambda: fencepost.open(url, create=True)):
        with pytest.raises(FormatUnsupported, match="version 2, this library knows version 1"):
            act()


def test_a_store_whose_tags_were_hashed_in_another_way_is_refused(
    url: str, schema: str, connection: psycopg.Connection[Any]
) -> None:
    connection.execute(f'UPDATE "{schema}".store SET hash = hash + 1'.encode())
    with pytest.raises(FormatUnsupported, match="load its events into a new store"):
        fencepost.open(url)


def test_stores_in_different_schemas_know_nothing_of_each_other(
    database_url: str, new_schema: Callable[[], str]
) -> None:
    one, two = (fencepost.open(database_url, schema=new_schema(), create=True) for _ in range(2))
    with one, two:
        one.append(events("A", "tag"))
        assert two.append(events("B", "tag"), no_new(tagged("tag")), checkpoint=("c", 1)) == Placed(1, 1)
        assert (types(one.read()), types(two.read()), one.checkpoint("c")) == (["A"], ["B"], 0)


@pytest.mark.parametrize("name", ["", "a-b", 'a"b', "a'b", "a.b", "1a", "x" * 64, "%s"])
def test_a_schema_with_an_odd_name_is_refused(database_url: str, name: str) -> None:
    with pytest.raises(InvalidInput, match="schema"):
        fencepost.open(database_url, schema=name)


def test_the_name_of_a_schema_keeps_its_case(database_url: str, schema: str) -> None:
    with fencepost.open(database_url, schema=schema.upper(), create=True) as store:
        store.append(events("A", "a", "b", count=200))
        store.append(events("B", "b", "c", count=200))
        assert store.append(events("C"), no_new(tagged("a", "c"))).first == 401


def test_options_may_be_in_the_address(database_url: str, schema: str) -> None:
    address = with_option(with_option(database_url, "schema", schema), "create", "true")
    with fencepost.open(with_option(address, "connections", "2")) as store:
        assert store.append(events("A")) == Placed(1, 1)
    with pytest.raises(InvalidInput, match="connections"):
        fencepost.open(with_option(address, "connections", "many"))


def test_both_names_of_the_scheme_are_known(url: str) -> None:
    with fencepost.open(url.replace("postgresql://", "postgres://")) as store:
        assert store.head() == 0


def test_a_role_may_append_without_a_right_to_insert_change_or_delete(
    url: str, schema: str, connection: psycopg.Connection[Any]
) -> None:
    role = f"appender_{schema}"
    for statement in (
        f"CREATE ROLE {role} LOGIN PASSWORD 'secret'",
        f'GRANT USAGE ON SCHEMA "{schema}" TO {role}',
        f'GRANT SELECT ON ALL TABLES IN SCHEMA "{schema}" TO {role}',
        f'GRANT EXECUTE ON FUNCTION "{schema}".append_batch, "{schema}".append_one TO {role}',
    ):
        connection.execute(statement.encode())
    parts = urlsplit(url)
    restricted = parts._replace(netloc=f"{role}:secret@{parts.netloc.rpartition('@')[2]}").geturl()
    with fencepost.open(restricted) as store:
        placed = store.append(events("A", "tag"), checkpoint=("c", 1), records=[Put("r", b"", 0)])
        assert placed == Placed(1, 1, revisions=(1,))
        with pytest.raises(ConditionFailed):
            store.append(events("A", "tag"), no_new(tagged("tag")))
        assert positions(store.read(tagged("tag"))) == [1]
    own = ConnectionPool(
        restricted.partition("?")[0] + "?" + parts.query.replace(f"schema={schema}", ""), limit=1, patience_s=1
    )
    for statement in (
        "INSERT INTO {}.event (position, recorded_at, type, tags, data) VALUES (2, now(), 'A', '{{}}', '')",
        "UPDATE {}.event SET type = 'B'",
        "DELETE FROM {}.event",
        "TRUNCATE {}.event",
        "INSERT INTO {}.more_tags VALUES (1, 1)",
        "UPDATE {}.record SET revision = 9",
        "DROP TABLE {}.event",
        "ALTER TABLE {}.event ADD COLUMN more text",
        "SELECT {}.store_events('[]', 0)",
        "SELECT {}.change_records('[]')",
    ):
        with pytest.raises(StoreError, match=r"permission denied|must be owner"), own.connection() as denied:
            denied.execute(statement.format(f'"{schema}"').encode())
    own.close()


def test_a_role_that_may_only_read_cannot_append(url: str, schema: str, connection: psycopg.Connection[Any]) -> None:
    role = f"reader_{schema}"
    for statement in (
        f"CREATE ROLE {role} LOGIN PASSWORD 'secret'",
        f'GRANT USAGE ON SCHEMA "{schema}" TO {role}',
        f'GRANT SELECT ON ALL TABLES IN SCHEMA "{schema}" TO {role}',
    ):
        connection.execute(statement.encode())
    parts = urlsplit(url)
    with fencepost.open(parts._replace(netloc=f"{role}:secret@{parts.netloc.rpartition('@')[2]}").geturl()) as store:
        assert store.head() == 0
        with pytest.raises(StoreError, match="permission denied"):
            store.append(events("A"))


def test_appends_are_durable_even_where_commits_are_not_synchronous(
    url: str, schema: str, connection: psycopg.Connection[Any]
) -> None:
    connection.execute("SET synchronous_commit = off")
    with connection.transaction():
        connection.execute(f"SELECT * FROM \"{schema}\".append_batch('[]', false, 0)".encode())
        assert connection.execute("SHOW synchronous_commit").fetchone() == ("on",)


def test_bulk_loading_stores_what_appending_would(store: EventStore, database_url: str, schema: str) -> None:
    given = [
        Event(f"Type{number % 3}", data=b"%d\0" % number, tags={f"tag:{number % 7}", "all"}, metadata={"n": "\0é"})
        for number in range(500)
    ]
    assert load(database_url, given[:400], schema=schema) == Placed(1, 400)
    assert load(database_url, given[400:], schema=schema) == Placed(401, 500)
    assert load(database_url, [], schema=schema) is None
    assert contents(store.read()) == given
    assert contents(store.read(tagged("tag:3", "all"))) == [event for event in given if "tag:3" in event.tags]
    assert contents(store.read(typed("Type1"), backwards=True)) == [e for e in given if e.type == "Type1"][::-1]
    with pytest.raises(ConditionFailed):
        store.append(events("A"), no_new(tagged("tag:6"), after=490))
    assert store.append(events("A"), no_new(tagged("tag:6"), after=500)).first == 501


def test_events_moved_from_another_store_keep_their_times_and_ids(
    store: EventStore, database_url: str, new_schema: Callable[[], str]
) -> None:
    store.append([Event("A", id=uuid4()) for _ in range(3)])
    other = new_schema()
    install(database_url, other)
    load(database_url, store.read(), schema=other)
    with fencepost.open(database_url, schema=other) as moved:
        assert list(moved.read()) == list(store.read())


def test_a_role_that_records_conditions_needs_a_second_function_and_no_table(
    url: str, schema: str, connection: psycopg.Connection[Any]
) -> None:
    role = f"recorder_{schema}"
    for statement in (
        f"CREATE ROLE {role} LOGIN PASSWORD 'secret'",
        f'GRANT USAGE ON SCHEMA "{schema}" TO {role}',
        f'GRANT SELECT ON ALL TABLES IN SCHEMA "{schema}" TO {role}',
        f'GRANT EXECUTE ON FUNCTION "{schema}".append_batch, "{schema}".append_one TO {role}',
    ):
        connection.execute(statement.encode())
    parts = urlsplit(url)
    restricted = parts._replace(netloc=f"{role}:secret@{parts.netloc.rpartition('@')[2]}").geturl()
    with fencepost.open(restricted, record_conditions=True) as store:
        with pytest.raises(StoreError, match="record_appends"):
            store.append(events("A"))
        assert store.head() == 0
        connection.execute(f'GRANT EXECUTE ON FUNCTION "{schema}".record_appends TO {role}'.encode())
        store.append(events("A"), no_new(tagged("x")))
        assert [append.conditions for append in recorded(store)] == [(no_new(tagged("x")),)]
        (event,) = store.read()
        with pytest.raises(StoreError, match="permission denied"):
            restore(store, [replace(event, position=2)])


def test_a_recorded_append_is_restored_with_its_last_event(
    url: str, database_url: str, new_schema: Callable[[], str]
) -> None:
    """Its first events may have been restored before, in another transaction."""
    with fencepost.open(url, record_conditions=True) as store:
        store.append(events("A", count=3), no_new(tagged("x")))
        log, kept = list(store.read()), list(recorded(store))
    with fencepost.open(database_url, schema=new_schema(), create=True) as other:
        restore(other, log[:2])
        restore(other, log[2:], kept)
        assert list(other.read()) == log
        assert list(recorded(other)) == kept
