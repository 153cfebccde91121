"""Stores in a database of the shared PostgreSQL server."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from itertools import count
from urllib.parse import urlsplit

import psycopg
import pytest
from tests.support.postgres import new_database

import fencepost
from fencepost import EventStore


@pytest.fixture(scope="session")
def database_url(postgres_url: str) -> Iterator[str]:
    """A database of the test session. Dropping it takes long; a server of our own is deleted as a whole."""
    url = new_database(postgres_url)
    yield url
    if "FENCEPOST_TEST_POSTGRES" in os.environ:
        with psycopg.connect(postgres_url, autocommit=True) as connection:
            connection.execute(f"DROP DATABASE {urlsplit(url).path[1:]} WITH (FORCE)".encode())


@pytest.fixture(scope="session")
def new_schema() -> Callable[[], str]:
    """The name of a schema that no other test uses."""
    numbers = count(1)
    return lambda: f"store_{os.getpid()}_{next(numbers)}"


class UsedStores:
    """Stores that earlier tests have used, and that can be used again once they are emptied."""

    def __init__(self, connection: psycopg.Connection[tuple[object, ...]]) -> None:
        self.urls: list[str] = []
        self._connection = connection

    def give_back(self, url: str, schema: str) -> None:
        tables = [f"{schema}.{table}" for table in ("event", "more_tags", "record", "append")]
        try:
            if self._connection.execute(f"SELECT max(position) > 5000 FROM {tables[0]}".encode()).fetchone() == (True,):
                self._connection.execute(f"TRUNCATE {', '.join(tables)}".encode())
            for table in tables:
                self._connection.execute(f"DELETE FROM {table}".encode())  # faster than TRUNCATE, for few rows
        except psycopg.errors.LockNotAvailable:
            return  # the test has left a transaction open, so this store is not used again
        self.urls.append(url)


@pytest.fixture(scope="session")
def used_stores(database_url: str) -> Iterator[UsedStores]:
    with psycopg.connect(database_url, autocommit=True, options="-c lock_timeout=2s") as connection:
        yield UsedStores(connection)


@pytest.fixture
def new_url(
    database_url: str, new_schema: Callable[[], str], used_stores: UsedStores
) -> Iterator[Callable[[], tuple[str, bool]]]:
    """The address of a store that is empty, another one at each call, and whether it has to be created.

    Creating a store takes longer than most tests, so stores are emptied after a test and used again. A test that
    changes more than the content of a store must use `schema` instead.
    """
    taken: list[tuple[str, str]] = []

    def take() -> tuple[str, bool]:
        create = not used_stores.urls
        url = with_option(database_url, "schema", new_schema()) if create else used_stores.urls.pop()
        taken.append((url, url.rpartition("=")[2]))
        return url, create

    yield take
    for url, schema in taken:
        used_stores.give_back(url, schema)


@pytest.fixture
def schema(new_schema: Callable[[], str]) -> str:
    return new_schema()


@pytest.fixture
def url(database_url: str, schema: str) -> str:
    """The address of a store that is empty and the test's own."""
    url = with_option(database_url, "schema", schema)
    fencepost.open(url, create=True).close()
    return url


@pytest.fixture
def store(url: str) -> Iterator[EventStore]:
    with fencepost.open(url) as store:
        yield store


@pytest.fixture
def connection(database_url: str) -> Iterator[psycopg.Connection[tuple[object, ...]]]:
    """Another client of the database, beside the store."""
    with psycopg.connect(database_url, autocommit=True) as connection:
        yield connection


def with_option(url: str, name: str, value: str) -> str:
    return f"{url}{'&' if '?' in url else '?'}{name}={value}"
