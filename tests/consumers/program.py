"""A process that runs the consumer `effects`, which writes a row for each event, until it is told to stop or killed.

`trouble` names what it does to itself: `stop-before-batch` suspends itself when a batch is about to begin, and
`stop-in-handler` when a handler has written; `die-in-handler` kills itself with -9 there. `at` is the position at which
it does so.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from time import sleep
from typing import Any

from tests.consumers.places import Added
from tests.support.reporting import report

import fencepost
from fencepost import SequencedEvent
from fencepost.consumers import consumer, start
from fencepost.consumers.leases import Lease
from fencepost.consumers.presence import Presence
from fencepost.consumers.worker import Worker

LEASE_S = 1.0


def main(reports: str, address: str, into: str, stop: str, trouble: str = "", at: str = "0") -> None:
    logging.basicConfig(filename=f"{reports}.log", level=logging.INFO, format="%(asctime)s %(process)d %(message)s")
    mark = "%s" if "://" in into else "?"
    stopped = False
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

    def suspend(position: int) -> None:
        nonlocal stopped
        if not stopped and position >= int(at):
            stopped = True
            # A suspended process keeps its locks. So no heartbeat may be in the middle of a commit, or the next leader
            # could not write into the same SQLite file.
            with beating:
                report(reports, f"suspended {position}")
                # To this thread: a signal to the process is handled by the main thread, and this one would go on
                # until the stop reaches it.
                signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)
            report(reports, "continued")

    @consumer("effects", into=into, lease_s=LEASE_S, batch=7)
    def effects(event: Added, tx: Any, stored: SequencedEvent) -> None:
        statement = f"INSERT INTO effect (position, pid) VALUES ({mark}, {mark})"
        tx.execute(statement, (stored.position, os.getpid()))
        if trouble == "stop-in-handler":
            suspend(stored.position)
        if trouble == "die-in-handler" and stored.position >= int(at):
            report(reports, f"dying at {stored.position}")
            os.kill(os.getpid(), signal.SIGKILL)

    if trouble == "stop-before-batch":
        original = Worker._together

        def together(self: Worker, events: Sequence[SequencedEvent], up_to: int) -> int:
            suspend(self.lease.store.head())
            return original(self, events, up_to)

        Worker._together = together  # type: ignore[method-assign]

    with fencepost.open(address) as store, start(store, effects) as runner:
        report(reports, "started")
        while not Path(stop).exists():
            sleep(0.01)
        runner.check()


if __name__ == "__main__":
    main(*sys.argv[1:])
