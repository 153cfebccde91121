"""What it costs to check every event that is read: the same reads with `check_reads` on and off.

    python -m benchmarks.checking            # 1,000,000 events
    python -m benchmarks.checking --events 100000

Both handles are open on one store, and the reads alternate between them. The figure is the CPU time of the
process, the best of several rounds: other work on the machine disturbs it less than elapsed time.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import process_time

from rich.console import Console

import fencepost
from fencepost import Event, EventStore, Query

ROUNDS = 5
BATCH = 2_000
TAGGED = (10, 1_000)  # events that have one tag
READS = {10: 400, 1_000: 40}  # in a round, each of another tag

console = Console()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--results", type=Path, default=Path(__file__).with_name("results") / "checking.json")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="fencepost-") as folder:
        path = Path(folder) / "store.db"
        fill(path, options.events)
        rows = measure(path, options.events)
    for row in rows:
        console.print(f"{row['work']:<28} {row['checked']:>9.3f} us {row['unchecked']:>9.3f} us {row['ratio']:>6.2f}x")
    figures = {"events": options.events, "rounds": ROUNDS, "rows": rows}
    options.results.write_text(json.dumps(figures, indent=1) + "\n")


def fill(path: Path, events: int) -> None:
    data = b'{"amount": 12345, "text": "' + b"x" * 171 + b'"}'
    with fencepost.open(path) as store:
        for start in range(0, events, BATCH):
            numbers = range(start, min(start + BATCH, events))
            store.append([Event("MoneyDeposited", data=data, tags=tags(number, events)) for number in numbers])


def tags(number: int, events: int) -> set[str]:
    return {f"tagged-{each}:{number % max(events // each, 1)}" for each in TAGGED} | {f"branch:{number % 7}"}


def measure(path: Path, events: int) -> list[dict[str, float | str]]:
    with fencepost.open(path) as checked, fencepost.open(path, check_reads=False) as unchecked:
        rows = [_compared("read all, an event", checked, unchecked, _read_all, events)]
        for each in TAGGED:
            reads = min(READS[each], max(events // each, 1))
            act = _reader(each, reads)
            rows.append(_compared(f"read {each:,} by tag, a read", checked, unchecked, act, reads))
    return rows


def _read_all(store: EventStore) -> None:
    for _ in store.read():
        pass


def _reader(each: int, reads: int) -> Callable[[EventStore], None]:
    queries = [Query.of(tags={f"tagged-{each}:{number}"}) for number in range(reads)]

    def act(store: EventStore) -> None:
        for query in queries:
            assert len(list(store.read(query))) == each

    return act


def _compared(
    work: str, checked: EventStore, unchecked: EventStore, act: Callable[[EventStore], None], parts: int
) -> dict[str, float | str]:
    best: dict[EventStore, float] = {}
    for _ in range(ROUNDS):
        for store in (checked, unchecked):
            began = process_time()
            act(store)
            seconds = process_time() - began
            best[store] = min(seconds, best.get(store, seconds))
    one, other = (best[store] / parts * 1e6 for store in (checked, unchecked))
    return {"work": work, "checked": one, "unchecked": other, "ratio": other / one}


if __name__ == "__main__":
    main()
