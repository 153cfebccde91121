"""Double submission: a form that is sent twice orders once.

The form carries a token, and `once` makes the token the identity of the order. The second submission
stores nothing and returns the confirmation of the first order.
"""

from __future__ import annotations

import fencepost
from fencepost.decisions import Tag, decision, event, having


@event
class OrderPlaced:
    order_id: Tag
    form_token: Tag
    items: tuple[str, ...]


@decision(once=lambda form_token: having(OrderPlaced, form_token=form_token))
def place_order(*, order_id: str, form_token: str, items: tuple[str, ...]) -> OrderPlaced:
    if not items:
        raise ValueError("an order needs at least 1 item")
    return OrderPlaced(order_id, form_token, items)


def main() -> None:
    with fencepost.open("memory:") as store:
        for _ in range(2):
            decided = place_order(store, order_id="o1", form_token="f1", items=("tea",))
            print(f"the form ordered {decided.event.order_id}{', as before' if decided.already else ''}")


if __name__ == "__main__":
    main()
