"""The same hostile workload for each store, and what it lost.

Clients in several processes count up a few counters, each append on the condition that nobody else has
counted since, and append notes without any condition. Each event says which counter it counts and what its
condition had seen, so the log alone tells afterwards which conditions were broken. Pollers follow
meanwhile, as a projection would: from the last position that they saw on. An event that is in the log and
was never seen was skipped.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from random import Random
from time import monotonic, sleep
from typing import Any

import psycopg
from rich.console import Console

from .peers import PEERS, Peer
from .processes import in_processes

PROCESSES = 3
THREADS = 4
POLLERS = 2
COUNTERS = 3
SECONDS = 8.0
LOG = {
    "fencepost": "SELECT position, type, data FROM fencepost.event ORDER BY position",
    "eventsourcing": "SELECT id, type, data FROM dcb_events_tt_main ORDER BY id",
    "crablet's design": "SELECT position, type, data FROM crablet.events ORDER BY position",
}

console = Console(file=sys.stderr)


def measure(url: str) -> list[dict[str, Any]]:
    return [_torture(url, name) for name in PEERS]


def _torture(url: str, name: str) -> dict[str, Any]:
    store = PEERS[name](url, POLLERS)
    stop = threading.Event()
    seen: list[set[int]] = [set() for _ in range(POLLERS)]
    pollers = [threading.Thread(target=_poll, args=[store, one, stop]) for one in seen]
    for poller in pollers:
        poller.start()
    appended = in_processes(PROCESSES, _count_up, url, name)
    sleep(0.5)  # what is still to become visible, does
    stop.set()
    for poller in pollers:
        poller.join()
    store.close()
    with psycopg.connect(url) as connection:
        log = connection.execute(LOG[name].encode()).fetchall()
    row = {
        "store": name,
        "appends": appended,
        "events": len(log),
        "lost conflicts": _broken(log),
        "skipped events": sum(len({position for position, *_ in log} - one) for one in seen),
    }
    console.print(row)
    return row


def _poll(store: Peer, seen: set[int], stop: threading.Event) -> None:
    after = 0
    while not stop.is_set():
        positions = store.poll(after)
        seen.update(positions)
        after = max([after, *positions])
        sleep(0.002)
    seen.update(store.poll(after))


def _count_up(number: int, wait_for_all: Callable[[], object], url: str, name: str) -> int:
    store = PEERS[name](url, THREADS)
    done = [0] * THREADS
    wait_for_all()
    end = monotonic() + SECONDS

    def call(thread: int) -> None:
        chance = Random(f"{number}.{thread}")
        last = dict.fromkeys(range(COUNTERS), 0)
        while monotonic() < end:
            if chance.random() < 0.4:
                store.append("Noted", ["note"], b"")
                continue
            counter = chance.randrange(COUNTERS)
            tag, after = f"counter:{counter}", last[counter]
            # Half of the time it has just read what is there; otherwise its decision may be stale.
            if chance.random() < 0.5:
                after = max([after, *store.poll(after)[-1:]])
            placed = store.append_if("Counted", [tag], f"{counter} {after}".encode(), ["Counted"], tag, after)
            last[counter] = max(after, placed)
            done[thread] += placed > 0

    threads = [threading.Thread(target=call, args=[thread]) for thread in range(THREADS)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    store.close()
    return sum(done)


def _broken(log: list[tuple[int, str, bytes]]) -> int:
    """Appends in whose way another event of the same counter stands."""
    broken = 0
    previous: dict[str, int] = {}
    for position, type_, data in log:
        if type_ == "Counted":
            counter, after = bytes(data).decode().split()
            broken += previous.get(counter, 0) > int(after)
            previous[counter] = position
    return broken
