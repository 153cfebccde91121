"""Invoice numbers without gaps: the next number is one more than the last.

A database sequence leaves gaps when a transaction fails. Here the number follows from the last invoice,
and the new invoice is stored only if no other was stored since. The caller that loses the race tries the next number.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import fencepost
from fencepost.decisions import Projection, Retry, Tag, decision, event, having, on


@event
class InvoiceIssued:
    order_id: Tag
    number: int
    amount: int


class Numbers(Projection, snapshot_every=100):
    """The last number that was given. Its boundary is every invoice: that is what "without gaps" means."""

    last: int = 0

    @on
    def _(self, event: InvoiceIssued) -> None:
        self.last = event.number


# All invoices conflict with each other, so losing the race is normal and worth more attempts.
@decision(
    once=lambda order_id: having(InvoiceIssued, order_id=order_id),
    retry=Retry(attempts=50, base_s=0.001, cap_s=0.05),
)
def issue(numbers: Numbers, *, order_id: str, amount: int) -> InvoiceIssued:
    return InvoiceIssued(order_id, numbers.last + 1, amount)


def main() -> None:
    with fencepost.open("memory:") as store, ThreadPoolExecutor(4) as threads:
        orders = ["o1", "o2", "o3", "o4", "o1"]
        issued = threads.map(lambda order_id: issue(store, Numbers(), order_id=order_id, amount=10), orders)
        for order_id, decided in zip(orders, issued, strict=True):
            print(f"order {order_id} has invoice {decided.event.number}{', as before' if decided.already else ''}")


if __name__ == "__main__":
    main()
