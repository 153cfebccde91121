"""Short reads that overlap, so that at every moment at least one reader uses the write-ahead log."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from tests.support.reporting import report

from fencepost.engines.sqlite.connections import connect, run


def rotate(path: str, goes_on: Callable[[], bool]) -> int:
    """Repeatedly begin a read on one connection before the read on the other ends; return how often."""
    connections = [connect(path, timeout_s=60, cache_kib=256) for _ in range(2)]
    turns = 0
    while goes_on():
        turns += 1
        now, before = connections[turns % 2], connections[1 - turns % 2]
        run(now, "BEGIN")
        run(now, "SELECT max(position) FROM events")
        if before.in_transaction:
            run(before, "COMMIT")
    for connection in connections:
        connection.close(force=True)
    return turns


def main(reports: str, path: str, stop: str) -> None:
    report(reports, "ready")
    report(reports, f"{rotate(path, lambda: not Path(stop).exists())} turns")


if __name__ == "__main__":
    main(*sys.argv[1:])
