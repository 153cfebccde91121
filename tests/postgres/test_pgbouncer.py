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

import psycopg
import pytest
from tests.postgres.conftest import with_option

import fencepost
from fencepost import ConditionFailed, Placed
from fencepost.testing import check
from fencepost.testing.contract.base import events, no_new, positions, tagged, take, together
from fencepost.testing.faults import PATIENCE_S
from fencepost.testing.postgres import PostgresServer
from fencepost.testing.races import race

# Where Debian puts it, which is not on everybody's path. No package index for Python has it.
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
        subscription = store.subscribe(timeout=PATIENCE_S)
        with fencepost.open(url) as other:
            for _ in range(5):
                other.append(events("A"))
            assert positions(take(subscription, 5)) == [1, 2, 3, 4, 5]
        subscription.stop()
