"""A process that cancels each order when the delay has passed that the order itself says, until it is stopped."""

from __future__ import annotations

import sys
from datetime import datetime, timedelta
from pathlib import Path
from time import sleep

from tests.consumers.orders import Order, OrderPlaced, cancel
from tests.support.reporting import report

import fencepost
from fencepost import EventStore, SequencedEvent
from fencepost.consumers import Reaction, automation, start
from fencepost.decisions.events import declaration_of


def due(stored: SequencedEvent) -> datetime:
    event = declaration_of(OrderPlaced).decode(stored)
    return stored.recorded_at + timedelta(seconds=event.delay_s)


def early(store: EventStore) -> list[str]:
    """The orders that were cancelled before they were due."""
    events = list(store.read())
    at = {min(event.tags): due(event) for event in events if event.type == "OrderPlaced"}
    return [
        min(event.tags)
        for event in events
        if event.type == "OrderCancelled" and event.recorded_at < at[min(event.tags)]
    ]


def main(reports: str, address: str, stop: str) -> None:
    def of_stored(event: SequencedEvent) -> datetime | None:
        return due(event) if event.type == "OrderPlaced" else None

    @automation("unpaid", at=of_stored, lease_s=1)
    def time_out(event: SequencedEvent, store: Reaction) -> None:
        cancel(store, Order(min(event.tags).removeprefix("order_id:")))

    with fencepost.open(address) as store, start(store, time_out):
        report(reports, "started")
        while not Path(stop).exists():
            sleep(0.01)


if __name__ == "__main__":
    main(*sys.argv[1:])
