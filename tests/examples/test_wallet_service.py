"""The wallet service as it is run: several processes on one store, under concurrent load."""

from __future__ import annotations

import json
import os
import random
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from examples.wallet.domain import Balance
from tests.decisions.addresses import new_address
from tests.examples.serving import serving

import fencepost
from fencepost.decisions import project

WALLETS = [f"w{number}" for number in range(5)]
BEGIN_WITH = 300
CLIENTS = 8
REQUESTS = 15


@dataclass(frozen=True)
class Service:
    url: str
    address: str


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def service(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Two processes that serve one store."""
    address = new_address(request, tmp_path_factory.mktemp("wallets"))
    with serving(address, workers=2) as url:
        yield Service(url, address)


def test_money_is_conserved_and_nothing_is_applied_twice(service: Service) -> None:
    url = service.url
    for name in WALLETS:
        opened = httpx.put(f"{url}/api/wallets/{name}", json={"owner": name, "initial_balance": BEGIN_WITH})
        assert opened.status_code == 201
    with ThreadPoolExecutor(CLIENTS) as pool:
        statuses = sum(pool.map(lambda client: transfer_at_random(url, client), range(CLIENTS)), Counter())
    told = {name: httpx.get(f"{url}/api/wallets/{name}").json()["balance"] for name in WALLETS}
    with fencepost.open(service.address) as store:
        log = list(store.read())
        balances = {name: project(store, Balance(name)).amount for name in WALLETS}
    assert told == balances
    assert sum(balances.values()) == BEGIN_WITH * len(WALLETS)
    wallets = [Balance(name) for name in WALLETS]
    assert all(wallet.amount >= 0 for event in log for wallet in wallets if wallet.apply(event))
    applied = Counter(tag for event in log for tag in event.tags if tag.startswith("transfer_id:"))
    assert set(applied.values()) == {1}
    assert statuses[201] == len(applied)
    assert set(statuses) == {200, 201, 422}


def transfer_at_random(url: str, client: int) -> Counter[int]:
    """Statuses of transfers between few wallets; each request is sent by two clients."""
    chance = random.Random(client // 2)
    statuses: Counter[int] = Counter()
    with httpx.Client(base_url=url, timeout=60) as http:
        for number in range(REQUESTS):
            source, target = chance.sample(WALLETS, 2)
            body = {
                "transfer_id": f"{client // 2}-{number}",
                "from_wallet_id": source,
                "to_wallet_id": target,
                "amount": chance.randint(1, 250),
            }
            response = http.post("/api/transfers", json=body)
            while response.status_code == 503:  # it lost too many races in a row, and says so
                response = http.post("/api/transfers", json=body)
            statuses[response.status_code] += 1
    return statuses


def test_deposits_to_one_wallet_do_not_conflict(service: Service) -> None:
    url = service.url
    httpx.put(f"{url}/api/wallets/w", json={"owner": "Ada", "initial_balance": 0})

    def deposit(client: int) -> Counter[int]:
        with httpx.Client(base_url=url, timeout=60) as http:
            bodies = [{"deposit_id": f"{client}-{number}", "amount": 1} for number in range(REQUESTS)]
            return Counter(http.post("/api/wallets/w/deposits", json=body).status_code for body in bodies)

    with ThreadPoolExecutor(CLIENTS) as pool:
        statuses = sum(pool.map(deposit, range(CLIENTS)), Counter())
    # None was refused as busy, though all were for one wallet: they never met in a conflict.
    assert statuses == {201: CLIENTS * REQUESTS}
    assert httpx.get(f"{url}/api/wallets/w").json()["balance"] == CLIENTS * REQUESTS


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serving(str(tmp_path_factory.mktemp("live") / "wallet.db")) as url:
        yield url


def test_the_live_stream_tells_the_past_and_then_what_happens(live: str) -> None:
    opened = httpx.put(f"{live}/api/wallets/ada", json={"owner": "Ada", "initial_balance": 100}).json()
    with httpx.stream("GET", f"{live}/api/live", params={"after": opened["position"] - 1}, timeout=30) as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        events = messages(stream)
        position = opened.pop("position")
        number, first = next(events)
        assert first.pop("recorded_at")
        assert (number, first) == (position, {**opened, "position": position})
        httpx.post(f"{live}/api/wallets/ada/withdrawals", json={"withdrawal_id": "x", "amount": 30})
        following, event = next(events)
        assert (following, event["type"], event["amount"]) == (position + 1, "WithdrawalMade", 30)


def test_the_live_stream_goes_on_after_the_last_event_seen(live: str) -> None:
    positions = [
        httpx.put(f"{live}/api/wallets/{name}", json={"owner": name}).json()["position"]
        for name in ("bob", "eve", "kim")
    ]
    with httpx.stream("GET", f"{live}/api/live", headers={"Last-Event-ID": str(positions[1])}, timeout=30) as stream:
        position, event = next(messages(stream))
        assert (position, event["wallet_id"]) == (positions[2], "kim")


def messages(stream: httpx.Response) -> Iterator[tuple[int, dict[str, object]]]:
    position = 0
    for line in stream.iter_lines():
        if line.startswith("id: "):
            position = int(line[4:])
        elif line.startswith("data: "):
            yield position, json.loads(line[6:])


def test_a_body_without_an_end_is_refused_while_it_comes_and_takes_no_memory(live: str) -> None:
    httpx.put(f"{live}/api/wallets/big", json={"owner": "Big"})
    before = memory_of(live)
    sent = 0

    def pieces() -> Iterator[bytes]:
        nonlocal sent
        for _ in range(300):
            sent += 2**20
            yield b" " * 2**20

    response = httpx.post(
        f"{live}/api/wallets/big/deposits", content=pieces(), headers={"Content-Type": "application/json"}, timeout=60
    )
    assert (response.status_code, response.json()["type"]) == (413, "/problems/too-large")
    assert memory_of(live) - before < 32 * 2**20
    assert httpx.get(f"{live}/api/wallets/big").json()["balance"] == 0


def memory_of(url: str) -> int:
    """The most memory that the process which serves the URL has ever had, in bytes."""
    port = int(url.rpartition(":")[2])
    inodes = {
        line.split()[9]
        for line in Path("/proc/net/tcp").read_text().splitlines()[1:]
        if line.split()[1].endswith(f":{port:04X}") and line.split()[3] == "0A"
    }
    for process in Path("/proc").iterdir():
        if process.name.isdigit() and any(f"socket:[{inode}]" in sockets(process) for inode in inodes):
            peak = next(line for line in (process / "status").read_text().splitlines() if line.startswith("VmHWM"))
            return int(peak.split()[1]) * 1024
    raise AssertionError(f"nothing listens on {port}")


def sockets(process: Path) -> set[str]:
    with suppress(OSError):
        return {os.readlink(handle) for handle in (process / "fd").iterdir()}
    return set()
