"""What an address, and what is around it, may say about the connections."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from tests.postgres.conftest import with_option

import fencepost
from fencepost import ConditionFailed, Event, InvalidInput
from fencepost.core.address import Address, tables_at, without_options
from fencepost.engines.postgres import load
from fencepost.engines.postgres.addresses import parameters_of
from fencepost.testing.contract.base import no_new, tagged

EVENT = Event("Größe", tags={"stadt:Köln"}, data=b"\xff", metadata={"wer": "Jürgen"})


def test_another_encoding_in_the_address_does_not_change_what_is_stored(url: str) -> None:
    with fencepost.open(with_option(url, "client_encoding", "LATIN1")) as one, fencepost.open(url) as other:
        one.append([EVENT])
        one.append([EVENT, EVENT])
        assert [found.event for found in other.read()] == [EVENT] * 3
        assert [found.event for found in one.read(tagged("stadt:Köln"))] == [EVENT] * 3


def test_another_encoding_in_the_environment_hides_no_conflict(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setenv("PGCLIENTENCODING", "LATIN1")
        one = fencepost.open(url)
        one.append([EVENT], no_new(tagged("stadt:Köln")))
    with one, fencepost.open(url) as other, pytest.raises(ConditionFailed):
        other.append([EVENT], no_new(tagged("stadt:Köln")))


def test_a_store_is_made_and_loaded_under_another_encoding(database_url: str, schema: str) -> None:
    latin = with_option(database_url, "client_encoding", "LATIN1")
    with fencepost.open(latin, schema=schema, create=True) as store:
        load(latin, [EVENT], schema=schema)
        assert [found.event for found in store.read(tagged("stadt:Köln"))] == [EVENT]


def test_a_question_mark_in_a_password_begins_no_parameters() -> None:
    address = "postgresql://ada:a?b@host/db?schema=eu&sslmode=require"
    assert without_options(address, {"schema"}) == ("postgresql://ada:a?b@host/db?sslmode=require", {"schema": "eu"})
    assert parameters_of("postgresql://ada:a?b@host/db")["password"] == "a?b"


@pytest.mark.parametrize("written", ["a+b", "a%2Bb"])
def test_a_plus_in_the_address_is_a_plus(url: str, connection: psycopg.Connection[Any], written: str) -> None:
    with fencepost.open(with_option(url, "application_name", written)):
        row = connection.execute("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'a+b'").fetchone()
        assert row == (1,)


def test_the_tables_of_a_store_can_be_read_by_another_driver() -> None:
    plain = "postgresql://host/db?password=a+b"
    tables = tables_at(Address.parse(f"{plain}&schema=wallets&connections=2"))
    assert (tables.url, tables.events, tables.appends) == (plain, '"wallets".event', '"wallets".append')
    assert "a+b" not in repr(tables)


@pytest.mark.parametrize("address", ["postgresql://host/db?schema=a.b", "postgresql://u:p@s@host/db"])
def test_the_tables_of_a_malformed_address_are_refused(address: str) -> None:
    with pytest.raises(InvalidInput):
        tables_at(Address.parse(address))


def test_a_store_without_tables_has_none_to_read() -> None:
    with pytest.raises(InvalidInput, match="memory"):
        tables_at(Address.parse("memory:"))
