"""A child that forks with an open store, uses it on both sides, and reports what came of it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from tests.crash.reporting import report

import fencepost
from fencepost import Event, StoreError


def attempt(call: Callable[[], object]) -> str:
    try:
        return f"{call()}"
    except StoreError as error:
        return f"{type(error).__name__}: {error}"


def main(reports: str, path: str) -> None:
    store = fencepost.open(path)
    store.append([Event("A")])
    list(store.read())
    process = os.fork()
    if process == 0:
        report(reports, attempt(lambda: store.append([Event("B")])))
        report(reports, attempt(store.read))
        report(reports, attempt(store.head))
        store.close()
        with fencepost.open(path) as again:
            report(reports, attempt(lambda: again.append([Event("C")]).first))
        # The interpreter ends as usual here, with everything that is torn down then.
        return
    _, status = os.waitpid(process, 0)
    report(reports, f"child ended with {status}")
    report(reports, attempt(lambda: store.append([Event("D")]).first))
    report(reports, attempt(lambda: [event.type for event in store.read()]))
    store.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
