"""Clients use one store, in threads and in processes; then their histories are compared with the log."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.support.races import balances, race, race_processes

import fencepost
from fencepost import ConditionFailed, Placed, SequencedEvent
from fencepost.core.address import open_engine
from fencepost.core.engine import Capability
from fencepost.core.verdicts import Append, Verdict
from fencepost.engines.memory import MemoryEngine
from fencepost.store import EventStore
from fencepost.testing import History, check
from fencepost.testing.clients import Answered
from fencepost.testing.contract.base import together
from fencepost.testing.stores import BlockingStore


@pytest.fixture(autouse=True)
def threads_that_alternate_often() -> Iterator[None]:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(0.00005)
    yield
    sys.setswitchinterval(interval)


def held_against(histories: list[History], log: list[SequencedEvent]) -> None:
    """The history is right, no wallet was overdrawn, and the clients did conflict with each other."""
    assert check(histories, log) == []
    assert all(balance >= 0 for course in balances(log).values() for balance in course)
    outcomes = [entry.outcome for history in histories for entry in history if isinstance(entry, Answered)]
    assert any(isinstance(outcome, Placed) and outcome.already for outcome in outcomes)
    assert any(isinstance(outcome, ConditionFailed) for outcome in outcomes)
    assert len(log) > 50


def test_tasks_at_one_handle(tmp_path: Path) -> None:
    with closing(BlockingStore(open_engine(tmp_path / "race.db"))) as store:
        histories = race(store, threads=6, rounds=20)
        held_against(histories, list(store.read()))


@pytest.mark.parametrize("address", ["memory:", "sqlite"])
def test_threads_at_one_handle(address: str, tmp_path: Path) -> None:
    with fencepost.open(address if address == "memory:" else tmp_path / "race.db") as store:
        histories = race(store, threads=6, rounds=40)
        held_against(histories, list(store.read()))


def test_threads_at_two_handles(tmp_path: Path) -> None:
    with fencepost.open(tmp_path / "race.db") as one, fencepost.open(tmp_path / "race.db") as two:
        histories = together(
            lambda: race(one, name="one.", threads=3, rounds=30),
            lambda: race(two, name="two.", threads=3, rounds=30),
        )
        held_against([*histories[0], *histories[1]], list(one.read()))


def test_processes(tmp_path: Path) -> None:
    address = str(tmp_path / "race.db")
    fencepost.open(address).close()
    histories = race_processes(address, tmp_path, processes=3, threads=2, rounds=30)
    assert len(histories) == 3 * (2 + 1)
    with fencepost.open(address) as store:
        held_against(histories, list(store.read()))


class Careless(MemoryEngine):
    """A memory engine that judges before it takes its lock: another commit may come in between."""

    capabilities = Capability.NONE  # type: ignore[assignment,misc]

    def commit(self, appends):  # type: ignore[no-untyped-def]
        verdicts: list[Verdict] = []
        for append in appends:
            for condition in append.conditions:
                if self.first_match(condition.fail_if_events_match, condition.after) is not None:
                    return super().commit(appends)
            time.sleep(0)  # lets another thread run
            verdicts += super().commit([Append(append.events, (), append.unless, append.checkpoint)])
        return verdicts


def test_an_engine_that_checks_without_a_lock_is_found_out() -> None:
    """The races are real: they find the defect of this engine."""
    for _ in range(20):
        with EventStore(Careless()) as store:
            histories = race(store, threads=6, rounds=40)
            if violations := check(histories, store.read()):
                assert {violation.promise for violation in violations} == {"condition"}
                return
    pytest.fail("the race never happened")
