"""Work in several processes that begin at the same moment, when all of them are ready."""

from __future__ import annotations

from collections.abc import Callable
from multiprocessing import get_context
from typing import Any

READY_S = 120


def in_processes(count: int, work: Callable[..., int], *arguments: object) -> int:
    """The sum of `work(number, wait_for_all, *arguments)`, called in so many new processes."""
    context = get_context("spawn")
    barrier, results = context.Barrier(count), context.SimpleQueue()
    running = [
        context.Process(target=_run, args=(work, number, barrier, results, arguments), daemon=True)
        for number in range(count)
    ]
    for process in running:
        process.start()
    done = [results.get() for _ in running]
    for process in running:
        process.join()
    for one in done:
        if isinstance(one, str):
            raise RuntimeError(f"a process of the benchmark failed: {one}")
    return sum(done)


def _run(work: Callable[..., int], number: int, barrier: Any, results: Any, arguments: tuple[object, ...]) -> None:
    try:
        results.put(work(number, lambda: barrier.wait(READY_S), *arguments))
    except BaseException as error:
        barrier.abort()
        results.put(repr(error))
