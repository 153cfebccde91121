"""A subscriber that follows the store while it is attacked, from a process of its own.

It folds each event in the order of the log, so what it has seen is the truth about the wallets:
if a balance was ever below zero, it was so here.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from time import sleep

from fencepost import SequencedEvent
from fencepost.testing.stores import Store

from .wallet import change


class Balances:
    """The balance of each wallet, and the lowest that it ever was."""

    def __init__(self, wallets: Iterable[str]) -> None:
        self.now = dict.fromkeys(wallets, 0)
        self.lowest: dict[str, int] = {}
        self.events = 0
        self.position = 0

    def add(self, event: SequencedEvent) -> None:
        (tag,) = event.tags
        name = tag.removeprefix("wallet:")
        self.now[name] += change(event)
        self.lowest[name] = min(self.lowest.get(name, self.now[name]), self.now[name])
        self.events += 1
        self.position = event.position

    @property
    def overdrawn(self) -> int:
        """How many wallets were ever below zero."""
        return sum(balance < 0 for balance in self.lowest.values())


@contextmanager
def watching(store: Store, balances: Balances) -> Iterator[None]:
    """Follow the store meanwhile, and at the end until everything that is stored has been seen."""
    subscription = store.subscribe()
    errors: list[Exception] = []

    def follow() -> None:
        try:
            for event in subscription:
                balances.add(event)
        except Exception as error:
            errors.append(error)

    watcher = threading.Thread(target=follow, name="watcher")
    watcher.start()
    try:
        yield
        head = store.head()
        while balances.position < head and watcher.is_alive():
            sleep(0.01)
    finally:
        subscription.stop()
        watcher.join()
    if errors:
        raise errors[0]
