"""Eight workers that move money at random: the books balance, and the history is right."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from examples.wallet.domain import Balance, open_wallet

# By its full name, under which the workers find it too.
from tests.decisions.moving import BEGIN_WITH, WALLETS, move_money

import fencepost
from fencepost.decisions import project
from fencepost.testing import check

WORKERS = 8
FOR_S = 3.0


def test_eight_workers_leave_the_books_balanced(address: str) -> None:
    with fencepost.open(address) as store:
        for name in WALLETS:
            open_wallet(store, wallet_id=name, owner=name, initial_balance=BEGIN_WITH)
    with ProcessPoolExecutor(WORKERS, mp_context=get_context("spawn")) as pool:
        working = [pool.submit(move_money, address, worker, FOR_S) for worker in range(WORKERS)]
        results = [each.result() for each in working]
    counts = sum((Counter(counted) for _, counted in results), Counter())
    with fencepost.open(address) as store:
        log = list(store.read())
        balances = {name: project(store, Balance(name)).amount for name in WALLETS}
    histories = [history for history, _ in results]

    # The log begins with the openings, which no client made.
    assert check(histories, log) == []
    assert sum(balances.values()) == BEGIN_WITH * len(WALLETS) + counts["deposited"] - counts["withdrawn"]
    assert len(log) == len(WALLETS) + counts["applied"]
    assert never_below_zero(log)
    operations = [tag for event in log for tag in event.tags if not tag.startswith("wallet_id:")]
    assert len(operations) == len(set(operations))
    # All of it happened: otherwise the above says little.
    assert counts["refused"] > 0
    assert counts["repeated"] > 0


def never_below_zero(log: list[fencepost.SequencedEvent]) -> bool:
    """At no position in the log is a balance below zero."""
    wallets = [Balance(name) for name in WALLETS]
    return all(wallet.amount >= 0 for event in log for wallet in wallets if wallet.apply(event))
