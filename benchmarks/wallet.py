"""`make bench-wallet`: the wallet service under load, beside the published figures of another one.

One client process on loopback, as many connections as stated, HTTP/1.1 written by hand so that
the client takes little of the two cores that it shares with the service. For each kind of request:

1. what the service *sustains*, with every connection busy;
2. an open load at the *wanted* rate, the published one times what we want to be better: requests are due at a fixed
   rate whether or not earlier ones were answered, and the time of each counts from when it was due, so a service that
   falls behind cannot hide it;
3. if it sustains more than that, an open load at 80% of what it sustains as well.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from time import monotonic, perf_counter, sleep
from typing import Any
from urllib.request import urlopen

import uvloop
from rich.console import Console
from rich.table import Table
from tests.support.postgres import PostgresServer

import fencepost

from .decisions import BUDGET_US, costs
from .machine import facts

CONNECTIONS = 32
WALLETS = 1_000
SHARE = 0.8  # of what was sustained: a load that leaves room for what no service can help
MAX_LOAD = 0.5  # above this somebody else is using the machine
NAMES = {"postgres": "PostgreSQL", "sqlite": "SQLite", "memory": "In memory"}
REPORT = Path(__file__).parents[1] / "docs/benchmarks/wallet.md"

console = Console(width=200)


@dataclass(frozen=True)
class Published:
    """What the Java service on PostgreSQL of the same design is said to reach, and how far above we want to be."""

    rate: float
    p95_ms: float
    times: float

    @property
    def wanted(self) -> float:
        return self.rate * self.times


PUBLISHED = {
    "creation": Published(44, 500, 20),
    "deposits": Published(350, 200, 3),
    "withdrawals": Published(350, 200, 3),
    "transfers": Published(300, 250, 3),
    "history": Published(1_000, 60, 3),
}


@dataclass(frozen=True)
class Times:
    """How an open load was answered: at which rate in fact, and how long after requests were due."""

    rate: float
    p50_ms: float
    p95_ms: float
    p99_ms: float


@dataclass(frozen=True)
class Result:
    work: str
    sustained: float
    cpu_us: float
    at_wanted: Times
    at_share: Times | None
    failed: int

    @property
    def reaches_the_aim(self) -> bool:
        theirs = PUBLISHED[self.work]
        return self.sustained >= theirs.wanted and self.at_wanted.p95_ms < theirs.p95_ms and not self.failed


class Connection(asyncio.Protocol):
    """Sends one request at a time and tells the status when the answer is complete."""

    def __init__(self, idle: Callable[[Connection], None]) -> None:
        self._idle = idle
        self._data = b""
        self._answered: Callable[[int], None] | None = None

    def connection_made(self, transport: Any) -> None:
        self._transport: asyncio.Transport = transport
        self._idle(self)

    def send(self, request: bytes, answered: Callable[[int], None]) -> None:
        self._answered = answered
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        self._data += data
        head = self._data.find(b"\r\n\r\n")
        if head < 0:
            return
        lower = self._data[:head].lower()
        at = lower.find(b"content-length:")
        assert at >= 0, self._data
        length = int(lower[at + 15 : (lower + b"\r").find(b"\r", at)])
        if len(self._data) < head + 4 + length:
            return
        status, self._data = int(self._data[9:12]), b""
        answered, self._answered = self._answered, None
        assert answered is not None
        answered(status)
        self._idle(self)

    def connection_lost(self, error: Exception | None) -> None:
        assert self._answered is None, f"the service closed a connection in mid request: {error}"

    def close(self) -> None:
        self._transport.close()


class Load:
    """Sends requests over a bounded number of connections: as fast as they are answered, or when they are due."""

    def __init__(self, port: int, requests: Iterator[bytes]) -> None:
        self._port = port
        self._requests = requests
        self._connections: list[Connection] = []
        self._free: deque[Connection] = deque()
        self._due: deque[float] = deque()
        self._saturating = False
        self._idle = asyncio.Event()
        self.times_s: list[float] = []
        self.statuses: Counter[int] = Counter()

    async def __aenter__(self) -> Load:
        loop = asyncio.get_running_loop()
        for _ in range(CONNECTIONS):
            _, made = await loop.create_connection(lambda: Connection(self._on_idle), "127.0.0.1", self._port)
            self._connections.append(made)
        return self

    async def __aexit__(self, *exc: object) -> None:
        for connection in self._connections:
            connection.close()

    async def saturate(self, for_s: float) -> float:
        """Keep every connection busy; the rate that comes of it."""
        began = self._begin()
        self._saturating = True
        while self._free:
            self._send(self._free.popleft(), perf_counter())
        await asyncio.sleep(for_s)
        self._saturating = False
        await self._drained()
        return len(self.times_s) / (perf_counter() - began)

    async def at_rate(self, rate: float, for_s: float) -> float:
        """Send when it is time, whether or not the last one was answered; the rate that was reached."""
        due = began = self._begin()
        while (now := perf_counter()) < began + for_s:
            while due <= now:
                self._due.append(due)
                due += 1 / rate
            self._dispatch()
            await asyncio.sleep(0.001)
        await self._drained()
        return len(self.times_s) / (perf_counter() - began)

    async def send_all(self, number: int) -> None:
        self._due.extend([self._begin()] * number)
        self._dispatch()
        await self._drained()

    def _begin(self) -> float:
        self.times_s, self.statuses = [], Counter()
        return perf_counter()

    async def _drained(self) -> None:
        self._idle.clear()
        if self._due or len(self._free) < CONNECTIONS:
            await self._idle.wait()

    def _on_idle(self, connection: Connection) -> None:
        if self._saturating:
            self._send(connection, perf_counter())
        elif self._due:
            self._send(connection, self._due.popleft())
        else:
            self._free.append(connection)
            if len(self._free) == CONNECTIONS:
                self._idle.set()

    def _dispatch(self) -> None:
        while self._due and self._free:
            self._send(self._free.popleft(), self._due.popleft())

    def _send(self, connection: Connection, due: float) -> None:
        def answered(status: int) -> None:
            self.times_s.append(perf_counter() - due)
            self.statuses[status] += 1

        connection.send(next(self._requests), answered)


def request(method: str, path: str, body: object = None) -> bytes:
    data = b"" if body is None else json.dumps(body).encode()
    head = f"{method} {path} HTTP/1.1\r\nHost: wallet\r\nContent-Type: application/json\r\nContent-Length: {len(data)}"
    return f"{head}\r\n\r\n".encode() + data


numbers = count()
chance = random.Random(7)


def wallet() -> str:
    return f"w{chance.randrange(WALLETS)}"


def openings(prefix: str) -> Iterator[bytes]:
    for number in count():
        yield request("PUT", f"/api/wallets/{prefix}{number}", {"owner": "Ada", "initial_balance": 1_000_000})


def deposits() -> Iterator[bytes]:
    for number in numbers:
        body = {"deposit_id": f"d{number}", "amount": 5, "description": "salary"}
        yield request("POST", f"/api/wallets/{wallet()}/deposits", body)


def withdrawals() -> Iterator[bytes]:
    for number in numbers:
        body = {"withdrawal_id": f"x{number}", "amount": 1, "description": "rent"}
        yield request("POST", f"/api/wallets/{wallet()}/withdrawals", body)


def transfers() -> Iterator[bytes]:
    for number in numbers:
        source, target = chance.sample(range(WALLETS), 2)
        body = {"transfer_id": f"t{number}", "from_wallet_id": f"w{source}", "to_wallet_id": f"w{target}", "amount": 1}
        yield request("POST", "/api/transfers", body)


def histories() -> Iterator[bytes]:
    while True:
        yield request("GET", f"/api/wallets/{wallet()}/events?limit=20")


WORKS: dict[str, Callable[[], Iterator[bytes]]] = {
    "creation": lambda: openings("n"),
    "deposits": deposits,
    "withdrawals": withdrawals,
    "transfers": transfers,
    "history": histories,
}


async def measure(port: int, pid: int, for_s: float) -> list[Result]:
    async with Load(port, openings("w")) as load:
        await load.send_all(WALLETS)
    results = []
    for work, requests in WORKS.items():
        wanted, good = PUBLISHED[work].wanted, 200 if work == "history" else 201
        async with Load(port, requests()) as load:
            await load.saturate(for_s / 6)  # to warm up
            before_s = cpu_s(pid)
            sustained = await load.saturate(for_s / 2)
            cpu_us = (cpu_s(pid) - before_s) / len(load.times_s) * 1e6
            failed = len(load.times_s) - load.statuses[good]
            open_loads = []
            for rate in (wanted, sustained * SHARE) if sustained * SHARE > wanted else (wanted,):
                reached = await load.at_rate(rate, for_s)
                failed += len(load.times_s) - load.statuses[good]
                open_loads.append(Times(reached, *percentiles_ms(load.times_s)))
        at_wanted, at_share = (*open_loads, None)[:2]
        assert at_wanted is not None
        results.append(Result(work, sustained, cpu_us, at_wanted, at_share, failed))
    return results


def percentiles_ms(times_s: list[float]) -> tuple[float, float, float]:
    times = sorted(times_s)
    p50, p95, p99 = (times[int(len(times) * share)] * 1e3 for share in (0.5, 0.95, 0.99))
    return p50, p95, p99


def cpu_s(pid: int) -> float:
    """What the service's processes have used: on a shared machine the steadier figure."""
    group = [int(path.parent.name) for path in Path("/proc").glob("[0-9]*/stat") if _group(path) == pid]
    ticks = 0
    for member in group:
        fields = Path(f"/proc/{member}/stat").read_text().rsplit(")", 1)[1].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def _group(path: Path) -> int:
    try:
        return int(path.read_text().rsplit(")", 1)[1].split()[2])
    except (OSError, IndexError):
        return 0  # it has ended meanwhile


@contextmanager
def service(address: str, workers: int) -> Iterator[tuple[int, int]]:
    """The service's port, and the process group that it is."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    options = ["--store", address, "--port", str(port), "--workers", str(workers), "--quiet"]
    process = subprocess.Popen([sys.executable, "-m", "examples.wallet", *options], start_new_session=True)
    try:
        wait_for(f"http://127.0.0.1:{port}/api/health", process)
        yield port, process.pid
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


def wait_for(url: str, process: subprocess.Popen[bytes]) -> None:
    end = monotonic() + 60
    while process.poll() is None and monotonic() < end:
        try:
            with urlopen(url):
                return
        except OSError:
            sleep(0.1)
    raise RuntimeError(f"the service did not start; its exit code is {process.poll()}")


def on_store(store: str, workers: int, for_s: float) -> list[Result]:
    with ExitStack() as stack:
        if store == "postgres":
            address = stack.enter_context(PostgresServer()).url()
            fencepost.open(address, create=True).close()
        elif store == "sqlite":
            address = stack.enter_context(tempfile.TemporaryDirectory(dir=".")) + "/wallet.db"
        else:
            address = "memory:"
        port, pid = stack.enter_context(service(address, workers))
        return uvloop.run(measure(port, pid, for_s))


HEADING = ["", "published", "p95", "wanted", "sustained", "at the wanted rate: p50", "p95", "p99", "aim", "CPU each"]
HEADING += [f"at {SHARE:.0%} of sustained", "p50", "p95", "p99", "failed"]


def row(each: Result) -> list[str]:
    theirs = PUBLISHED[each.work]
    at_share = ["-"] * 4
    if each.at_share is not None:
        at_share = [f"{each.at_share.rate:,.0f}/s", *milliseconds(each.at_share)]
    return [
        each.work,
        f"{theirs.rate:,.0f}/s",
        f"{theirs.p95_ms:.0f} ms",
        f"{theirs.wanted:,.0f}/s ({theirs.times:.0f}x)",
        f"{each.sustained:,.0f}/s ({each.sustained / theirs.rate:.1f}x)",
        *milliseconds(each.at_wanted),
        "reached" if each.reaches_the_aim else "missed",
        f"{each.cpu_us:,.0f} us",
        *at_share,
        f"{each.failed}",
    ]


def milliseconds(times: Times) -> list[str]:
    return [f"{value:.1f} ms" for value in (times.p50_ms, times.p95_ms, times.p99_ms)]


def report(results: dict[str, list[Result]], options: argparse.Namespace, load_before: float) -> str:
    disturbed = (
        "**The machine was busy with other work: these figures are too low, and its queues too long.** "
        "Measure again on one that is not."
    )
    lines = [
        "# The wallet service under load",
        "",
        "Made by `make bench-wallet`. The published figures are those of a Java service of the same design on",
        "PostgreSQL, on another machine: they give the scale, not a race. Ours shares the cores of one machine with",
        "the client and the database, and all of them together are near what these can do: so the rates of",
        "transfers and histories change from run to run with what else the host has to do. This is one run.",
        "",
        f"- *Sustained*: what was answered with all of {CONNECTIONS} connections busy, for {options.seconds / 2:g} s.",
        f"- *At the wanted rate*: an open load for {options.seconds:g} s. Requests are due at this rate whether or not",
        "  earlier ones were answered, and times count from when a request was due.",
        f"- *At {SHARE:.0%} of sustained*: the same at a higher rate, where more is sustained than wanted.",
        "- *Aim*: the wanted rate is sustained, and at that rate the p95 is below the published one.",
        "- *CPU each*: what the service's own processes used for a request while it was saturated.",
        "",
        *(f"- {name}: {value}" for name, value in machine().items()),
        f"- load of the machine before the measurement: {load_before:.1f}",
        "",
        *([disturbed, ""] if load_before > MAX_LOAD else []),
    ]
    for store, measured in results.items():
        processes = f"{options.workers} processes" if options.workers > 1 else "1 process"
        lines += [f"## {NAMES[store]}, {processes}", ""]
        lines += ["| " + " | ".join(HEADING) + " |", "|---" + "|---:" * (len(HEADING) - 1) + "|"]
        lines += ["| " + " | ".join(row(each)) + " |" for each in measured]
        lines.append("")
    return "\n".join([*lines, *the_layer()])


def the_layer() -> Iterator[str]:
    """What of a decision is the layer's, without HTTP, network and disk."""
    yield "## The layer alone"
    yield ""
    yield "CPU time of a decision over the same store calls written by hand, on an engine that answers at once"
    yield f"(`python -m benchmarks.decisions`); at most {BUDGET_US} us are wanted."
    yield ""
    yield "| decision | by hand | `@decision` | the layer |"
    yield "|---|---:|---:|---:|"
    for each in costs():
        yield f"| {each.work} | {each.by_hand_us:.1f} us | {each.decision_us:.1f} us | {each.layer_us:.1f} us |"
    yield ""


def machine() -> dict[str, str]:
    return facts("fastapi", "uvicorn", "uvloop", "httptools", "pydantic", "msgspec", "apsw", "psycopg")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.wallet")
    parser.add_argument("--seconds", type=float, default=4.0, help="of each open load")
    parser.add_argument("--stores", nargs="+", default=["postgres", "sqlite"], choices=["postgres", "sqlite", "memory"])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--print-only", action="store_true", help=f"leave {REPORT.name} as it is")
    options = parser.parse_args()
    load_before = os.getloadavg()[0]
    results = {}
    for store in options.stores:
        results[store] = on_store(store, options.workers, options.seconds)
        shown = Table(*HEADING, title=f"{store}, {options.workers} process(es)")
        for each in results[store]:
            shown.add_row(*row(each))
        console.print(shown)
    if not options.print_only:
        REPORT.write_text(report(results, options, load_before))
        console.print(f"written to {REPORT}")


if __name__ == "__main__":
    main()
