"""Dynamic prices: a customer pays the price that was displayed, if it was displayed recently.

Prices change while customers look at them. An order names the price that was displayed; it is
accepted if that is the price now, or was until a few minutes ago. An order of several products
is one decision over as many projections.
"""

from __future__ import annotations

from dataclasses import field
from datetime import datetime, timedelta

import fencepost
from fencepost import SequencedEvent
from fencepost.decisions import Projection, Tag, decision, event, now, on

GRACE = timedelta(minutes=10)


@event
class PriceSet:
    product_id: Tag
    price: int


@event
class ProductsOrdered:
    order_id: Tag
    product_ids: list[Tag]
    total: int


class PriceInvalid(Exception):
    def __init__(self, product_id: str, displayed: int) -> None:
        super().__init__(f"product {product_id!r} does not cost {displayed} any more, or never did")
        self.product_id = product_id


class Prices(Projection):
    """The price of a product, and those that it had, each with the time at which it ended."""

    product_id: Tag
    price: int | None = None
    ended: dict[int, datetime] = field(default_factory=dict)

    @on
    def _(self, event: PriceSet, stored: SequencedEvent) -> None:
        if self.price is not None:
            self.ended[self.price] = stored.recorded_at
        self.price = event.price

    def is_valid(self, displayed: int) -> bool:
        if displayed == self.price:
            return True
        ended = self.ended.get(displayed)
        return ended is not None and now() - ended <= GRACE


@decision
def set_price(prices: Prices, *, price: int) -> PriceSet | None:
    return None if prices.price == price else PriceSet(prices.product_id, price)


@decision
def order(products: list[Prices], *, order_id: str, displayed: dict[str, int]) -> ProductsOrdered:
    for product in products:
        if not product.is_valid(displayed[product.product_id]):
            raise PriceInvalid(product.product_id, displayed[product.product_id])
    return ProductsOrdered(order_id, [product.product_id for product in products], sum(displayed.values()))


def main() -> None:
    with fencepost.open("memory:") as store:
        set_price(store, Prices("tea"), price=3)
        set_price(store, Prices("tea"), price=4)
        for number, displayed in enumerate((4, 3, 2), start=1):
            try:
                order(store, [Prices("tea")], order_id=f"o{number}", displayed={"tea": displayed})
                print(f"ordered at {displayed}")
            except PriceInvalid as refusal:
                print(f"refused: {refusal}")


if __name__ == "__main__":
    main()
