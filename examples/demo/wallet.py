"""The rules of a wallet, and a withdrawal as one decision: read, decide, append.

A balance never goes below zero. That rule spans many events, so no single one can be checked by
itself: the decision rests on what was read, and the condition says so to the store.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from fencepost import AppendCondition, Event, Query, SequencedEvent
from fencepost.testing.stores import Store

DEPOSITED = "MoneyDeposited"
WITHDRAWN = "MoneyWithdrawn"


@dataclass(frozen=True, slots=True)
class Wallet:
    """What has been read of a wallet so far: its balance after everything up to a position."""

    name: str
    balance: int = 0
    upto: int = 0

    @property
    def tag(self) -> str:
        return f"wallet:{self.name}"

    def read_on(self, store: Store) -> Wallet:
        """The wallet now: only what is new has to be read."""
        reading = store.read(Query.of(types={DEPOSITED, WITHDRAWN}, tags={self.tag}), after=self.upto)
        return Wallet(self.name, self.balance + sum(map(change, reading)), reading.head)

    def deposit(self, amount: int) -> Event:
        return Event(DEPOSITED, tags={self.tag}, data=msgspec.json.encode({"amount": amount}))

    def withdrawal(self, amount: int) -> tuple[Event, AppendCondition]:
        """The event, and what it rests on: no other withdrawal since this wallet was read.

        A deposit cannot spoil the decision, so the condition does not ask about deposits: it names
        exactly what would make the decision wrong, and nothing else causes a conflict.
        """
        event = Event(WITHDRAWN, tags={self.tag}, data=msgspec.json.encode({"amount": amount}))
        return event, AppendCondition(Query.of(types={WITHDRAWN}, tags={self.tag}), after=self.upto)


def change(event: SequencedEvent) -> int:
    """By how much the event changes its wallet's balance."""
    amount: int = msgspec.json.decode(event.data)["amount"]
    return amount if event.type == DEPOSITED else -amount
