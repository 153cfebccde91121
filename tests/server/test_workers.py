"""Several processes serve one store: workers are killed under load, replaced, and drained, and nothing is lost."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import httpx
import pytest
from tests.support.process_table import process, processes
from tests.support.processes import same_path
from tests.support.races import balances, race

import fencepost
from fencepost import InvalidInput
from fencepost.server.server_process import check_settings
from fencepost.server.settings import Settings
from fencepost.testing.clients import load
from fencepost.testing.history import check

from .following import eventually
from .running import ServerProcess
from .test_faults import WithIds

PATIENCE_S = 60.0


@pytest.fixture
def store_path(tmp_path: Path) -> Path:
    fencepost.open(tmp_path / "wallet.db", create=True).close()
    return tmp_path / "wallet.db"


def children(pid: int) -> list[int]:
    """The worker processes of a server, the oldest first."""
    return [each.pid for each in processes() if each.parent == pid]


def counted(url: str, name: str) -> float:
    found = re.search(rf"^{re.escape(name)} (\S+)$", httpx.get(f"{url}/metrics", timeout=20).text, re.MULTILINE)
    assert found is not None, name
    return float(found[1])


def kill_workers_under_load(address: str, tmp_path: Path, times: int) -> None:
    """Clients append while workers are killed. The history checker compares what they saw with the log."""
    histories = tmp_path / "histories"
    histories.mkdir()
    raced: list[object] = []
    with ServerProcess(address, "--workers", "2") as running:

        def work() -> None:
            with fencepost.open(running.url, patience_s=PATIENCE_S) as store:
                raced.append(race(store, threads=4, rounds=60, histories=histories, kind=WithIds))

        clients = threading.Thread(target=work)
        clients.start()
        for killed in range(1, times + 1):
            before = children(running.process.pid)
            assert len(before) == 2
            head = httpx.get(f"{running.url}/v1/head", timeout=20).json()["head"]
            httpx.get(f"{running.url}/v1/head?after={head + 10}&wait_s=1", timeout=20)
            os.kill(before[0], signal.SIGKILL)
            eventually(lambda gone=before[0]: len(set(children(running.process.pid)) - {gone}) == 2)  # type: ignore[misc]
            eventually(lambda starts=2 + killed: counted(running.url, "fencepost_worker_starts_total") == starts)  # type: ignore[misc]
            eventually(lambda: counted(running.url, "fencepost_workers") == 2)
        clients.join(2 * PATIENCE_S)
        assert len(raced) == 1
        assert running.end(lambda process: process.send_signal(signal.SIGTERM)) == 0
    with fencepost.open(address) as direct:
        log = list(direct.read())
    assert check([load(path) for path in sorted(histories.glob("*.history"))], log) == []
    assert all(min(course) >= 0 for course in balances(log).values())


def test_killed_workers_are_replaced_and_nothing_acknowledged_is_lost(store_path: Path, tmp_path: Path) -> None:
    kill_workers_under_load(str(store_path), tmp_path, times=2)


def test_sigterm_drains_every_worker(store_path: Path) -> None:
    answers: list[int] = []
    with ServerProcess(store_path, "--workers", "2") as running:
        workers = children(running.process.pid)

        def wait() -> None:
            answers.append(httpx.get(f"{running.url}/v1/head?after=999999&wait_s=30", timeout=60).status_code)

        def follow() -> None:
            with httpx.stream("GET", f"{running.url}/v1/subscribe", timeout=60) as stream:
                stream.read()
                answers.append(stream.status_code)

        clients = [threading.Thread(target=each) for each in (wait, follow) * 4]
        for client in clients:
            client.start()
        eventually(lambda: counted(running.url, "fencepost_subscriptions") == 8)
        assert running.end(lambda process: process.send_signal(signal.SIGTERM)) == 0
        for client in clients:
            client.join(30)
    assert answers == [200] * 8
    assert not any(map(process, workers))


def test_a_store_in_memory_has_one_process() -> None:
    with pytest.raises(InvalidInput, match="workers: a store in memory belongs to one process"):
        check_settings(Settings(store="memory:", workers=2))
    with pytest.raises(InvalidInput, match="workers"):
        Settings(store="wallet.db", workers=0)


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        (["--tls-certificate", "no.pem", "--tls-key", "no.key"], "no.pem"),
        (["--keys", "/dev/null/keys.json"], "keys"),
    ],
)
def test_a_worker_that_cannot_start_ends_the_server_with_its_reason(
    store_path: Path, flags: list[str], problem: str
) -> None:
    ran = served(str(store_path), "--port", "0", "--workers", "2", *flags)
    assert ran.returncode != 0
    assert problem in ran.stderr
    assert "Traceback" not in ran.stderr


def test_a_port_that_is_taken_is_named(store_path: Path) -> None:
    with ServerProcess(store_path) as running:
        for flags in (["--workers", "2"], []):
            ran = served(str(store_path), "--port", str(running.port), *flags)
            assert ran.returncode != 0
            assert f"127.0.0.1:{running.port}: cannot listen there" in ran.stderr


def served(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "fencepost.cli", "serve", *arguments]
    return subprocess.run(command, env=same_path(), capture_output=True, text=True, timeout=60, check=False)
