"""A PostgreSQL server for the tests: the one that FENCEPOST_TEST_POSTGRES names, or one of our own."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from itertools import count
from urllib.parse import urlsplit
from uuid import uuid4

import psycopg
import pytest

import fencepost
from fencepost import EventStore
from fencepost.testing.postgres import PostgresServer


@pytest.fixture(scope="session")
def server_url() -> Iterator[str]:
    """Where a superuser may make databases and roles."""
    given = os.environ.get("FENCEPOST_TEST_POSTGRES")
    if given:
        yield given
    else:
        # Nothing here crashes this server, and hundreds of stores are made on it: they need not reach the disk.
        # The tests that do crash a server start their own.
        with PostgresServer(max_connections=200, fsync="off") as server:
            yield server.url()


@pytest.fixture(scope="session")
def database_url(server_url: str) -> Iterator[str]:
    """A database of the test session. Dropping it takes long; a server of our own is deleted as a whole."""
    name = f"fencepost_test_{uuid4().hex[:12]}"
    with psycopg.connect(server_url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name} ENCODING 'UTF8' TEMPLATE template0".encode())
        yield urlsplit(server_url)._replace(path=f"/{name}").geturl()
        if "FENCEPOST_TEST_POSTGRES" in os.environ:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


@pytest.fixture(scope="session")
def new_schema() -> Callable[[], str]:
    """The name of a schema that nobody has used."""
    numbers = count(1)
    return lambda: f"store_{next(numbers)}"


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
