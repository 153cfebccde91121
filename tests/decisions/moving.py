"""A worker that moves money at random, in a process of its own, and writes down what it did and saw."""

from __future__ import annotations

import random
from time import monotonic
from typing import Any, cast

from examples.wallet import domain
from examples.wallet.domain import Balance, Existence, InsufficientFunds

import fencepost
from fencepost import EventStore
from fencepost.decisions import Cached, Decided, Retry
from fencepost.testing import ClientStore, History

WALLETS = ("ada", "brook", "chen", "dara")
BEGIN_WITH = 200

# As many attempts as it takes: contention is what this is about.
PATIENT = Retry(attempts=1_000, base_s=0.001, cap_s=0.05)
transfer = domain.transfer.with_retry(PATIENT)
withdraw = domain.withdraw.with_retry(PATIENT)
deposit = domain.deposit.with_retry(PATIENT)


def move_money(address: str, worker: int, for_s: float) -> tuple[History, dict[str, int]]:
    """Transfers, withdrawals and deposits between few wallets, some requests sent twice."""
    chance = random.Random(worker)
    counts = {"applied": 0, "refused": 0, "repeated": 0, "deposited": 0, "withdrawn": 0}
    with fencepost.open(address) as store:
        recorder = ClientStore(store, f"worker-{worker}")
        # A snapshot after every few events, so that folding forward is under test as well.
        place = Cached(cast(EventStore, recorder))
        end = monotonic() + for_s
        number = 0
        while monotonic() < end:
            number += 1
            source, target = chance.sample(WALLETS, 2)
            amount = chance.randint(1, 120)
            key = f"{worker}-{number}"
            kind = chance.choice(["transfer", "transfer", "withdraw", "deposit"])
            for _ in range(chance.choice([1, 1, 1, 2])):
                try:
                    decided = _move(kind, place, source, target, key, amount)
                except InsufficientFunds:
                    counts["refused"] += 1
                    continue
                counts["repeated" if decided.already else "applied"] += 1
                if not decided.already and kind != "transfer":
                    counts["withdrawn" if kind == "withdraw" else "deposited"] += amount
        return recorder.history, counts


def _move(kind: str, place: Cached[EventStore], source: str, target: str, key: str, amount: int) -> Decided[Any]:
    if kind == "transfer":
        return transfer(place, Balance(source), Existence(target), transfer_id=key, amount=amount)
    if kind == "withdraw":
        return withdraw(place, Balance(source), withdrawal_id=key, amount=amount)
    return deposit(place, Existence(target), deposit_id=key, amount=amount)
