"""The attackers: processes, each with several threads, that withdraw as fast as they can.

Every thread reads a wallet, decides, and appends; with conditions it reads again and decides again
when another was faster. All of them share one file and know nothing of each other. They count
into memory that the screen reads while they run, and record what they did and were told, for the
history checker.
"""

from __future__ import annotations

import multiprocessing
import random
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from ctypes import c_ulonglong
from dataclasses import dataclass
from enum import IntEnum
from time import monotonic
from typing import Any

import fencepost
from fencepost import ConditionFailed
from fencepost.testing.clients import ClientStore, History

from .wallet import Wallet

MOST = 50  # that an attacker withdraws at once
PAY = 100  # comes in now and then, so that there is always something to fight for
PAID_ONE_IN = 12


class Count(IntEnum):
    """What an attacker counts."""

    WITHDRAWN = 0
    DECLINED = 1  # the balance was too low, and the decision said so
    CONFLICTS = 2  # the balance had changed: caught by the condition, read and decided again
    DEPOSITED = 3


@dataclass(frozen=True, slots=True)
class Plan:
    """Which wallets are attacked, by how many processes, for how long, and whether with conditions."""

    path: str
    conditions: bool
    seconds: float
    wallets: tuple[str, ...]
    processes: int
    threads: int


class Attack:
    """A running attack: what it has counted so far, and whether it has ended."""

    def __init__(self, plan: Plan, counts: Any, futures: list[Future[list[History]]]) -> None:
        self.plan = plan
        self._counts = counts
        self._futures = futures

    def count(self, what: Count) -> int:
        return sum(self._counts[what :: len(Count)])

    @property
    def running(self) -> bool:
        return not all(future.done() for future in self._futures)

    def histories(self) -> list[History]:
        """What each attacker did; raises what one of them has raised, if anything went wrong."""
        return [history for future in self._futures for history in future.result()]


@contextmanager
def attacking(plan: Plan) -> Iterator[Attack]:
    # Spawned, not forked: a store that is open here must not be carried into another process.
    context = multiprocessing.get_context("spawn")
    counts = context.Array(c_ulonglong, plan.processes * plan.threads * len(Count), lock=False)
    start = context.Barrier(plan.processes)
    with ProcessPoolExecutor(plan.processes, context, _share, (counts, start)) as pool:
        yield Attack(plan, counts, [pool.submit(_attack, plan, number) for number in range(plan.processes)])


_shared: tuple[Any, Any]


def _share(counts: Any, start: Any) -> None:
    """The memory and the barrier cannot travel with a task, only with the making of a process."""
    global _shared
    _shared = counts, start


def _attack(plan: Plan, process: int) -> list[History]:
    """One process of attackers."""
    counts, start = _shared
    with (
        fencepost.open(plan.path, record_conditions=plan.conditions) as store,
        ThreadPoolExecutor(plan.threads) as pool,
    ):
        attackers = [
            Attacker(
                plan,
                ClientStore(store, f"process {process + 1}, thread {thread + 1}"),
                counts,
                slot=(process * plan.threads + thread) * len(Count),
            )
            for thread in range(plan.threads)
        ]
        start.wait(timeout=60)
        deadline = monotonic() + plan.seconds
        for running in [pool.submit(attacker.run, deadline) for attacker in attackers]:
            running.result()
    return [attacker.store.history for attacker in attackers]


class Attacker:
    """One thread of them."""

    def __init__(self, plan: Plan, store: ClientStore, counts: Any, slot: int) -> None:
        self._plan = plan
        self.store = store
        self._counts = counts
        self._slot = slot
        self._wallets = {name: Wallet(name) for name in plan.wallets}
        self._random = random.Random(slot)

    def run(self, deadline: float) -> None:
        while monotonic() < deadline:
            name = self._random.choice(self._plan.wallets)
            if self._random.randrange(PAID_ONE_IN) == 0:
                self.store.append([self._wallets[name].deposit(PAY)])
                self._counted(Count.DEPOSITED)
            else:
                self._withdraw(name, self._random.randint(1, MOST))

    def _withdraw(self, name: str, amount: int) -> None:
        while True:
            wallet = self._wallets[name] = self._wallets[name].read_on(self.store)
            if wallet.balance < amount:
                self._counted(Count.DECLINED)
                return
            event, condition = wallet.withdrawal(amount)
            try:
                self.store.append([event], condition if self._plan.conditions else None)
            except ConditionFailed:
                self._counted(Count.CONFLICTS)
            else:
                self._counted(Count.WITHDRAWN)
                return

    def _counted(self, what: Count) -> None:
        self._counts[self._slot + what] += 1
