"""The rules of a wallet, and a withdrawal as one decision: read, decide, append.

A balance never goes below zero. That rule spans many events, so no single one can be checked by
itself: the decision rests on what was read, and the condition says so to the store.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from fencepost import AppendCondition, Event, Query, SequencedEvent
from fencepost.decisions import Projection, Tag, encode, event, on
from fencepost.testing.stores import Store

DEPOSITED = "MoneyDeposited"
WITHDRAWN = "MoneyWithdrawn"


@event(type=DEPOSITED)
class Deposited:
    wallet: Tag
    amount: int


@event(type=WITHDRAWN)
class Withdrawn:
    wallet: Tag
    amount: int


class Balance(Projection):
    """The same balance as a projection, for folding the whole log."""

    wallet: Tag
    amount: int = 0
    lowest: int = 0
    withdrawals: int = 0

    @on
    def _(self, event: Deposited) -> None:
        self.amount += event.amount

    @on
    def _(self, event: Withdrawn) -> None:
        self.amount -= event.amount
        self.lowest = min(self.lowest, self.amount)
        self.withdrawals += 1


@dataclass(frozen=True, slots=True)
class Wallet:
    """What has been read of a wallet so far: its balance after everything up to a position."""

    name: str
    balance: int = 0
    up_to: int = 0

    @property
    def tag(self) -> str:
        return f"wallet:{self.name}"

    def read_on(self, store: Store) -> Wallet:
        """The wallet now: only what is new has to be read."""
        reading = store.read(Query.of(types={DEPOSITED, WITHDRAWN}, tags={self.tag}), after=self.up_to)
        return Wallet(self.name, self.balance + sum(map(change, reading)), reading.head)

    def deposit(self, amount: int) -> Event:
        return encode(Deposited(self.name, amount))

    def withdrawal(self, amount: int) -> tuple[Event, AppendCondition]:
        """The event, and what it rests on: no other withdrawal since this wallet was read.

        A deposit cannot spoil the decision, so the condition does not ask about deposits: it names
        exactly what would make the decision wrong, and nothing else causes a conflict.
        """
        event = encode(Withdrawn(self.name, amount))
        return event, AppendCondition(Query.of(types={WITHDRAWN}, tags={self.tag}), after=self.up_to)


def change(event: SequencedEvent) -> int:
    """By how much the event changes its wallet's balance."""
    amount: int = msgspec.json.decode(event.data)["amount"]
    return amount if event.type == DEPOSITED else -amount
