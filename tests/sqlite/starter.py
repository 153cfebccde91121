"""A child that opens new stores on command, at the same time as other processes, and appends to them."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from time import sleep

from tests.support.reporting import report

import fencepost
from fencepost import Event
from fencepost.engines.sqlite import SqliteEngine


def main(reports: str, folder: str, rounds: str) -> None:
    assert SqliteEngine, "everything is imported before the other processes start"
    parent = os.getppid()
    for number in range(int(rounds)):
        report(reports, "ready")
        while not Path(folder, f"go-{number}").exists():
            if os.getppid() != parent:  # the test has ended without us
                return
            sleep(0.0005)
        with fencepost.open(Path(folder, f"store-{number}.db")) as store:
            report(reports, f"placed at {store.append([Event('Opened')]).first}")


if __name__ == "__main__":
    main(*sys.argv[1:])
