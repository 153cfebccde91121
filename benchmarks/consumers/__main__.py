"""Consumers beside a plain read, read models beside those of `eventsourcing`, wake-up, and what idle consumers cost.

Every figure of a run is from the same machine and the same minutes. Ratios count, since the disk and the other
programs of a machine differ.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median, quantiles
from time import perf_counter, process_time, sleep
from typing import NamedTuple

from tests.support.postgres import PostgresServer

import fencepost
from benchmarks.consumers import peer
from benchmarks.machine import facts
from fencepost import EventStore
from fencepost.consumers import Consumer, ReadModel, consumer, start
from fencepost.decisions import Projection, Tag, encode, event, on

PAGE = Path(__file__).parents[2] / "docs/benchmarks/consumers.md"
EVENTS = 400_000  # handling them takes much longer than taking the lease
KEYS = 1_000
ROUNDS = 5
WAKE_UPS = 300
IDLE = 100
IDLE_S = 10.0
SETTLED_S = 8.0  # until idle consumers have saved their cursors
PEER_EVENTS = 2_000  # fewer, since it commits each event by itself


@event
class Added:
    key: Tag
    amount: int


class Total(Projection):
    key: Tag
    total: int = 0

    @on
    def _(self, event: Added) -> None:
        self.total += event.amount


def fill(store: EventStore) -> None:
    for begin in range(0, EVENTS, 1_000):
        store.append([encode(Added(f"k{number % KEYS}", 1)) for number in range(begin, begin + 1_000)])


def rate(work: Callable[[], None]) -> float:
    began = perf_counter()
    work()
    return EVENTS / (perf_counter() - began)


def plain_read(store: EventStore) -> float:
    types = {"Added"}
    return rate(lambda: [None for _ in store.read(fencepost.Query.of(types=types))] and None)


def caught_up(store: EventStore, chosen: Consumer) -> float:
    with start(store, chosen) as runner:
        following = runner.followings[0]

        def work() -> None:
            while following.position < EVENTS:
                sleep(0.01)

        return rate(work)


def no_op(store: EventStore, name: str) -> Consumer:
    @consumer(name)
    def handler(event: Added) -> None: ...

    return handler


def wake_up_ms(store: EventStore) -> list[float]:
    seen: list[float] = []

    @consumer("wake-up", start_after=store.head())
    def handler(event: Added) -> None:
        seen.append(perf_counter())

    taken = []
    with start(store, handler):
        for number in range(WAKE_UPS):
            store.append([encode(Added("k", 1))])
            began = perf_counter()
            while len(seen) <= number:
                sleep(0.0002)
            taken.append(max(0.0, seen[-1] - began) * 1_000)
    return taken


def idle_share(store: EventStore) -> float:
    head = store.head()
    made = []
    for number in range(IDLE):

        @consumer(f"idle-{number}", start_after=head)
        def handler(event: Added) -> None: ...

        made.append(handler)
    with start(store, *made) as runner:
        while not all(each.worker is not None and each.worker.idle for each in runner.followings):
            sleep(0.05)
        sleep(SETTLED_S)
        before = process_time()
        sleep(IDLE_S)
        return (process_time() - before) / IDLE_S


class Row(NamedTuple):
    work: str
    unit: str
    figure: float
    aim: float | None = None
    at_most: bool = False  # whether the aim is an upper bound

    def __str__(self) -> str:
        digits = 0 if self.figure >= 1_000 else 2 if self.figure >= 0.1 else 4
        aim = ""
        if self.aim is not None:
            missed = self.figure > self.aim if self.at_most else self.figure < self.aim
            aim = f"{'≤' if self.at_most else '≥'} {self.aim:,g}{' (missed)' if missed else ''}"
        return f"| {self.work} | {self.unit} | {self.figure:,.{digits}f} | {aim} |"


def measure() -> Iterator[Row]:
    with (
        tempfile.TemporaryDirectory(dir=".", prefix=".bench-") as folder,
        PostgresServer() as server,
        fencepost.open(Path(folder) / "log.db") as store,
    ):
        fill(store)
        rounds = [(plain_read(store), caught_up(store, no_op(store, f"no-op-{n}"))) for n in range(ROUNDS)]
        yield Row("plain read", "events/s", median(read for read, _ in rounds))
        yield Row("consumer whose handler does nothing", "events/s", median(consumed for _, consumed in rounds))
        ratio = median(consumed / read for read, consumed in rounds)
        yield Row("that consumer beside the plain read of the same round", "ratio", ratio, 0.6)
        sqlite = ReadModel(Total, into=str(Path(folder) / "views.db"), table="totals")
        yield Row("read model into SQLite", "events/s", caught_up(store, sqlite), 20_000)
        postgres = ReadModel(Total, into=server.url(), table="totals")
        yield Row("read model into PostgreSQL", "events/s", caught_up(store, postgres), 10_000)
        peers = peer.rate(server.url(), PEER_EVENTS, KEYS)
        yield Row("projection runner of eventsourcing into PostgreSQL", "events/s", peers)
        wake_ups = wake_up_ms(store)
        yield Row("wake-up, median", "ms", median(wake_ups))
        yield Row("wake-up, 99th percentile", "ms", quantiles(wake_ups, n=100)[98], 20, at_most=True)
        yield Row(f"{IDLE} idle consumers", "share of a core", idle_share(store), 0.02, at_most=True)


INTRODUCTION = """\
# Consumers

Made by `make bench-consumers`: consumers of a log in an SQLite file, in one process. A plain read and a consumer
whose handler does nothing take turns, and the ratio is the median of the rounds. Read models keep one row for each
key. The projection runner of `eventsourcing`, which commits every event by itself, runs beside them with its own store
and table in the same PostgreSQL server. Wake-up is the time from the return of an append to the call of the handler.
"""


def main() -> None:
    load = os.getloadavg()[0]
    machine = {
        **facts("apsw", "psycopg", "eventsourcing"),
        "events": f"{EVENTS:,}",
        "keys": f"{KEYS:,}",
        "load before the run": f"{load:.1f}",
    }
    rows = []
    for row in measure():
        rows.append(row)
        print(row, flush=True)
    parts = [
        INTRODUCTION.strip(),
        "\n".join(["| machine | |", "|---|---|", *(f"| {name} | {value} |" for name, value in machine.items())]),
        "\n".join(["| work | unit | figure | aim |", "|---|---|---:|---:|", *map(str, rows)]),
    ]
    PAGE.write_text("\n\n".join(parts) + "\n")


if __name__ == "__main__":
    main()
