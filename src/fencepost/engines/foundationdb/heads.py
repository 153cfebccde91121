"""The head of the store: the highest of the heads of its partitions, read in one transaction.

A commit writes its partition's head in the order of commits, so a transaction that sees the highest head sees
everything below it.
"""

from __future__ import annotations

from collections.abc import Sequence

from .binding import Transaction, Value
from .keys import Keys, position_of_value
from .waiting import Steps


def begin_heads(transaction: Transaction, keys: Keys) -> list[Value]:
    """Begin to read the heads of all partitions."""
    return [transaction.snapshot.get(key) for key in keys.heads]


def highest(heads: Sequence[Value]) -> Steps[int]:
    found = 0
    for head in heads:
        yield head
        found = max(found, position_of_value(head.value))
    return found


def head_of(transaction: Transaction, keys: Keys) -> Steps[int]:
    head = yield from highest(begin_heads(transaction, keys))
    return head
