"""Invoice numbers without gaps: the next number is one more than the last.

A sequence in a database leaves gaps when a transaction fails. Here the number is decided from the
last invoice and stored only if no other came in between: whoever loses the race takes the next.
"""

from __future__ import annotations

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
