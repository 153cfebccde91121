"""kill -9 and SIGTERM of a real `fencepost serve` under load: every acknowledged append is there."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import httpx
import pytest
from tests.support.fault_proxy import FaultProxy
from tests.support.processes import same_path
from tests.support.races import balances, race

import fencepost
from fencepost import Event, StoreUnavailable
from fencepost.testing.clients import load
from fencepost.testing.history import check

from .running import ServerProcess, free_port
from .test_faults import WithIds

PATIENCE_S = 60.0


@pytest.fixture
def store_path(tmp_path: Path) -> Path:
    fencepost.open(tmp_path / "wallet.db", create=True).close()
    return tmp_path / "wallet.db"


def killed(process: subprocess.Popen[str]) -> None:
    process.kill()


def terminated(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGTERM)


@pytest.mark.parametrize(("end", "code"), [(killed, -signal.SIGKILL), (terminated, 0)])
def test_clients_go_on_through_restarts_and_nothing_acknowledged_is_lost(
    store_path: Path, tmp_path: Path, end: Callable[[subprocess.Popen[str]], None], code: int
) -> None:
    """Threads here, and a process of threads, while the server ends three times and starts on the same port."""
    port = free_port()
    running = ServerProcess(store_path, port=port)
    histories = tmp_path / "histories"
    histories.mkdir()
    other = subprocess.Popen(
        [sys.executable, "-m", "tests.server.test_kill", f"http://127.0.0.1:{port}", str(histories)],
        env=same_path(),
        stderr=subprocess.PIPE,
        text=True,
    )
    raced: list[object] = []

    def work() -> None:
        with fencepost.open(f"http://127.0.0.1:{port}", patience_s=PATIENCE_S) as store:
            raced.append(race(store, threads=3, rounds=60, histories=histories, kind=WithIds))

    clients = threading.Thread(target=work)
    clients.start()
    for _ in range(3):
        grown(running.url)
        assert running.end(end) == code
        running = ServerProcess(store_path, port=port)
    clients.join(2 * PATIENCE_S)
    _, said = other.communicate(timeout=2 * PATIENCE_S)
    assert other.returncode == 0, said
    assert len(raced) == 1
    assert running.end(terminated) == 0
    with fencepost.open(store_path) as direct:
        log = list(direct.read())
    assert check([load(path) for path in sorted(histories.glob("*.history"))], log) == []
    assert all(min(course) >= 0 for course in balances(log).values())


def grown(url: str, by: int = 20) -> None:
    """Wait until clients have appended some more, or have nothing left to do."""
    head = httpx.get(f"{url}/v1/head").json()["head"]
    for _ in range(10):
        if httpx.get(f"{url}/v1/head?after={head + by}&wait_s=0.5", timeout=20).json()["head"] > head + by:
            return


def test_everything_in_flight_is_answered_on_sigterm(store_path: Path) -> None:
    """Requests that have arrived when the signal comes are answered, waiting ones and subscriptions too."""
    answers: list[int] = []
    with ServerProcess(store_path) as running:
        started = threading.Barrier(12)

        def send(number: int) -> None:
            with httpx.Client(base_url=running.url, timeout=30) as http:
                http.get("/healthz")
                started.wait(30)
                if number % 3 == 0:
                    answers.append(http.get("/v1/head?after=999999&wait_s=30").status_code)
                elif number % 3 == 1:
                    with http.stream("GET", "/v1/subscribe") as stream:
                        stream.read()
                        answers.append(stream.status_code)
                else:
                    body = {"events": [{"type": "T", "data": "x" * 1_000} for _ in range(9_000)]}
                    answers.append(http.post("/v1/append", json=body).status_code)

        clients = [threading.Thread(target=send, args=[number]) for number in range(12)]
        for client in clients:
            client.start()
        # Subscriptions and waiting requests are there: then every client has sent something.
        while "fencepost_subscriptions 8" not in httpx.get(f"{running.url}/metrics").text:
            pass
        assert running.end(terminated) == 0
        for client in clients:
            client.join(30)
    assert answers.count(200) >= 8
    with fencepost.open(store_path) as store:
        stored = store.head()
    assert stored == 9_000 * (answers.count(200) - 8)


def test_a_subscription_of_the_client_goes_on_after_a_restart(store_path: Path) -> None:
    port = free_port()
    running = ServerProcess(store_path, port=port)
    seen = []
    with (
        fencepost.open(f"http://127.0.0.1:{port}", patience_s=PATIENCE_S) as store,
        store.subscribe(timeout_s=30) as subscription,
    ):
        for number in range(4):
            store.append([Event("T", data=b"%d" % number, id=uuid4())])
            seen.append(int(next(subscription).data))
            running.end(killed if number % 2 else terminated)
            running = ServerProcess(store_path, port=port)
        store.append([Event("T", data=b"4", id=uuid4())])
        seen.append(int(next(subscription).data))
    running.end(terminated)
    assert seen == [0, 1, 2, 3, 4]


def test_the_log_of_the_server_does_not_show_a_key(store_path: Path, tmp_path: Path) -> None:
    keys = tmp_path / "keys.json"
    made = subprocess.run(
        [sys.executable, "-m", "fencepost.cli", "keys", "add", str(keys), "ada"],
        env=same_path(),
        capture_output=True,
        text=True,
        check=True,
    )
    key = json.loads(made.stdout)["key"]
    with ServerProcess(store_path, "--keys", str(keys), "--log-format", "json", "--access-log") as running:
        headers = {"Authorization": f"Bearer {key}"}
        assert httpx.get(f"{running.url}/v1/head", headers=headers).status_code == 200
        assert httpx.get(f"{running.url}/v1/head?key={key}", headers=headers).status_code == 200
        assert httpx.get(f"{running.url}/{key}", headers=headers).status_code == 404
        assert running.end(terminated) == 0
        running.joined()
    assert any('"/v1/head"' in line for line in running.output)
    assert key not in "".join(running.output)


def test_a_blind_append_that_the_kill_interrupts_is_unknown_or_refused(store_path: Path) -> None:
    with ServerProcess(store_path) as running:
        proxy = FaultProxy(running.port)
        with fencepost.open(proxy.url, patience_s=0.5) as store:
            store.append([Event("Before")])
            running.end(killed)
            with pytest.raises(StoreUnavailable):
                store.append([Event("After")])
        proxy.close()
    with fencepost.open(store_path) as direct:
        assert [event.type for event in direct.read()] == ["Before"]


def main() -> None:
    address, histories = sys.argv[1:]
    with fencepost.open(address, patience_s=PATIENCE_S) as store:
        race(store, name="process.", threads=2, rounds=60, histories=Path(histories), kind=WithIds)


if __name__ == "__main__":
    main()
