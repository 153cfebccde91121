"""`make bench-server`: `fencepost serve` beside the UmaDB server, on loopback, driven by the same `umadb` client.

Both servers run at the same time over stores that hold the same events. In each round the two are measured one right
after the other, and take turns in being the first. A figure is the median of the rounds, and a ratio is the median of
the ratios of the rounds, because other work on the machine disturbs both figures of a round alike. The client takes a
part of the same cores. What has no counterpart there (subscriptions, memory, export and copy) is measured alone,
against an aim of its own.

    python -m benchmarks.server --events 20000 --seconds 0.5 --rounds 1 --page /tmp/server.md

FENCEPOST_BENCH_EVENTS=1000000 measures with a store of a million events.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import resource
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from statistics import median
from time import perf_counter, sleep
from typing import NamedTuple

import umadb
from rich.console import Console
from tests.support.postgres import PostgresServer

import fencepost
from fencepost import aio

from .embedded import fact
from .machine import facts
from .peers import Caller, Fact, Umadb, UmadbCaller, die_with_parent, fencepost_event
from .server_report import Alone, Beside, write_page

PAGE = Path(__file__).parents[1] / "docs/benchmarks/server.md"
EVENTS = int(os.environ.get("FENCEPOST_BENCH_EVENTS", "200000"))
FILL_EVENTS = 1_000
CALLERS = {1: 1.0, 16: 0.7, 64: 0.5}  # how many callers, and the ratio that is wanted
TASKS = 64
SUBSCRIBERS = 1_000
WAKE_UPS = 300
REQUESTS = 180_000  # 50 a second for an hour
EVENTS_OF_A_WALLET = 10

console = Console(width=160)
numbers = count(1_000_000_000)  # of operations that the stores do not hold before


class Served:
    """`fencepost serve` in a process of its own."""

    name = "Fencepost"

    def __init__(self, path: Path) -> None:
        self.path = path
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self._grpc = probe.getsockname()[1]
        command = [sys.executable, "-m", "fencepost.cli", "serve", str(path), "--port", "0"]
        # No limit of the server must decide a figure.
        limits = ["--max-subscriptions", "2000", "--max-connections", "4000"]
        self._process = subprocess.Popen(
            [*command, *limits, "--grpc-port", str(self._grpc)],
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=die_with_parent,
        )
        assert self._process.stderr is not None
        for line in self._process.stderr:
            if line.startswith("listening on "):
                self.port = int(line.rpartition(":")[2])
                break
        else:
            raise RuntimeError("fencepost serve did not start")
        threading.Thread(target=self._process.stderr.read, daemon=True).start()  # so that its log cannot block it
        self._wait_for_grpc()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def process_id(self) -> int:
        return self._process.pid

    def caller(self) -> UmadbCaller:
        return UmadbCaller(umadb.Client(f"http://127.0.0.1:{self._grpc}"))

    def resident_mb(self) -> float:
        for line in Path(f"/proc/{self._process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / 1024
        raise RuntimeError("the kernel does not say how much memory the server has")

    def close(self) -> None:
        self._process.terminate()
        self._process.wait()

    def _wait_for_grpc(self) -> None:
        for attempt in range(200):
            try:
                self.caller().head()
                return
            except Exception:
                if attempt == 199:
                    raise
                sleep(0.05)


Peer = Served | Umadb


class Measured(NamedTuple):
    done: int  # units of work
    seconds: float

    @property
    def rate(self) -> float:
        return self.done / self.seconds


def fill(path: Path, theirs: Umadb, events: int) -> None:
    """The same events into both stores."""
    caller = theirs.caller()
    with fencepost.open(path) as ours:
        for first in range(0, events, FILL_EVENTS):
            batch = [numbered(number, events) for number in range(first, min(first + FILL_EVENTS, events))]
            ours.append([fencepost_event(each) for each in batch])
            caller.append(batch)


def numbered(number: int, events: int) -> Fact:
    return fact(number, number % (events // EVENTS_OF_A_WALLET))


def rate(peer: Peer, callers: int, seconds: float, work: Callable[[Caller], int]) -> Measured:
    """How much work `callers` threads do, each with a client of its own."""
    done = [0] * callers
    clients = [peer.caller() for _ in range(callers)]
    start = threading.Barrier(callers + 1)
    ends = [0.0]

    def run(index: int) -> None:
        client = clients[index]
        work(client)  # connects
        start.wait()
        while perf_counter() < ends[0]:
            done[index] += work(client)

    threads = [threading.Thread(target=run, args=(index,)) for index in range(callers)]
    for thread in threads:
        thread.start()
    ends[0] = perf_counter() + 3600  # until all are connected
    start.wait()
    began = perf_counter()
    ends[0] = began + seconds
    for thread in threads:
        thread.join()
    return Measured(sum(done), perf_counter() - began)


def conditional_append(caller: Caller) -> int:
    """One event, if there is no event about its operation yet: the condition always holds."""
    number = next(numbers)
    if not caller.append_if([fact(number)], [], [f"operation:{number}"], 0):
        raise RuntimeError("a condition failed that must hold")
    return 1


def read_wallet(events: int) -> Callable[[Caller], int]:
    wallets = count()

    def read(caller: Caller) -> int:
        found, _ = caller.read([], [f"wallet:{next(wallets) * 7919 % (events // EVENTS_OF_A_WALLET)}"])
        if found < EVENTS_OF_A_WALLET:
            raise RuntimeError(f"a wallet has {found} events")
        return 1

    return read


def read_all(peer: Peer) -> Measured:
    caller = peer.caller()
    began = perf_counter()
    found = caller.read_all()
    return Measured(found, perf_counter() - began)


def beside(
    work: str, unit: str, wanted: float, peers: tuple[Served, Umadb], measure: Callable[[Peer], Measured], rounds: int
) -> Beside:
    """The figures of both peers in interleaved rounds."""
    ours, theirs = peers
    return in_turns(
        work,
        unit,
        wanted,
        rounds,
        (lambda: measure(ours), ours.process_id),
        (lambda: measure(theirs), theirs.process_id),
    )


Side = tuple[Callable[[], Measured], int]  # how to measure, and the process whose time counts


def in_turns(work: str, unit: str, wanted: float | None, rounds: int, first: Side, second: Side) -> Beside:
    figures: list[list[float]] = [[], []]
    times: list[list[float]] = [[], []]
    for number in range(rounds):
        for side in (0, 1) if number % 2 == 0 else (1, 0):
            measure, process_id = (first, second)[side]
            before_us = processor_us(process_id)
            measured = measure()
            figures[side].append(measured.rate)
            times[side].append((processor_us(process_id) - before_us) / measured.done)
    ratio = median(ours / theirs for ours, theirs in zip(*figures, strict=True))
    used = median(times[0]), median(times[1])
    row = Beside(work, unit, median(figures[0]), median(figures[1]), ratio, wanted, used)
    console.print(str(row))
    return row


def processor_us(process_id: int) -> float:
    """The processor time that the process has used."""
    fields = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK") * 1e6


def read_all_over_http(url: str) -> Measured:
    with fencepost.open(url) as store:
        began = perf_counter()
        found = sum(1 for _ in store.read())
        return Measured(found, perf_counter() - began)


async def http_appends(url: str, seconds: float) -> Measured:
    """Conditional appends by tasks that share one client."""
    done = 0

    async with aio.open(url) as store:
        await store.head()
        ends = perf_counter() + seconds

        async def run() -> None:
            nonlocal done
            while perf_counter() < ends:
                number = next(numbers)
                query = fencepost.Query.of(tags=[f"operation:{number}"])
                await store.append([fencepost_event(fact(number))], fencepost.AppendCondition(query))
                done += 1

        began = perf_counter()
        await asyncio.gather(*(run() for _ in range(TASKS)))
        return Measured(done, perf_counter() - began)


def wake_ups(url: str) -> float:
    """The 99th percentile of the milliseconds between the start of an append and its arrival at a subscriber."""
    taken: list[float] = []
    with fencepost.open(url) as writer, fencepost.open(url) as reader:
        subscription = reader.subscribe(after=writer.head())

        def follow() -> None:
            for event in subscription:
                taken.append(perf_counter() - float(event.data))
                if len(taken) == WAKE_UPS:
                    return

        follower = threading.Thread(target=follow)
        follower.start()
        sleep(0.5)  # let it catch up, so that each append finds it waiting
        for _ in range(WAKE_UPS):
            writer.append([fencepost.Event("Woken", data=str(perf_counter()).encode())])
            sleep(0.01)
        follower.join(60)
        if follower.is_alive():
            raise RuntimeError(f"only {len(taken)} of {WAKE_UPS} events arrived")
    return sorted(taken)[int(len(taken) * 0.99)] * 1e3


def memory_with_subscribers(served: Served) -> float:
    """Megabytes of the server while subscribers wait and nothing happens."""
    head = served.caller().head()
    with ExitStack() as stack:
        for _ in range(SUBSCRIBERS):
            connection = stack.enter_context(socket.create_connection(("127.0.0.1", served.port), timeout=30))
            connection.sendall(f"GET /v1/subscribe?after={head} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            if b" 200 " not in connection.recv(4096):
                raise RuntimeError("the server refused a subscription")
        return served.resident_mb()


async def requests(url: str, number: int) -> None:
    """Conditional appends, each followed by a read of what it stored, over HTTP."""
    left = iter(range(number // 2))
    async with aio.open(url) as store:

        async def run() -> None:
            for _ in left:
                operation = next(numbers)
                query = fencepost.Query.of(tags={f"operation:{operation}"})
                condition = fencepost.AppendCondition(query)
                placed = await store.append([fencepost_event(fact(operation))], condition)
                async for event in await store.read(query):
                    assert event.position == placed.last

        await asyncio.gather(*(run() for _ in range(TASKS)))


def growth_of_memory(served: Served, number: int) -> float:
    """Megabytes that the server gains during the last three quarters of `number` requests."""
    quarters = []
    for _ in range(4):
        asyncio.run(requests(served.url, number // 4))
        quarters.append(served.resident_mb())
    return quarters[-1] - quarters[0]


def command_rates(events: int, *arguments: str) -> tuple[float, float]:
    """Events a second of a command, and a second of its processor time; the start of the process is included."""
    began, before = perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-m", "fencepost.cli", *arguments], check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    processor_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return events / (perf_counter() - began), events / processor_s


def copies(path: Path, folder: Path, rounds: int) -> list[Alone]:
    """Rates of export and copy."""
    with fencepost.open(path) as store:
        events = store.head()

    def measured(work: str, make: Callable[[int], Sequence[str]], wanted: float | None = None) -> list[Alone]:
        rates = [command_rates(events, *make(number)) for number in range(rounds)]
        return [
            Alone(work, "events/s", median(rate for rate, _ in rates), wanted),
            Alone(f"{work}, in a second of processor time", "events", median(rate for _, rate in rates)),
        ]

    found = measured("export to a file", lambda number: ("export", str(path), str(folder / f"{number}.jsonl")), 150_000)
    found += measured(
        "copy SQLite to SQLite, verified", lambda number: ("copy", str(path), str(folder / f"{number}.db"))
    )
    with PostgresServer() as server:
        urls = [f"{server.url()}{'&' if '?' in server.url() else '?'}schema=copy_{number}" for number in range(rounds)]
        for url in urls:
            fencepost.open(url, create=True).close()
        found += measured(
            "copy SQLite to PostgreSQL", lambda number: ("copy", str(path), urls[number], "--no-verify"), 30_000
        )
        found += measured(
            "copy PostgreSQL to SQLite, verified",
            lambda number: ("copy", urls[number], str(folder / f"back-{number}.db")),
        )
    return found


def measure(folder: Path, options: argparse.Namespace) -> tuple[list[Beside], list[Beside], list[Alone]]:
    theirs = Umadb(folder)
    path = folder / "fencepost.db"
    fill(path, theirs, options.events)
    ours = Served(path)
    peers = (ours, theirs)
    rows, http_rows, alone = [], [], []
    try:
        empty_mb = ours.resident_mb()
        for callers, wanted in CALLERS.items():
            name = f"conditional appends, {callers} {'caller' if callers == 1 else 'callers'}"
            work = lambda peer, callers=callers: rate(peer, callers, options.seconds, conditional_append)  # noqa: E731
            rows.append(beside(name, "appends/s", wanted, peers, work, options.rounds))
        for callers in (1, 16):
            name = f"reads of {EVENTS_OF_A_WALLET} events by tag, {callers} {'caller' if callers == 1 else 'callers'}"
            reading = read_wallet(options.events)
            work = lambda peer, callers=callers: rate(peer, callers, options.seconds, reading)  # noqa: B023, E731
            rows.append(beside(name, "reads/s", 1.0, peers, work, options.rounds))
        rows.append(beside(f"read of all {options.events:,} events", "events/s", 0.5, peers, read_all, options.rounds))
        theirs.close()
        grpc_appends = lambda: rate(ours, TASKS, options.seconds, conditional_append)  # noqa: E731
        http_rows.append(
            in_turns(
                f"conditional appends over HTTP, {TASKS} tasks of our client",
                "appends/s",
                1.0,
                options.rounds,
                (lambda: asyncio.run(http_appends(ours.url, options.seconds)), ours.process_id),
                (grpc_appends, ours.process_id),
            )
        )
        http_rows.append(
            in_turns(
                "read of all events over HTTP, our client",
                "events/s",
                None,
                options.rounds,
                (lambda: read_all_over_http(ours.url), ours.process_id),
                (lambda: read_all(ours), ours.process_id),
            )
        )
        alone.append(Alone("wake-up of a subscriber, p99", "ms", wake_ups(ours.url), 20, less_is_better=True))
        alone.append(Alone("memory of the server when it has started", "MB", empty_mb))
        alone.append(Alone("memory after all of this", "MB", ours.resident_mb()))
        alone.append(
            Alone(f"memory with {SUBSCRIBERS:,} idle subscribers", "MB", memory_with_subscribers(ours), 300, True)
        )
        if options.requests:
            work = f"growth of memory during the last three quarters of {options.requests:,} requests"
            alone.append(Alone(work, "MB", growth_of_memory(ours, options.requests), 10, less_is_better=True))
    finally:
        ours.close()
        theirs.close()
    alone += copies(path, folder, options.rounds)
    for each in alone:
        console.print(str(each))
    return rows, http_rows, alone


def main() -> None:
    parser = argparse.ArgumentParser(description="fencepost serve beside the UmaDB server")
    parser.add_argument("--events", type=int, default=EVENTS, help="events in the stores")
    parser.add_argument("--seconds", type=float, default=3.0, help="length of a round")
    parser.add_argument("--rounds", type=int, default=3, help="rounds, of which the median counts")
    parser.add_argument("--requests", type=int, default=REQUESTS, help="requests over which memory must not grow")
    parser.add_argument("--page", type=Path, default=PAGE, help="the page to write")
    options = parser.parse_args()
    load = os.getloadavg()[0]
    machine = facts("umadb", "grpcio", "protobuf", "uvicorn", "uvloop", "httptools", "msgspec", "apsw")
    with tempfile.TemporaryDirectory(dir=".", prefix=".bench-server-") as folder:
        rows, http_rows, alone = measure(Path(folder), options)
    sizes = {"events": options.events, "rounds": options.rounds, "seconds of a round": options.seconds}
    write_page(options.page, machine, load, sizes, rows, http_rows, alone)
    console.print(f"{options.page} is written.")


if __name__ == "__main__":
    main()
