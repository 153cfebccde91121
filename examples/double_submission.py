"""Double submission: a form that is sent twice orders once.

The form carries a token, and `once` makes it the identity of the order: the second time, nothing
is written, and the customer gets the confirmation of the first order instead of an error.
"""

from __future__ import annotations

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
