"""What limits many threads: the CPU time and the switches of threads that an append costs, by callers.

    python -m benchmarks.switches             # on all cores
    taskset -c 0 python -m benchmarks.switches     # on one

The store is in memory (/dev/shm), so that no disk is waited for: what is left is Python, SQLite, and
threads that hand the interpreter to each other. On one core they find its caches warm.
"""

from __future__ import annotations

import os
import resource
import tempfile
from pathlib import Path

from rich.console import Console

from . import embedded
from .embedded import conditional, decision, filled, in_threads
from .peers import Fencepost, FencepostCaller

ROUNDS = 4
ACTS = {"conditional append": (conditional, 2_400), "decision": (decision, 1_200)}

console = Console()


def main() -> None:
    console.print(f"{len(os.sched_getaffinity(0))} cores")
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="fencepost-") as folder:
        store = Fencepost(Path(folder))
        filled(store.caller(), 10_000)
        for name, (act, count) in ACTS.items():
            for callers in (1, 4, 16, 64):
                rate, cpu_us, switches = max(_round(store, callers, count // callers, act) for _ in range(ROUNDS))
                each = f"{cpu_us:>6,.0f} us of CPU and {switches:>6.2f} switches each"
                console.print(f"{name:<20} {callers:>3} callers {rate:>8,.0f}/s {each}")
        store.close()


def _round(store: Fencepost, callers: int, each: int, act: embedded.Act) -> tuple[float, float, float]:
    """Acts a second, and CPU time and voluntary switches an act."""
    embedded.RECENT[FencepostCaller] = store.caller().head()
    before = resource.getrusage(resource.RUSAGE_SELF)
    rate = in_threads(store, callers, each, act)
    after = resource.getrusage(resource.RUSAGE_SELF)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return rate, cpu / (callers * each) * 1e6, (after.ru_nvcsw - before.ru_nvcsw) / (callers * each)


if __name__ == "__main__":
    main()
