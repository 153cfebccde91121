"""A process of the soak test: runs all consumers until SIGTERM."""

from __future__ import annotations

import logging
import signal
import sys
from types import FrameType

from tests.soak.consumers import declared
from tests.support.reporting import report

import fencepost
from fencepost.consumers import start


def main(reports: str, address: str, into: str, file: str) -> None:
    logging.basicConfig(filename=f"{reports}.log", level=logging.INFO, format="%(asctime)s %(process)d %(message)s")

    def ended(number: int, frame: FrameType | None) -> None:
        raise SystemExit(0)

    signal.signal(signal.SIGTERM, ended)
    with fencepost.open(address) as store, start(store, *declared(into, file)) as runner:
        report(reports, "started")
        runner.wait()
        runner.check()


if __name__ == "__main__":
    main(*sys.argv[1:])
