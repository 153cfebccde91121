"""An order process: reserve, pay, ship, and undo what was done if the money does not come in time.

No step calls the next one. Each automation waits for an event and takes a decision, and what that stores is what the
next automation waits for. A step that cannot go on is compensated: a cancelled order releases its stock, and money that
comes after the cancellation is refunded. The deadline is a timer that follows from the log, so a restart loses nothing.

Each decision reads what it depends on, so two automations that meet at the same order cannot contradict each other:
either the payment comes first and the order is shipped, or the deadline comes first and the money goes back.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from time import sleep

import fencepost
from fencepost import EventStore
from fencepost.consumers import Automation, Consumer, Reaction, ReadModel, automation, start
from fencepost.decisions import Projection, Tag, decision, event, on

TIME_TO_PAY = timedelta(days=3)
FEW = 2


@event
class ItemStocked:
    item: Tag
    quantity: int


@event
class ReorderRequested:
    item: Tag


@event
class OrderPlaced:
    order_id: Tag
    item: str
    quantity: int


@event
class StockReserved:
    order_id: Tag
    item: Tag
    quantity: int


@event
class StockReleased:
    order_id: Tag
    item: Tag
    quantity: int


@event
class PaymentReceived:
    order_id: Tag


@event
class PaymentRefunded:
    order_id: Tag


@event
class OrderShipped:
    order_id: Tag


@event
class OrderCancelled:
    order_id: Tag
    reason: str


class Stock(Projection):
    """What is left of an item."""

    item: Tag
    available: int = 0
    reordered: bool = False

    @on
    def _(self, event: ItemStocked) -> None:
        self.available += event.quantity
        self.reordered = False

    @on
    def _(self, event: StockReserved) -> None:
        self.available -= event.quantity

    @on
    def _(self, event: StockReleased) -> None:
        self.available += event.quantity

    @on
    def _(self, event: ReorderRequested) -> None:
        self.reordered = True


class Order(Projection):
    """How far an order has come."""

    order_id: Tag
    placed: bool = False
    reserved: int = 0
    item: str = ""
    paid: bool = False
    shipped: bool = False
    cancelled: bool = False
    refunded: bool = False

    @on
    def _(self, event: OrderPlaced) -> None:
        self.placed, self.item = True, event.item

    @on
    def _(self, event: StockReserved) -> None:
        self.reserved = event.quantity

    @on
    def _(self, event: StockReleased) -> None:
        self.reserved = 0

    @on
    def _(self, event: PaymentReceived) -> None:
        self.paid = True

    @on
    def _(self, event: PaymentRefunded) -> None:
        self.refunded = True

    @on
    def _(self, event: OrderShipped) -> None:
        self.shipped = True

    @on
    def _(self, event: OrderCancelled) -> None:
        self.cancelled = True


class Refused(Exception):
    """A rule of the shop forbids it."""


@decision
def stock(item: Stock, *, quantity: int) -> ItemStocked:
    return ItemStocked(item.item, quantity)


@decision
def place(order: Order, *, item: str, quantity: int) -> OrderPlaced:
    if order.placed:
        raise Refused(f"there is an order {order.order_id} already")
    return OrderPlaced(order.order_id, item, quantity)


@decision
def pay(order: Order) -> PaymentReceived:
    if not order.placed or order.paid:
        raise Refused(f"nothing is owed for {order.order_id}")
    return PaymentReceived(order.order_id)


@decision
def reserve(order: Order, item: Stock, *, quantity: int) -> StockReserved | OrderCancelled | None:
    if order.reserved or order.cancelled:
        return None
    if item.available < quantity:
        return OrderCancelled(order.order_id, f"only {item.available} of {item.item} are left")
    return StockReserved(order.order_id, item.item, quantity)


@decision
def ship_or_refund(order: Order) -> OrderShipped | PaymentRefunded | None:
    if not order.paid or order.shipped or order.refunded:
        return None
    if order.cancelled:
        return PaymentRefunded(order.order_id)
    return OrderShipped(order.order_id) if order.reserved else None


@decision
def cancel(order: Order, *, reason: str) -> OrderCancelled | None:
    return None if order.paid or order.cancelled else OrderCancelled(order.order_id, reason)


@decision
def release(order: Order) -> StockReleased | None:
    return StockReleased(order.order_id, order.item, order.reserved) if order.reserved else None


@decision
def reorder(item: Stock) -> ReorderRequested | None:
    return ReorderRequested(item.item) if item.available <= FEW and not item.reordered else None


@automation("reserving")
def reserving(event: OrderPlaced, store: Reaction) -> None:
    reserve(store, Order(event.order_id), Stock(event.item), quantity=event.quantity)


@automation("shipping")
def shipping(event: PaymentReceived | StockReserved | OrderCancelled, store: Reaction) -> None:
    """Money may come before the goods are reserved, or after the order was cancelled."""
    ship_or_refund(store, Order(event.order_id))


@automation("releasing")
def releasing(event: OrderCancelled, store: Reaction) -> None:
    release(store, Order(event.order_id))


def timing_out(clock: Callable[[], datetime] | None = None) -> Automation:
    @automation("timing-out", after=TIME_TO_PAY, cancelled_by=PaymentReceived, by="order_id", clock=clock)
    def time_out(event: StockReserved, store: Reaction) -> None:
        cancel(store, Order(event.order_id), reason=f"not paid within {TIME_TO_PAY.days} days")

    return time_out


def consumers(views: str, clock: Callable[[], datetime] | None = None) -> tuple[Consumer, ...]:
    """All consumers of the process. The read model is in the given SQLite file."""
    stocks = ReadModel(Stock, by="item", into=views, table="stock")

    @automation("reordering", rows=stocks, where=lambda row: row.available <= FEW and not row.reordered)
    def reordering(row: Stock, store: Reaction) -> None:
        reorder(store, Stock(row.item))

    return stocks, reserving, shipping, releasing, timing_out(clock), reordering


class MovableClock:
    """The time of this machine, some days ahead."""

    def __init__(self) -> None:
        self.ahead = timedelta(0)

    def __call__(self) -> datetime:
        return datetime.now(timezone.utc) + self.ahead


def wait_for(store: EventStore, type: str, order_id: str) -> None:
    """Wait until the automations have stored such an event."""
    while not list(store.read(fencepost.Query.of(types={type}, tags={f"order_id:{order_id}"}), limit=1)):
        sleep(0.01)


def main() -> None:
    clock = MovableClock()
    with tempfile.TemporaryDirectory() as folder, fencepost.open(Path(folder) / "shop.db") as store:
        with start(store, *consumers(str(Path(folder) / "views.db"), clock)):
            stock(store, Stock("lamp"), quantity=4)
            for customer in ("ada", "bob"):
                place(store, Order(customer), item="lamp", quantity=2)
                wait_for(store, "StockReserved", customer)
            place(store, Order("eve"), item="lamp", quantity=1)
            wait_for(store, "OrderCancelled", "eve")
            pay(store, Order("ada"))
            wait_for(store, "OrderShipped", "ada")
            clock.ahead = TIME_TO_PAY  # bob lets the time pass
            wait_for(store, "StockReleased", "bob")
            pay(store, Order("bob"))
            wait_for(store, "PaymentRefunded", "bob")
        for stored in store.read():
            if not stored.type.startswith("fencepost."):
                print(f"{stored.position:3} {stored.type:17} {stored.data.decode()}")


if __name__ == "__main__":
    main()
