"""For all tests: Hypothesis takes its time, and tries as much as fits into a run that is made often."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from tests.support.postgres import PostgresServer

pytest_plugins = ("fencepost_pytest",)

settings.register_profile("often", deadline=None, max_examples=60)
settings.load_profile("often")

# What a shell runs in the background ignores Ctrl-C, and so do its children; some tests send it to theirs.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# The server that the workers of a parallel run share.
SHARED_POSTGRES = pytest.StashKey[PostgresServer]()

SPARK = Path(__file__).parent / "spark"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The tests that share a Spark come first, since they take longest."""
    items.sort(key=lambda item: item.path.parent != SPARK)


def pytest_configure(config: pytest.Config) -> None:
    """Before the workers of a parallel run start: one PostgreSQL for the tests that crash no server."""
    starts_workers = getattr(config.option, "numprocesses", None) and not hasattr(config, "workerinput")
    if starts_workers and "FENCEPOST_TEST_POSTGRES" not in os.environ:
        config.stash[SHARED_POSTGRES] = server = _shared_postgres().start()
        os.environ["FENCEPOST_TEST_POSTGRES"] = server.socket_url()


def pytest_unconfigure(config: pytest.Config) -> None:
    if server := config.stash.get(SHARED_POSTGRES, None):
        server.close()


def _shared_postgres() -> PostgresServer:
    """The tests crash and reconfigure only servers of their own, so what this one stores need not reach the disk."""
    return PostgresServer(tcp=True, max_connections=300, fsync="off")


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """One server for all tests of a run, where a superuser may make databases and roles.

    FENCEPOST_TEST_POSTGRES names another. A run in one process starts the server when a test first needs it.
    """
    given = os.environ.get("FENCEPOST_TEST_POSTGRES")
    if given:
        yield given
    else:
        with _shared_postgres() as server:
            yield server.socket_url()
