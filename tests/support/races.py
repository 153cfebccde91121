"""Concurrent clients at one store, each with a `ClientStore`: wallets that must never be overdrawn.

The clients do what applications do, on few wallets, so that they conflict with each other:
decide on what they read and append conditionally, on one read or on two; append blindly; repeat
themselves by ids and by `unless`; move a checkpoint with its effect; read on; follow.

`race` runs a number of them as threads of this process over a store that is open. `race_processes`
runs processes of such threads over a store that they open by its address, which is this module's
command: `python -m tests.support.races ADDRESS HISTORY NAME THREADS ROUNDS`.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterable
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from random import Random
from typing import Final
from uuid import UUID

from fencepost import open as open_store
from fencepost.errors import CheckpointBehind, ConditionFailed
from fencepost.model import AppendCondition, Event, Query, SequencedEvent
from fencepost.testing.clients import ClientStore, History, load
from fencepost.testing.faults import PATIENCE_S
from fencepost.testing.stores import Store

from .processes import same_path

WALLETS: Final = 4
TRIES: Final = 5  # before a client gives up a decision that conflicts with other clients


def race(
    store: Store,
    *,
    name: str = "",
    threads: int = 4,
    rounds: int = 40,
    histories: Path | None = None,
    kind: type[ClientStore] = ClientStore,
) -> list[History]:
    """Run this number of clients on the store, and one that follows it; return their histories."""

    def client_store(client: str) -> ClientStore:
        path = None if histories is None else histories / f"{name}{client}.history"
        return kind(store, f"{name}{client}", path=path)

    clients = [Client(client_store(f"client{number}")) for number in range(threads)]
    follower = client_store("follower")
    done = threading.Event()
    calls = [partial(client.work, rounds) for client in clients]
    errors = _run([*calls, partial(_follow, follower, done)], done, len(calls))
    if errors:
        raise errors[0]
    return [*(client.store.history for client in clients), follower.history]


def race_processes(
    address: str, histories: Path, *, processes: int = 3, threads: int = 2, rounds: int = 25
) -> list[History]:
    """Processes of such clients at the store of that address; their histories, by way of files."""
    command = [sys.executable, "-m", "tests.support.races", address, str(histories)]
    running = [
        subprocess.Popen(
            [*command, f"process{number}.", str(threads), str(rounds)],
            env=same_path(),
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(processes)
    ]
    for process in running:
        _, said = process.communicate(timeout=2 * PATIENCE_S)
        assert process.returncode == 0, said
    return [load(path) for path in sorted(histories.glob("*.history"))]


def balances(log: Iterable[SequencedEvent]) -> dict[str, list[int]]:
    """Each wallet's balance after each of its events."""
    found: dict[str, list[int]] = {}
    for event in log:
        if event.type == "Moved":
            for entry in event.data.decode().split():
                wallet, amount = entry.split("=")
                course = found.setdefault(wallet, [0])
                course.append(course[-1] + int(amount))
    return found


class Client:
    """One client, which chooses its actions at random."""

    def __init__(self, store: ClientStore) -> None:
        self.store = store
        self._random = Random(store.client)
        self._seen = 0

    def work(self, rounds: int) -> None:
        deeds = [self.pay, self.pay, self.transfer, self.deposit, self.repeat, self.command, self.book, self.read_on]
        for number in range(rounds):
            self._random.choice(deeds)(number)

    def pay(self, number: int) -> None:
        """Take from a wallet what is in it, deciding on one read."""
        wallet = self._wallet()
        self._decide([wallet], lambda balance: {wallet: -self._random.randint(1, max(1, balance[wallet]))})

    def transfer(self, number: int) -> None:
        """Move from one wallet to another, deciding on two reads with a condition each."""
        source, target = self._random.sample(range(WALLETS), 2)
        amount = self._random.randint(1, 5)
        self._decide([f"w{source}", f"w{target}"], lambda _: {f"w{source}": -amount, f"w{target}": amount})

    def deposit(self, number: int) -> None:
        self.store.append([_moved({self._wallet(): 10})])

    def repeat(self, number: int) -> None:
        """The same append twice, under the same ids."""
        deposit = _moved({self._wallet(): 1}, id=UUID(int=self._random.getrandbits(128)))
        first = self.store.append([deposit])
        again = self.store.append([deposit])
        assert (again.first, again.last, again.already) == (first.first, first.last, True)

    def command(self, number: int) -> None:
        """A command that several clients are given; one of them does it."""
        command = f"command:{number // 4}"
        self.store.append([_moved({self._wallet(): 2}, command)], unless=Query.of(tags={command}))

    def book(self, number: int) -> None:
        """A consumer's step: the effect and the checkpoint in one append."""
        after = self.store.checkpoint("books")
        for event in self.store.read(Query.of(types={"Moved"}), after=after, limit=3):
            with suppress(CheckpointBehind):
                booked = Event("Booked", data=b"%d" % event.position)
                self.store.append([booked], checkpoint=("books", event.position))

    def read_on(self, number: int) -> None:
        reading = self.store.read(after=self._seen)
        self._seen = max([self._seen, *(event.position for event in reading)])
        self.store.head()

    def _decide(self, wallets: list[str], decision: Callable[[dict[str, int]], dict[str, int]]) -> None:
        for _ in range(TRIES):
            conditions, balance = [], {}
            for wallet in wallets:
                query = Query.of(types={"Moved"}, tags={wallet})
                reading = self.store.read(query)
                balance[wallet] = balances(reading).get(wallet, [0])[-1]
                conditions.append(AppendCondition(query, after=reading.head))
            changes = decision(balance)
            if any(balance[wallet] + change < 0 for wallet, change in changes.items()):
                return
            try:
                self.store.append([_moved({wallet: change}) for wallet, change in changes.items()], conditions)
            except ConditionFailed:
                continue
            return

    def _wallet(self) -> str:
        return f"w{self._random.randrange(WALLETS)}"


def _moved(changes: dict[str, int], *tags: str, id: UUID | None = None) -> Event:
    data = " ".join(f"{wallet}={change}" for wallet, change in changes.items())
    return Event("Moved", data=data.encode(), tags={*changes, *tags}, id=id)


def _follow(store: ClientStore, done: threading.Event) -> None:
    """Follow everything until the others are done, and then to the head."""
    subscription = store.subscribe(timeout_s=0.05)
    while not done.is_set():
        for _ in subscription:
            pass
    head = store.head()
    while subscription.position < head:
        for _ in subscription:
            pass
    subscription.stop()


def _run(calls: list[partial[None]], done: threading.Event, workers: int) -> list[BaseException]:
    errors: list[BaseException] = []

    def run(call: partial[None]) -> None:
        try:
            call()
        except BaseException as error:
            errors.append(error)

    running = [threading.Thread(target=run, args=[call], daemon=True) for call in calls]
    for thread in running:
        thread.start()
    for thread in running[:workers]:
        thread.join(2 * PATIENCE_S)
    done.set()
    for thread in running[workers:]:
        thread.join(PATIENCE_S)
    assert not any(thread.is_alive() for thread in running), "a client hangs"
    return errors


def main() -> None:
    address, histories, name, threads, rounds = sys.argv[1:]
    with closing(open_store(address)) as store:
        race(store, name=name, threads=int(threads), rounds=int(rounds), histories=Path(histories))


if __name__ == "__main__":
    main()
