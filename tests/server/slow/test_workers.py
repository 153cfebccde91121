"""Workers of a server: on PostgreSQL, with keys, metrics and gRPC, and without their first process."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import grpc
import httpx
import pytest
from tests.support.process_table import process

import fencepost
from fencepost.server.access import Right
from fencepost.server.keys import add_key, revoke_key
from fencepost.server.umadb import protobuf as messages

from ..following import eventually
from ..running import ServerProcess, free_port
from ..test_workers import children, counted, kill_workers_under_load


@pytest.fixture
def store_path(tmp_path: Path) -> Path:
    fencepost.open(tmp_path / "wallet.db", create=True).close()
    return tmp_path / "wallet.db"


def test_killed_workers_on_postgresql_lose_nothing(postgres_url: str, tmp_path: Path) -> None:
    address = f"{postgres_url}{'&' if '?' in postgres_url else '?'}schema=workers"
    fencepost.open(address, create=True).close()
    kill_workers_under_load(address, tmp_path, times=5)


def test_workers_end_when_the_first_process_is_killed(store_path: Path) -> None:
    with ServerProcess(store_path, "--workers", "2") as running:
        workers = children(running.process.pid)
        running.end(lambda process: process.kill())
        eventually(lambda: not any(map(process, workers)))
    with ServerProcess(store_path, "--workers", "2", port=running.port) as again:
        assert httpx.get(f"{again.url}/readyz").status_code == 200


def test_the_metrics_of_all_workers_are_one_and_do_not_fall_when_a_worker_ends(store_path: Path) -> None:
    with ServerProcess(store_path, "--workers", "2") as running:
        for _ in range(20):  # each on a connection of its own, so that both workers get some
            httpx.post(f"{running.url}/v1/append", json={"events": [{"type": "T"}]}).raise_for_status()
        eventually(lambda: counted(running.url, "fencepost_events_appended_total") == 20)
        eventually(lambda: counted(running.url, "fencepost_commit_appends_count") == 20)
        assert counted(running.url, "fencepost_head_position") == 20
        for worker in children(running.process.pid):
            eventually(lambda: counted(running.url, "fencepost_workers") == 2)
            starts = counted(running.url, "fencepost_worker_starts_total")
            os.kill(worker, signal.SIGKILL)
            eventually(lambda before=starts: counted(running.url, "fencepost_worker_starts_total") == before + 1)  # type: ignore[misc]
        assert counted(running.url, "fencepost_events_appended_total") == 20


def test_a_key_that_is_revoked_is_refused_by_every_worker(store_path: Path, tmp_path: Path) -> None:
    keys = tmp_path / "keys.json"
    secret = add_key(keys, "ada", rights=frozenset({Right.READ})).secret
    headers = {"Authorization": f"Bearer {secret}"}
    with ServerProcess(store_path, "--workers", "3", "--keys", str(keys)) as running:

        def statuses() -> set[int]:
            return {httpx.get(f"{running.url}/v1/head", headers=headers).status_code for _ in range(30)}

        assert statuses() == {200}
        revoke_key(keys, "ada")
        eventually(lambda: statuses() == {401})


def test_grpc_is_served_by_every_worker(store_path: Path) -> None:
    port = free_port()
    with ServerProcess(store_path, "--workers", "2", "--grpc-port", str(port)) as running:
        for _ in range(10):
            with grpc.insecure_channel(f"127.0.0.1:{port}", [("grpc.use_local_subchannel_pool", 1)]) as channel:
                call = channel.unary_unary("/umadb.v1.DCB/Head", lambda _: b"", messages.HeadResponse.FromString)
                assert call(None, timeout=30, wait_for_ready=True).position == 0
        eventually(lambda: counted(running.url, 'fencepost_requests_total{path="umadb/Head",status="OK"}') == 10)
