"""A process that keeps the read model `stock` and notes every version of a row that is low, until it is stopped."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from time import sleep
from typing import Annotated, Any

from tests.support.reporting import report

import fencepost
from fencepost import EventStore
from fencepost.consumers import Automation, Reaction, ReadModel, automation, start
from fencepost.decisions import Projection, Tag, decision, encode, event, on, tag

LEAST = 10


@event
class Taken:
    item: Tag
    other: Annotated[str, tag("item")]
    amount: int


@event
class StockLow:
    item: Annotated[str, tag("low_item")]
    version: int


class Stock(Projection):
    item: Tag
    taken: int = 0

    @on
    def _(self, event: Taken) -> None:
        self.taken += event.amount


class Notes(Projection):
    low_item: Tag
    count: int = 0

    @on
    def _(self, event: StockLow) -> None:
        self.count += 1


@decision
def note(notes: Notes, *, version: int) -> StockLow:
    return StockLow(notes.low_item, version)


def take(store: EventStore, item: str, amount: int) -> int:
    return store.append([encode(Taken(item, item, amount))]).last


def is_low(row: Stock) -> bool:
    return row.taken >= LEAST


def noting(into: str, *, where: Callable[[Stock], bool] = is_low, **options: Any) -> tuple[ReadModel, Automation]:
    model = ReadModel(Stock, by="item", into=into, table="stock", lease_s=1)

    @automation("low", rows=model, where=where, lease_s=1, **options)
    def low(row: Stock, store: Reaction) -> None:
        note(store, Notes(row.item), version=row.position)

    return model, low


def main(reports: str, address: str, into: str, stop: str) -> None:
    with fencepost.open(address) as store, start(store, *noting(into)):
        report(reports, "started")
        while not Path(stop).exists():
            sleep(0.01)


if __name__ == "__main__":
    main(*sys.argv[1:])
