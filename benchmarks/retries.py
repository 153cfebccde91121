"""Retries under contention: as many seats as callers, all of them wanted at once.

Each caller, a thread or a task, subscribes one student to one course that has a seat for everyone. So
every call should succeed, and every call conflicts with every other one. Told are the attempts a call
took, the time it took, and the calls that failed although a seat was free.

    python -m benchmarks.retries
    python -m benchmarks.retries --source before=/path/to/another/checkout/src --source now=src

Several sources are measured in turns, each round in a process of its own; what counts is the ratio
within one run.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple
from uuid import uuid4

CALLERS = (64, 256)
KINDS = ("threads", "tasks")
ROUNDS = 3


class Call(NamedTuple):
    """One call: how often its rule was asked, how long it took, and what it raised, if anything."""

    attempts: int
    seconds: float
    error: str | None


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure retries under contention.")
    parser.add_argument("--source", action="append", help="NAME=PATH of a source folder to measure", default=[])
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--measure", nargs=3, metavar=("ADDRESS", "KIND", "CALLERS"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        address, kind, callers = options.measure
        print(json.dumps(measure(address, kind, int(callers))))
        return
    sources = dict(each.split("=", 1) for each in options.source) or {"now": str(Path(__file__).parents[1] / "src")}
    print("| engine | callers | source | failed | attempts: mean | p50 | p99 | most | ms: p50 | p95 | p99 | all done |")
    print("|---|---|---|---|---|---|---|---|---|---|---|---|")
    for engine in ("SQLite", "PostgreSQL"):
        for kind in KINDS:
            for callers in CALLERS:
                for name, rounds in in_turns(engine, kind, callers, sources, options.rounds).items():
                    print(row(engine, f"{callers} {kind}", name, rounds), flush=True)


def in_turns(
    engine: str, kind: str, callers: int, sources: dict[str, str], rounds: int
) -> dict[str, list[tuple[float, list[Call]]]]:
    """The rounds of each source, and how long each took in all."""
    results: dict[str, list[tuple[float, list[Call]]]] = {name: [] for name in sources}
    with addresses(engine) as new_address:
        for _ in range(rounds):
            for name, source in sources.items():
                command = [sys.executable, "-m", "benchmarks.retries", "--measure", new_address(), kind, str(callers)]
                environment = {**os.environ, "PYTHONPATH": source}
                done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
                taken, calls = json.loads(done.stdout)
                results[name].append((taken, [Call(*call) for call in calls]))
    return results


@contextmanager
def addresses(engine: str) -> Iterator[Callable[[], str]]:
    if engine == "SQLite":
        with tempfile.TemporaryDirectory(prefix=".bench-", dir=".") as folder:
            yield lambda: f"{folder}/{uuid4().hex}.db"
        return
    from tests.support.postgres import PostgresServer

    with PostgresServer(max_connections=300) as server:
        yield lambda: f"{server.url()}&schema=s{uuid4().hex[:12]}"


def row(engine: str, callers: str, source: str, rounds: list[tuple[float, list[Call]]]) -> str:
    calls = [call for _, each in rounds for call in each]
    attempts = sorted(call.attempts for call in calls)
    times = sorted(call.seconds * 1000 for call in calls)
    failed = sum(call.error is not None for call in calls)
    cells = [
        engine,
        callers,
        source,
        f"{failed} of {len(calls)}",
        f"{sum(attempts) / len(attempts):.1f}",
        *(f"{at(attempts, part):.0f}" for part in (0.5, 0.99, 1)),
        *(f"{at(times, part):.0f}" for part in (0.5, 0.95, 0.99)),
        f"{min(taken for taken, _ in rounds) * 1000:.0f}",
    ]
    return f"| {' | '.join(cells)} |"


def at(values: list[Any], part: float) -> Any:
    return values[min(len(values) - 1, int(part * len(values)))]


def measure(address: str, kind: str, callers: int) -> tuple[float, list[Call]]:
    """One round on a new store, with the package that this process imports."""
    from examples.courses import Capacity, define_course

    import fencepost

    with fencepost.open(address, **({"create": True} if "://" in address else {})) as store:
        define_course(store, Capacity("c1"), capacity=callers)
    calls = in_threads(address, callers) if kind == "threads" else asyncio.run(in_tasks(address, callers))
    with fencepost.open(address) as store:
        stored = store.head() - 1
    taken, made = calls
    assert stored == sum(call.error is None for call in made), "every call that succeeded has stored one event"
    return taken, made


def counted() -> tuple[Any, Callable[[], int]]:
    """The decision, and how often its rule was asked in this thread or task."""
    from contextvars import ContextVar
    from functools import wraps

    from examples.courses import subscribe

    from fencepost.decisions import decision

    asked: ContextVar[int] = ContextVar("asked", default=0)

    @wraps(subscribe.function)
    def rule(*args: Any, **kwargs: Any) -> Any:
        asked.set(asked.get() + 1)
        return subscribe.function(*args, **kwargs)

    return decision(rule), asked.get


def in_threads(address: str, callers: int) -> tuple[float, list[Call]]:
    from examples.courses import Capacity, Load, Subscription

    import fencepost

    rule, asked = counted()
    calls: list[Call] = []
    barrier = threading.Barrier(callers + 1)
    with fencepost.open(address) as store:

        def call(number: int) -> None:
            student = f"s{number}"
            templates = Capacity("c1"), Load(student), Subscription("c1", student)
            barrier.wait()
            began, error = perf_counter(), None
            try:
                rule(store, *templates)
            except fencepost.FencepostError as raised:
                error = type(raised).__name__
            calls.append(Call(asked(), perf_counter() - began, error))

        threads = [threading.Thread(target=call, args=(number,)) for number in range(callers)]
        for thread in threads:
            thread.start()
        barrier.wait()
        began = perf_counter()
        for thread in threads:
            thread.join()
        return perf_counter() - began, calls


async def in_tasks(address: str, callers: int) -> tuple[float, list[Call]]:
    from examples.courses import Capacity, Load, Subscription

    from fencepost import FencepostError, aio

    rule, asked = counted()
    async with aio.open(address) as store:

        async def call(number: int) -> Call:
            student = f"s{number}"
            began, error = perf_counter(), None
            try:
                await rule(store, Capacity("c1"), Load(student), Subscription("c1", student))
            except FencepostError as raised:
                error = type(raised).__name__
            return Call(asked(), perf_counter() - began, error)

        began = perf_counter()
        calls = await asyncio.gather(*(call(number) for number in range(callers)))
        return perf_counter() - began, calls


if __name__ == "__main__":
    main()
