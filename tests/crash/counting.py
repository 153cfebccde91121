"""A child that counts in the store, from several threads, until it is killed or told to stop.

Each append takes one of a few counters from n to n + 1, on the condition that no other process has: so
the counters have no gap and no number twice exactly if the conditions have held. An append is of
several events, and reported when it is acknowledged.
"""

from __future__ import annotations

import os
import random
import sys
import threading
from pathlib import Path
from uuid import uuid4

from tests.support.reporting import report
from tests.support.small import shrink

import fencepost
from fencepost import AppendCondition, ConditionFailed, Event, EventStore, Query

COUNTERS = 4


def count_up(store: EventStore, reports: Path, number: int, stop: Path, seed: str) -> None:
    chance = random.Random(f"{seed} {number}")
    while not stop.exists():
        counter = f"counter:{chance.randrange(COUNTERS)}"
        query = Query.of(tags={counter})
        reading = store.read(query, backwards=True, limit=1)
        latest = next(iter(reading), None)
        reached = int(latest.data) if latest else 0
        size = chance.randint(1, 6)
        token = uuid4().hex
        events = [
            Event("Counted", data=b"%d" % (reached + 1), tags={counter, f"append:{token}"}, metadata={"of": str(size)})
            for _ in range(size)
        ]
        after = latest.position if latest else 0
        try:
            placed = store.append(events, AppendCondition(query, after=after))
        except ConditionFailed:
            continue
        report(reports, f"{token} {placed.first} {placed.last}")


def fail(error: threading.ExceptHookArgs) -> None:
    """A thread that fails takes the process with it, or the failure would not be noticed."""
    threading.__excepthook__(error)
    os._exit(1)


def main(reports: str, path: str, threads: str, stop: str, seed: str) -> None:
    shrink()
    threading.excepthook = fail
    store = fencepost.open(path)
    workers = [
        threading.Thread(target=count_up, args=(store, Path(reports), number, Path(stop), seed))
        for number in range(int(threads))
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    store.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
