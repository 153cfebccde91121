"""A child without any privilege that tries to append to a store."""

from __future__ import annotations

import os
import sys

import fencepost
from fencepost import Event, StoreError
from fencepost.engines.sqlite import SqliteEngine

NOBODY = 65_534


def main(reports: str, path: str) -> None:
    descriptor = os.open(reports, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    assert SqliteEngine, "everything is imported before the privileges are gone"
    if os.getuid() == 0:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    try:
        with fencepost.open(path) as store:
            said = str(store.append([Event("Opened")]))
    except StoreError as error:
        said = f"{type(error).__name__}: {error}"
    os.write(descriptor, f"{said}\n".encode())


if __name__ == "__main__":
    main(*sys.argv[1:])
