"""A process that runs the consumer `shared`, which has partitions and writes a row for each event, until it is stopped.

`trouble` is `stop-in-handler` for a process that suspends itself after a handler has written, at the event `at` or the
first one after it.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from pathlib import Path
from time import sleep
from typing import Any

from tests.consumers.places import Added, Moved
from tests.support.reporting import report

import fencepost
from fencepost import SequencedEvent
from fencepost.consumers import Consumer, consumer, start
from fencepost.consumers.leases import Lease
from fencepost.consumers.presence import Presence

LEASE_S = 1.0
PARTITIONS = 4


def shared_into(
    into: str, *, partitions: int = PARTITIONS, batch: int = 7, wait_s: float = 0.0, lease_s: float = LEASE_S
) -> Consumer:
    """The consumer `shared`. It takes its time with each event if told so."""
    mark = "%s" if "://" in into else "?"

    @consumer("shared", into=into, lease_s=lease_s, batch=batch, partitions=partitions, key="key")
    def shared(event: Added | Moved, tx: Any, stored: SequencedEvent) -> None:
        sleep(wait_s)
        tx.execute(f"INSERT INTO effect (position, pid) VALUES ({mark}, {mark})", (stored.position, os.getpid()))

    return shared


def main(reports: str, address: str, into: str, stop: str, trouble: str = "", at: str = "0") -> None:
    logging.basicConfig(filename=f"{reports}.log", level=logging.INFO, format="%(asctime)s %(process)d %(message)s")
    shared = shared_into(into)
    if trouble == "stop-in-handler":
        suspend_in_handler(shared, reports, int(at))
    with fencepost.open(address) as store, start(store, shared) as runner:
        report(reports, "started")
        while not Path(stop).exists():
            sleep(0.01)
        runner.check()


def suspend_in_handler(shared: Consumer, reports: str, at: int) -> None:
    """Suspend this process once, when no other thread of it is in the middle of a commit to the store."""
    beating = threading.RLock()
    beat, report_progress = Presence.beat, Lease.beat

    def beat_alone(self: Presence) -> None:
        with beating:
            beat(self)

    def report_alone(self: Lease, position: int, rate: float = 0.0) -> None:
        with beating:
            report_progress(self, position, rate)

    Presence.beat = beat_alone  # type: ignore[method-assign]
    Lease.beat = report_alone  # type: ignore[method-assign]
    suspended: list[int] = []
    original = shared.session

    def session() -> Any:
        made = original()
        handle = made.handle

        def and_suspend(event: SequencedEvent, transaction: Any) -> Any:
            handle(event, transaction)
            with beating:
                if not suspended and event.position >= at:
                    suspended.append(event.position)
                    report(reports, f"suspended {event.position}")
                    signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)
                    report(reports, "continued")

        made.calls, made.handle = None, and_suspend  # type: ignore[method-assign]
        return made

    shared.session = session  # type: ignore[method-assign]


if __name__ == "__main__":
    main(*sys.argv[1:])
