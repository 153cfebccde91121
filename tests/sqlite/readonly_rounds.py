"""A writer that opens, appends and closes again and again, and says after each append what is acknowledged."""

from __future__ import annotations

import sys

from tests.support.reporting import report

import fencepost
from fencepost import Event


def main(reports: str, path: str, rounds: str) -> None:
    for _ in range(int(rounds)):
        with fencepost.open(path) as store:
            report(reports, str(store.append([Event("A", tags={"a"})] * 3).last))


if __name__ == "__main__":
    main(*sys.argv[1:])
