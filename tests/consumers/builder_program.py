"""A process that builds half of the table `totals` and then waits to be killed."""

from __future__ import annotations

import sys
from itertools import islice
from time import sleep

from tests.consumers.places import Added
from tests.support.reporting import report

import fencepost
from fencepost.consumers import ReadModel
from fencepost.consumers.builder import Builder
from fencepost.consumers.drift import folded
from fencepost.decisions import Projection, Tag, on


class Total(Projection):
    key: Tag
    total: int = 0

    @on
    def _(self, event: Added) -> None:
        self.total += event.amount


def totals(into: str) -> ReadModel:
    return ReadModel(Total, by="key", into=into, table="totals", lease_s=1)


def main(reports: str, address: str, into: str) -> None:
    # Under its own name: a class of `__main__` would be another projection.
    from tests.consumers.builder_program import totals

    model = totals(into)
    with fencepost.open(address) as store, Builder(model, store, lease_s=2) as builder:
        rows = folded(model, store, store.head())
        builder.write(islice(rows.items(), len(rows) // 2))
        report(reports, "half")
        sleep(600)


if __name__ == "__main__":
    main(*sys.argv[1:])
