"""Creating, opening and upgrading a store, and the privileges of roles."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import psycopg
import pytest
from tests.postgres.conftest import with_option

import fencepost
from fencepost import (
    ConditionFailed,
    Event,
    EventStore,
    FormatUnsupported,
    InvalidInput,
    Placed,
    StoreCorrupt,
    StoreError,
)
from fencepost.engines.postgres import install, load
from fencepost.engines.postgres.connections import Connections
from fencepost.engines.postgres.install import in_schema
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


def test_a_newer_store_is_refused(
    url: str, database_url: str, schema: str, connection: psycopg.Connection[Any]
) -> None:
    connection.execute(f'UPDATE "{schema}".store SET version = 3'.encode())
    for act in (lambda: fencepost.open(url), lambda: fencepost.open(url, create=True)):
        with pytest.raises(FormatUnsupported, match="version 3, this library knows version 2"):
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
        assert store.append(events("A", "tag"), checkpoint=("c", 1)) == Placed(1, 1)
        with pytest.raises(ConditionFailed):
            store.append(events("A", "tag"), no_new(tagged("tag")))
        assert positions(store.read(tagged("tag"))) == [1]
    own = Connections(
        restricted.partition("?")[0] + "?" + parts.query.replace(f"schema={schema}", ""), limit=1, patience_s=1
    )
    for statement in (
        "INSERT INTO {}.event (position, recorded_at, type, tags, data) VALUES (2, now(), 'A', '{{}}', '')",
        "UPDATE {}.event SET type = 'B'",
        "DELETE FROM {}.event",
        "TRUNCATE {}.event",
        "INSERT INTO {}.more_tags VALUES (1, 1)",
        "UPDATE {}.checkpoint SET position = 9",
        "DROP TABLE {}.event",
        "ALTER TABLE {}.event ADD COLUMN more text",
        "SELECT {}.store_events('[]', 0)",
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
        assert [append.conditions for append in store.recorded()] == [(no_new(tagged("x")),)]
        (event,) = store.read()
        event.position = 2
        with pytest.raises(StoreError, match="permission denied"):
            store.restore([event])


def install_version_1(connection: psycopg.Connection[Any], schema: str) -> None:
    text = (Path(__file__).parent / "schemas" / "version_1.sql").read_text()
    connection.execute(in_schema(text, schema).encode())


def append_as_version_1(connection: psycopg.Connection[Any], schema: str, event: dict[str, Any]) -> None:
    append = {"before": 0, "count": 1, "events": [event]}
    connection.execute(f'SELECT "{schema}".append_batch(%s::json, true, 0)'.encode(), [json.dumps([append])])


def test_an_older_store_is_refused_with_what_to_do(
    database_url: str, schema: str, connection: psycopg.Connection[Any]
) -> None:
    install_version_1(connection, schema)
    for create in (False, True):
        with pytest.raises(FormatUnsupported, match=r"version 1, .* version 2: run `fencepost postgres install`"):
            fencepost.open(database_url, schema=schema, create=create)


def test_installing_upgrades_an_older_store_in_place(
    database_url: str, schema: str, connection: psycopg.Connection[Any]
) -> None:
    """Its events and its grants stay, and a tag that version 1 was not told to index is indexed."""
    tags = [f"tag:{number}" for number in range(6)]
    install_version_1(connection, schema)
    append_as_version_1(connection, schema, {"type": "A", "tags": tags, "data": "QQ=="})
    role = f"appender_{schema}"
    for statement in (
        f"CREATE ROLE {role} LOGIN PASSWORD 'secret'",
        f'GRANT USAGE ON SCHEMA "{schema}" TO {role}',
        f'GRANT SELECT ON ALL TABLES IN SCHEMA "{schema}" TO {role}',
        f'GRANT EXECUTE ON FUNCTION "{schema}".append_batch, "{schema}".append_one TO {role}',
    ):
        connection.execute(statement.encode())
    assert install(database_url, schema)
    assert not install(database_url, schema)
    parts = urlsplit(database_url)
    own = parts._replace(netloc=f"{role}:secret@{parts.netloc.rpartition('@')[2]}").geturl()
    with fencepost.open(own, schema=schema) as store:
        assert contents(store.read(tagged("tag:5"))) == [Event("A", data=b"A", tags=tags)]
        assert store.append([Event("B", tags=tags)]) == Placed(2, 2)
        assert positions(store.read(tagged("tag:5"))) == [1, 2]
        with pytest.raises(StoreError, match="permission denied"), store.engine.connections.connection() as denied:  # type: ignore[attr-defined]
            denied.execute(f"SELECT \"{schema}\".store_events('[]', 0)".encode())


def test_a_client_of_version_1_goes_on_after_the_upgrade(
    database_url: str, schema: str, connection: psycopg.Connection[Any]
) -> None:
    install_version_1(connection, schema)
    install(database_url, schema)
    append_as_version_1(connection, schema, {"type": "A", "tags": list("abcdef"), "data": ""})
    with fencepost.open(database_url, schema=schema) as store:
        assert positions(store.read(tagged("f"))) == [1]


def test_what_an_older_version_should_not_have_stored_is_named(
    database_url: str, schema: str, connection: psycopg.Connection[Any]
) -> None:
    install_version_1(connection, schema)
    append_as_version_1(connection, schema, {"type": "A", "tags": [], "data": ""})
    append_as_version_1(connection, schema, {"type": "A", "tags": ["b", "a"], "data": ""})
    for _ in range(2):
        with pytest.raises(StoreCorrupt, match=r"tags: they must be in the order .* at position 2"):
            install(database_url, schema)
    with fencepost.open(database_url, schema=schema) as store:
        assert store.append(events("A")) == Placed(3, 3)
    connection.execute(f"UPDATE \"{schema}\".event SET tags = '{{a,b}}' WHERE position = 2".encode())
    assert not install(database_url, schema)


def test_an_upgrade_and_appends_at_the_same_time(
    database_url: str, new_schema: Callable[[], str], connection: psycopg.Connection[Any]
) -> None:
    """Neither waits for the other for ever, and no append is lost."""
    schema = new_schema()
    install_version_1(connection, schema)

    def append() -> None:
        with psycopg.connect(database_url, autocommit=True) as own:
            for _ in range(50):
                append_as_version_1(own, schema, {"type": "A", "tags": list("abcdef"), "data": ""})

    together(append, append, lambda: install(database_url, schema))
    with fencepost.open(database_url, schema=schema) as store:
        assert positions(store.read(tagged("f"))) == list(range(1, 101))


def test_a_recorded_append_is_restored_with_its_last_event(
    url: str, database_url: str, new_schema: Callable[[], str]
) -> None:
    """Its first events may have been restored before, in another transaction."""
    with fencepost.open(url, record_conditions=True) as store:
        store.append(events("A", count=3), no_new(tagged("x")))
        log, recorded = list(store.read()), list(store.recorded())
    with fencepost.open(database_url, schema=new_schema(), create=True) as other:
        other.restore(log[:2])
        other.restore(log[2:], recorded)
        assert list(other.read()) == log
        assert list(other.recorded()) == recorded
