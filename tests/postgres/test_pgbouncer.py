"""The store through PgBouncer in transaction mode: each transaction may go to another connection of the server."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from tests.postgres.conftest import with_option
from tests.support.postgres import PostgresServer
from tests.support.races import race

import fencepost
from fencepost import ConditionFailed, Event, Placed, StoreUnavailable
from fencepost.testing import check
from fencepost.testing.contract.base import Running, events, no_new, positions, tagged, take, together
from fencepost.testing.faults import PATIENCE_S

# Debian installs it here, which is often not on the PATH. It is not on a package index for Python.
PGBOUNCER = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")

pytestmark = pytest.mark.skipif(PGBOUNCER is None, reason="pgbouncer is not installed; Debian has it as pgbouncer")

SETTINGS = """
[databases]
* = host={folder} port=5432 user=postgres
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 3
logfile = {folder}/pgbouncer.log
"""


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with PostgresServer(fsync="off") as server:
        yield server


@pytest.fixture(scope="module")
def pooled(server: PostgresServer) -> Iterator[str]:
    """The address of the pooler."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    settings = server.folder / "pgbouncer.ini"
    settings.write_text(SETTINGS.format(folder=server.folder, port=port))
    identity = {}
    if os.geteuid() == 0:
        nobody = pwd.getpwnam("nobody")
        identity = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
    process = subprocess.Popen([PGBOUNCER, "-q", str(settings)], cwd=server.folder, **identity)  # type: ignore[call-overload]
    url = f"postgresql://postgres@127.0.0.1:{port}/postgres"
    try:
        wait_for(url, server.folder / "pgbouncer.log")
        yield url
    finally:
        process.terminate()
        process.wait()


def wait_for(url: str, log: Path) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            psycopg.connect(url).close()
            return
        except psycopg.OperationalError:
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.05)


def test_stores_of_two_schemas_share_the_poolers_connections(pooled: str, schema: str) -> None:
    """More clients than connections: whatever a client prepared is soon on another client's connection."""
    urls = [with_option(pooled, "schema", f"{schema}_{name}") for name in ("one", "two")]
    stores = [fencepost.open(url, create=True) for url in urls for _ in range(3)]
    histories = together(
        *(partial(race, store, name=f"{number}.", threads=2, rounds=15) for number, store in enumerate(stores))
    )
    for half in (slice(0, 3), slice(3, 6)):
        recorded = [history for group in histories[half] for history in group]
        assert check(recorded, list(stores[half][0].read())) == []
    for store in stores:
        store.close()


def test_a_large_append_and_a_conflict(pooled: str, schema: str) -> None:
    with fencepost.open(with_option(pooled, "schema", schema), create=True) as store:
        assert store.append(events("Loaded", "t", count=9_000)) == Placed(1, 9_000)
        with pytest.raises(ConditionFailed):
            store.append(events("A"), no_new(tagged("t"), 8_999))
        assert positions(store.read()) == list(range(1, 9_001))


@pytest.mark.parametrize("around", [True, False], ids=["around the pooler", "through the pooler"])
def test_subscriptions_work(pooled: str, server: PostgresServer, schema: str, around: bool) -> None:
    url = with_option(pooled, "schema", schema)
    with fencepost.open(url, create=True, listen_url=server.url() if around else None) as store:
        subscription = store.subscribe(timeout_s=PATIENCE_S)
        with fencepost.open(url) as other:
            for _ in range(5):
                other.append(events("A"))
            assert positions(take(subscription, 5)) == [1, 2, 3, 4, 5]
        subscription.stop()


def hold_up_commits(connection: psycopg.Connection[Any], schema: str) -> None:
    """Let every commit of an event wait for the advisory lock 1, after the events are stored."""
    connection.execute(
        f"""
        CREATE FUNCTION "{schema}".hold() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN PERFORM pg_advisory_xact_lock(1); RETURN NULL; END $$;
        CREATE CONSTRAINT TRIGGER hold AFTER INSERT ON "{schema}".event DEFERRABLE INITIALLY DEFERRED
        FOR EACH ROW EXECUTE FUNCTION "{schema}".hold()
        """.encode()
    )


def terminate_the_held_one(connection: psycopg.Connection[Any]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    statement = (
        b"SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND objid = 1 AND NOT granted"
    )
    while not connection.execute(statement).fetchall():
        assert time.monotonic() < deadline, "no transaction waits in its commit"
        time.sleep(0.002)


@pytest.mark.parametrize("record_conditions", [False, True])
def test_a_connection_lost_behind_the_pooler_in_the_commit_is_settled_by_the_ids(
    pooled: str, server: PostgresServer, schema: str, record_conditions: bool
) -> None:
    """The pooler reports the loss in its own way: as an error, and then the end of the connection."""
    url = with_option(pooled, "schema", schema)
    with (
        fencepost.open(url, create=True, record_conditions=record_conditions) as store,
        psycopg.connect(server.url(), autocommit=True) as connection,
    ):
        hold_up_commits(connection, schema)
        connection.execute("SELECT pg_advisory_lock(1)")
        event = Event("A", tags={"seat:1"}, id=uuid4())
        append = Running(partial(store.append, [event], no_new(tagged("seat:1"))))
        terminate_the_held_one(connection)
        connection.execute("SELECT pg_advisory_unlock(1)")
        assert append.result() == Placed(1, 1)
        assert positions(store.read()) == [1]
        connection.execute("SELECT pg_advisory_lock(1)")
        append = Running(partial(store.append, events("B")))
        terminate_the_held_one(connection)
        with pytest.raises(StoreUnavailable, match="without event ids the store cannot find out which"):
            append.result()
        connection.execute("SELECT pg_advisory_unlock(1)")
        assert store.append(events("C")) == Placed(2, 2)
