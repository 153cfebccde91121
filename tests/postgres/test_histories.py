"""Several processes and handles use one store; then their histories are compared with the log."""

from __future__ import annotations

from pathlib import Path

from tests.support.races import balances, race, race_processes

import fencepost
from fencepost import Placed, SequencedEvent
from fencepost.testing import History, check
from fencepost.testing.clients import Answered
from fencepost.testing.contract.base import together


def held_against(histories: list[History], log: list[SequencedEvent]) -> None:
    assert check(histories, log) == []
    assert all(balance >= 0 for course in balances(log).values() for balance in course)
    outcomes = [entry.outcome for history in histories for entry in history if isinstance(entry, Answered)]
    assert any(isinstance(outcome, Placed) and outcome.already for outcome in outcomes)


def test_threads_at_two_handles(url: str) -> None:
    with fencepost.open(url) as one, fencepost.open(url) as two:
        histories = together(
            lambda: race(one, name="one.", threads=4, rounds=30), lambda: race(two, name="two.", threads=4, rounds=30)
        )
        held_against([*histories[0], *histories[1]], list(one.read()))


def test_processes(url: str, tmp_path: Path) -> None:
    histories = race_processes(url, tmp_path, processes=3, threads=3, rounds=30)
    assert len(histories) == 3 * (3 + 1)
    with fencepost.open(url) as store:
        held_against(histories, list(store.read()))
