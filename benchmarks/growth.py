"""Does a store of five million events still take in bulk what an empty one does?

Two threads share one store: one appends a thousand events at a time, as fast as it goes; the
other appends one event now and then and notes how long it had to wait. What is printed is the
rate in each stretch of the way, and the longest wait in it.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import threading
from pathlib import Path
from time import perf_counter, sleep

from rich.console import Console

import fencepost

from .embedded import fact
from .machine import facts

console = Console()


class Bystander:
    """Somebody else who appends now and then."""

    def __init__(self, store: fencepost.EventStore) -> None:
        self._store = store
        self._ended = threading.Event()
        self._waits: list[float] = []
        self._thread = threading.Thread(target=self._append)

    def _append(self) -> None:
        while not self._ended.is_set():
            began = perf_counter()
            self._store.append([fencepost.Event("Passing", tags={"bystander"})])
            self._waits.append(perf_counter() - began)
            sleep(0.005)

    def longest_ms(self) -> float:
        """Since it was asked last."""
        waits, self._waits = self._waits, []
        return max(waits, default=0.0) * 1e3

    def __enter__(self) -> Bystander:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._ended.set()
        self._thread.join()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.growth", description=__doc__)
    parser.add_argument("--events", type=int, default=5_000_000)
    parser.add_argument("--stretch", type=int, default=250_000)
    parser.add_argument("--results", type=Path, help="where to write the figures as JSON")
    arguments = parser.parse_args()
    stretches = []
    with (
        tempfile.TemporaryDirectory(dir=".", prefix=".bench-") as folder,
        fencepost.open(Path(folder) / "growth.db") as store,
        Bystander(store) as bystander,
    ):
        for begin in range(0, arguments.events, arguments.stretch):
            spent = 0.0
            for start in range(begin, begin + arguments.stretch, 1_000):
                events = [_event(number) for number in range(start, start + 1_000)]
                began = perf_counter()
                store.append(events)
                spent += perf_counter() - began
            rate = arguments.stretch / spent
            stretches.append({"events": begin + arguments.stretch, "rate": rate, "wait_ms": bystander.longest_ms()})
            console.print(
                f"{begin + arguments.stretch:>10,} events  {rate:>9,.0f} events/s "
                f"({rate / stretches[0]['rate']:.2f}x)  longest wait of others {stretches[-1]['wait_ms']:>6.0f} ms"
            )
    if arguments.results:
        arguments.results.write_text(
            json.dumps({"machine": facts("fencepost", "apsw"), "stretches": stretches}, indent=2)
        )


def _event(number: int) -> fencepost.Event:
    made = fact(number)
    return fencepost.Event(made.type, tags=made.tags, data=made.data)


if __name__ == "__main__":
    main()
