"""Compare versions of Fencepost with each other: the same work, in turns, as ratios.

    git worktree add /tmp/before v0.1.0
    python -m benchmarks.versions --source before=/tmp/before/src --source now=src

Each round of each version runs in a process of its own, right after the round of the other version, so that a
disturbance of the machine hits both. Printed are the best round of each version and the ratio of every later version to
the first: of the rate, and of the CPU time for each operation, which a busy machine distorts less. CPU time is that of
this process; the PostgreSQL server's is not in it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from itertools import count
from time import perf_counter, process_time
from typing import Any, NamedTuple

from .retries import addresses

WALLETS = 1_000
STORED = 100_000  # events that are there before anything is measured
ROUNDS = 5
SECONDS = 1.0

numbers = count(1)


class Measured(NamedTuple):
    """What one round of one work gave."""

    per_second: float
    cpu_us: float


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare versions of Fencepost.")
    parser.add_argument("--source", action="append", help="NAME=PATH of a source folder", default=[])
    parser.add_argument("--engine", action="append", choices=("SQLite", "PostgreSQL"), help="default: both")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--measure", metavar="ADDRESS", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(dict(measure(options.measure))))
        return
    sources = dict(each.split("=", 1) for each in options.source)
    if len(sources) < 2:
        parser.error("name at least two versions to compare: --source before=/tmp/before/src --source now=src")
    for engine in options.engine or ("SQLite", "PostgreSQL"):
        report(engine, in_turns(engine, sources, options.rounds))


def in_turns(engine: str, sources: dict[str, str], rounds: int) -> dict[str, list[dict[str, Measured]]]:
    """The rounds of each version: for each work, what was measured."""
    results: dict[str, list[dict[str, Measured]]] = {name: [] for name in sources}
    with addresses(engine) as new_address:
        for number in range(rounds):
            names = list(sources) if number % 2 == 0 else list(reversed(sources))
            for name in names:
                command = [sys.executable, "-m", "benchmarks.versions", "--measure", new_address()]
                environment = {**os.environ, "PYTHONPATH": sources[name]}
                done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True)
                results[name].append({work: Measured(*each) for work, each in json.loads(done.stdout).items()})
    return results


def report(engine: str, results: dict[str, list[dict[str, Measured]]]) -> None:
    first, *others = results
    print(f"\n{engine}\n")
    print("| work | version | per s | ratio | CPU us | ratio |\n|---|---|---:|---:|---:|---:|")
    for work in results[first][0]:
        best = {name: best_of([each[work] for each in rounds]) for name, rounds in results.items()}
        print(f"| {work} | {first} | {best[first].per_second:,.0f} | | {best[first].cpu_us:,.1f} | |")
        for name in others:
            rate = best[name].per_second / best[first].per_second
            cpu = best[name].cpu_us / best[first].cpu_us
            print(f"| | {name} | {best[name].per_second:,.0f} | {rate:.2f}x | {best[name].cpu_us:,.1f} | {cpu:.2f}x |")
    sys.stdout.flush()


def best_of(rounds: list[Measured]) -> Measured:
    return Measured(max(each.per_second for each in rounds), min(each.cpu_us for each in rounds))


def measure(address: str) -> Iterator[tuple[str, Measured]]:
    """Do all works in this process, with whatever version it imports."""
    import fencepost
    import fencepost.aio

    if address.startswith("postgresql:"):
        from fencepost.engines.postgres import install

        database, _, schema = address.partition("&schema=")  # an address with a schema is not known to every version
        install(database, schema)
    with fencepost.open(address) as store:
        began, cpu = perf_counter(), process_time()
        for _ in range(STORED // 1_000):
            store.append([event() for _ in range(1_000)])
        yield "bulk append, events", Measured(STORED / (perf_counter() - began), (process_time() - cpu) / STORED * 1e6)
        yield "read all, events", timed(lambda: sum(1 for _ in store.read()), most=3)
        yield "read by tag", timed(lambda: read_wallet(store))
        for callers in (1, 16):
            yield f"conditional append, {callers} threads", in_threads(callers, lambda: append_if(store, store.head()))
            yield f"decision, {callers} threads", in_threads(callers, lambda: decide(store))
    yield "conditional append, 64 tasks", asyncio.run(in_tasks(address, 64))


def event(wallet: int | None = None) -> Any:
    import fencepost

    number = next(numbers)
    tags = {f"wallet:{number % WALLETS if wallet is None else wallet}", f"branch:{number % 50}", f"operation:{number}"}
    return fencepost.Event(f"Type{number % 4}", tags=tags, data=b'{"amount": %d, "note": "%s"}' % (number, b"x" * 170))


def of_wallet(wallet: int) -> Any:
    import fencepost

    return fencepost.Query.of(tags={f"wallet:{wallet}"})


def append_if(store: Any, after: int) -> int:
    import fencepost

    condition = fencepost.AppendCondition(of_wallet(WALLETS + next(numbers)), after=after)
    store.append([event()], condition)
    return 1


def read_wallet(store: Any, wallet: int = 7) -> int:
    sum(1 for _ in store.read(of_wallet(wallet), limit=100))
    return 1


def decide(store: Any) -> int:
    import fencepost

    wallet = WALLETS + next(numbers)
    reading = store.read(of_wallet(wallet))
    assert not list(reading)
    store.append([event(wallet)], fencepost.AppendCondition(of_wallet(wallet), after=reading.head))
    return 1


def timed(work: Callable[[], int], most: int | None = None) -> Measured:
    """Repeat the work for a while, or `most` times."""
    done, rounds, began, cpu = 0, 0, perf_counter(), process_time()
    while perf_counter() - began < SECONDS and (most is None or rounds < most):
        done += work()
        rounds += 1
    return Measured(done / (perf_counter() - began), (process_time() - cpu) / done * 1e6)


def in_threads(callers: int, work: Callable[[], int]) -> Measured:
    counts = [0] * callers
    began, cpu = perf_counter(), process_time()

    def repeat(caller: int) -> None:
        while perf_counter() - began < SECONDS:
            counts[caller] += work()

    threads = [threading.Thread(target=repeat, args=(caller,)) for caller in range(callers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return Measured(sum(counts) / (perf_counter() - began), (process_time() - cpu) / sum(counts) * 1e6)


async def in_tasks(address: str, callers: int) -> Measured:
    import fencepost
    import fencepost.aio

    counts = [0] * callers
    async with fencepost.aio.open(address) as store:
        after = await store.head()
        began, cpu = perf_counter(), process_time()

        async def repeat(caller: int) -> None:
            while perf_counter() - began < SECONDS:
                condition = fencepost.AppendCondition(of_wallet(WALLETS + next(numbers)), after=after)
                await store.append([event()], condition)
                counts[caller] += 1

        await asyncio.gather(*(repeat(caller) for caller in range(callers)))
    return Measured(sum(counts) / (perf_counter() - began), (process_time() - cpu) / sum(counts) * 1e6)


if __name__ == "__main__":
    main()
