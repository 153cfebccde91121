"""Orders that are cancelled unless they are paid in time: what the tests of automations are about."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from threading import Lock
from typing import Any

from fencepost import EventStore, Query
from fencepost.consumers import Automation, Failures, Reaction, automation
from fencepost.decisions import Projection, Tag, decision, encode, event, on


@event
class OrderPlaced:
    order_id: Tag
    delay_s: float = 0.0


@event
class OrderPaid:
    order_id: Tag


@event
class OrderCancelled:
    order_id: Tag


class Order(Projection):
    order_id: Tag
    placed: bool = False
    paid: bool = False
    cancelled: int = 0

    @on
    def _(self, event: OrderPlaced) -> None:
        self.placed = True

    @on
    def _(self, event: OrderPaid) -> None:
        self.paid = True

    @on
    def _(self, event: OrderCancelled) -> None:
        self.cancelled += 1


@decision
def cancel(order: Order) -> OrderCancelled | None:
    """Not idempotent by itself, so that a timer that fires twice shows."""
    return None if order.paid else OrderCancelled(order.order_id)


class Clock:
    """The time of this machine, moved by so many seconds."""

    def __init__(self) -> None:
        self._moved = timedelta(0)
        self._lock = Lock()

    def __call__(self) -> datetime:
        with self._lock:
            return datetime.now(timezone.utc) + self._moved

    def move(self, **by: float) -> None:
        with self._lock:
            self._moved += timedelta(**by)


def place_order(store: EventStore, *ids: str, delay_s: float = 0.0) -> int:
    return store.append([encode(OrderPlaced(each, delay_s)) for each in ids]).last


def pay(store: EventStore, *ids: str) -> int:
    return store.append([encode(OrderPaid(each)) for each in ids]).last


def cancelled(store: EventStore) -> list[str]:
    """The orders that were cancelled, in order."""
    found = store.read(Query.of(types={"OrderCancelled"}))
    return [tag.removeprefix("order_id:") for each in found for tag in each.tags]


def unpaid(clock: Callable[[], datetime] | None = None, **options: Any) -> Automation:
    """Cancels an order that is not paid within 3 days."""
    options = {"after": timedelta(days=3), "lease_s": 1, **options}
    options.setdefault("failures", Failures(attempts=3, base_s=0.01))

    @automation("unpaid", clock=clock, **options)
    def time_out(event: OrderPlaced, store: Reaction) -> None:
        cancel(store, Order(event.order_id))

    return time_out


def by_delay(clock: Callable[[], datetime] | None = None, **options: Any) -> Automation:
    """Cancels each order at a time that the order itself says, counted from 2020."""

    @automation("unpaid", at=due, clock=clock, lease_s=1, **options)
    def time_out(event: OrderPlaced, store: Reaction) -> None:
        cancel(store, Order(event.order_id))

    return time_out


START = datetime(2020, 1, 1, tzinfo=timezone.utc)


def due(event: OrderPlaced) -> datetime | None:
    if event.delay_s < 0:
        return None
    return START + timedelta(seconds=event.delay_s)


class Hands:
    """A clock that is moved by hand only, from 2020 on."""

    def __init__(self) -> None:
        self.time = START

    def __call__(self) -> datetime:
        return self.time

    def at(self, seconds: float) -> None:
        self.time = START + timedelta(seconds=seconds)
