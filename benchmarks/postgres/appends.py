"""Conditional and blind appends: callers as threads of one process, and of four."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from itertools import count
from time import monotonic
from typing import Any

from rich.console import Console

from . import tasks
from .filling import DATA, fill
from .peers import PEERS, TYPES, Peer
from .processes import in_processes

TASKS = "fencepost, tasks"
CALLERS = (1, 4, 16, 64)
PROCESSES = 4
EVENTS = 100_000  # in each store beforehand
# The best round counts: on a shared machine it is the one that was disturbed least. One caller mostly waits to be
# woken, and many want both cores: these differ the most between rounds.
ROUNDS = {1: 8, 4: 4, 16: 4, 64: 8}
ROUND_S = 0.8

console = Console(file=sys.stderr)


def measure(url: str) -> list[dict[str, Any]]:
    fill(url, EVENTS)
    rows = list(_in_one_process(url))
    rows += _in_several_processes(url)
    return rows


def _in_one_process(url: str) -> Iterator[dict[str, Any]]:
    for callers in CALLERS:
        stores = [peer(url, callers) for peer in PEERS.values()]
        for conditional in (True, False):
            best = dict.fromkeys(PEERS, 0.0)
            for number in range(ROUNDS[callers]):
                for store in stores:
                    done = run(store, callers, conditional, f"{callers}.{number}.{conditional}")
                    best[store.name] = max(best[store.name], done / ROUND_S)
                done = tasks.run(url, callers, conditional, f"t{callers}.{number}.{conditional}", ROUND_S)
                best[TASKS] = max(best.get(TASKS, 0.0), done / ROUND_S)
            yield _row(1, callers, conditional, best)
        for store in stores:
            store.close()


def _in_several_processes(url: str) -> Iterator[dict[str, Any]]:
    for callers in CALLERS[1:]:
        for conditional in (True, False):
            share = callers // PROCESSES
            best = {name: in_processes(PROCESSES, _process, url, name, share, conditional) / ROUND_S for name in PEERS}
            yield _row(PROCESSES, callers, conditional, best)


def _row(processes: int, callers: int, conditional: bool, best: dict[str, float]) -> dict[str, Any]:
    row = {"processes": processes, "callers": callers, "conditional": conditional, **best}
    console.print(row)
    return row


def _process(
    number: int, wait_for_all: Callable[[], object], url: str, name: str, callers: int, conditional: bool
) -> int:
    store = PEERS[name](url, callers)
    store.append("WalletOpened", [], DATA)
    wait_for_all()
    try:
        return run(store, callers, conditional, f"p{number}.{callers}.{conditional}")
    finally:
        store.close()


def run(store: Peer, callers: int, conditional: bool, label: str) -> int:
    """How many appends the callers get done in the time of a round; each decides about a wallet of its own."""
    done = [0] * callers
    ready = threading.Barrier(callers)

    def call(caller: int) -> None:
        wallet = f"wallet:{label}.{caller}"
        after = store.append("WalletOpened", [wallet], DATA)
        ready.wait()
        end = monotonic() + ROUND_S
        for number in count():
            if monotonic() >= end:
                break
            tags = [wallet, f"branch:{number % 100}", f"operation:{label}.{caller}.{number}"]
            if conditional:
                after = store.append_if("MoneyDeposited", tags, DATA, TYPES[:2], wallet, after)
                assert after, "nobody else writes to this wallet"
            else:
                store.append("MoneyDeposited", tags, DATA)
            done[caller] += 1

    threads = [threading.Thread(target=call, args=[caller]) for caller in range(callers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(done)
