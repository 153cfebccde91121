"""`postgres install`, and the other commands on a store that it has made."""

from __future__ import annotations

import subprocess
import sys

import pytest
from tests.support.postgres import new_database

from .conftest import ENVIRONMENT, Cli


@pytest.fixture(scope="module")
def url(postgres_url: str) -> str:
    return new_database(postgres_url)


def test_install_makes_a_store_once(cli: Cli, url: str) -> None:
    assert cli("postgres", "install", url, "--schema", "once").lines == [{"schema": "once", "created": True}]
    assert cli("postgres", "install", url, "--schema", "once").lines == [{"schema": "once", "created": False}]


def test_the_commands_work_on_it(cli: Cli, url: str) -> None:
    cli("postgres", "install", url, "--schema", "used")
    store = f"{url}{'&' if '?' in url else '?'}schema=used"
    assert cli("append", store, given='{"type": "T", "tags": ["a"], "data": {"n": 1}}').lines[0]["last"] == 1
    (event,) = cli("read", store, "--tag", "a").lines
    assert (event["position"], event["data"]) == (1, {"n": 1})
    assert cli("check", store, "--tag", "a").code == 1
    assert cli("head", store).out == "1\n"


def test_a_store_that_is_not_there_is_not_made(cli: Cli, url: str) -> None:
    store = f"{url}{'&' if '?' in url else '?'}schema=nowhere"
    for _ in range(2):
        ran = cli("head", store)
        assert ran.code == 3
        assert "fencepost postgres install" in ran.err


def test_the_address_of_the_store_names_its_schema(cli: Cli, url: str) -> None:
    store = f"{url}{'&' if '?' in url else '?'}schema=named"
    assert cli("postgres", "install", store).lines == [{"schema": "named", "created": True}]
    assert cli("postgres", "install", store, "--schema", "named").lines == [{"schema": "named", "created": False}]
    assert cli("head", store).out == "0\n"


def test_two_names_for_the_schema_are_refused(cli: Cli) -> None:
    ran = cli("postgres", "install", "postgresql://localhost/db?schema=one", "--schema", "two")
    assert ran.code == 2
    assert "--schema two" in ran.err


def test_install_is_for_postgresql(cli: Cli) -> None:
    ran = cli("postgres", "install", "sqlite:store.db")
    assert ran.code == 2
    assert "postgresql://" in ran.err


def test_a_missing_extra_is_named() -> None:
    script = (
        "import sys; sys.modules['psycopg'] = None; from fencepost.cli.app import run;"
        "print([run(['head', 'postgresql://localhost/db']), run(['postgres', 'install', 'postgresql://localhost/db'])])"
    )
    ran = subprocess.run([sys.executable, "-c", script], env=ENVIRONMENT, capture_output=True, text=True, check=True)
    assert ran.stdout == "[2, 2]\n"
    assert ran.stderr.count("fencepost[postgres]") == 2
    assert ran.stderr.count("\n") == 2
