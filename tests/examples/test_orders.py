"""The order process: each rule as a sentence, and orders whose payment races the deadline."""

from __future__ import annotations

from pathlib import Path
from threading import Thread

from examples.orders import Order, OrderCancelled, OrderPlaced, OrderShipped, PaymentReceived, Stock, StockReserved
from tests.consumers.places import eventually

import fencepost
from examples import orders
from fencepost.consumers import start
from fencepost.decisions import project
from fencepost.testing import given

PLACED = OrderPlaced("o1", "lamp", 2)
RESERVED = StockReserved("o1", "lamp", 2)


class TestRules:
    def test_goods_are_reserved_for_an_order(self) -> None:
        given(orders.ItemStocked("lamp", 2), PLACED).when(orders.reserve, Order("o1"), Stock("lamp"), quantity=2).then(
            RESERVED
        )

    def test_an_order_for_more_than_there_is_is_cancelled(self) -> None:
        given(orders.ItemStocked("lamp", 1), PLACED).when(orders.reserve, Order("o1"), Stock("lamp"), quantity=2).then(
            OrderCancelled("o1", "only 1 of lamp are left")
        )

    def test_a_paid_order_is_shipped(self) -> None:
        given(PLACED, RESERVED, PaymentReceived("o1")).when(orders.ship_or_refund, Order("o1")).then(OrderShipped("o1"))

    def test_but_not_before_its_goods_are_reserved(self) -> None:
        given(PLACED, PaymentReceived("o1")).when(orders.ship_or_refund, Order("o1")).then_nothing()

    def test_money_for_a_cancelled_order_goes_back(self) -> None:
        late = given(PLACED, RESERVED, OrderCancelled("o1", "late"), PaymentReceived("o1"))
        late.when(orders.ship_or_refund, Order("o1")).then(orders.PaymentRefunded("o1"))

    def test_a_paid_order_is_not_cancelled(self) -> None:
        given(PLACED, RESERVED, PaymentReceived("o1")).when(orders.cancel, Order("o1"), reason="late").then_nothing()

    def test_a_cancelled_order_releases_its_goods(self) -> None:
        given(PLACED, RESERVED, OrderCancelled("o1", "late")).when(orders.release, Order("o1")).then(
            orders.StockReleased("o1", "lamp", 2)
        )


def test_each_order_is_shipped_or_undone_when_payments_race_the_deadline(tmp_path: Path) -> None:
    clock, ids = orders.MovableClock(), [f"o{number}" for number in range(20)]
    with fencepost.open(tmp_path / "shop.db") as store:
        with start(store, *orders.consumers(str(tmp_path / "views.db"), clock)):
            orders.stock(store, Stock("lamp"), quantity=100)
            for each in ids:
                orders.place(store, Order(each), item="lamp", quantity=1)
            for each in ids:
                orders.wait_for(store, "StockReserved", each)

            def pay() -> None:
                for each in ids[::-1]:
                    orders.pay(store, Order(each))

            paying = Thread(target=pay)
            paying.start()
            clock.ahead = orders.TIME_TO_PAY
            paying.join()

            def done() -> bool:
                found = [project(store, Order(each)) for each in ids]
                return all(order.shipped or (order.refunded and not order.reserved) for order in found)

            eventually(done, "the end of every order")
        found = [project(store, Order(each)) for each in ids]
        assert all(order.shipped != order.cancelled for order in found)
        assert all(order.refunded == order.cancelled for order in found)
        shipped = sum(order.shipped for order in found)
        assert project(store, Stock("lamp")).available == 100 - shipped
