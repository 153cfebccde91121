"""A decision reports each conflict and its end to the log and to observers."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from fencepost import AppendCondition, Query, aio
from fencepost.core.observers import Observation, observe
from fencepost.decisions import Cached, RetriesExhausted, Retry, encode
from fencepost.decisions.inspection import ConflictMet, DecisionEnded
from fencepost.testing import given

from .test_deciding import HANDLED, Watched
from .wallets import Balance, InsufficientFunds, WalletOpened, WithdrawalMade, open_wallet, withdraw

AT_ONCE = Retry(attempts=3, base_s=0, cap_s=0)
rule = withdraw.with_retry(AT_ONCE)
BOUNDARY = Query.of(types=HANDLED, tags={"wallet_id:w1"})


@pytest.fixture
def watched() -> Iterator[Watched]:
    with Watched() as store:
        open_wallet(store, wallet_id="w1", balance=100)
        yield store


@pytest.fixture
def told(watched: Watched) -> Iterator[list[Any]]:
    observations: list[Observation] = []
    with observe(observations.append, of=watched):
        yield observations


def rivals(count: int) -> Iterator[Any]:
    return iter([[encode(WithdrawalMade("w1", f"rival-{number}", 1))] for number in range(count)])


class TestObservers:
    def test_are_told_of_conflicts_and_of_the_end(self, watched: Watched, told: list[Any]) -> None:
        watched.before_append = rivals(2)
        decided = rule(Cached(watched), Balance("w1"), withdrawal_id="x", amount=5)
        first, second, end = told
        assert isinstance(first, ConflictMet)
        assert (first.decision, first.attempt, first.after) == (withdraw.name, 1, 1)
        assert (first.boundary, first.conflict.position, first.conflict.type) == (BOUNDARY, 2, "WithdrawalMade")
        assert (second.attempt, second.after, second.conflict.position) == (2, 2, 3)
        assert isinstance(end, DecisionEnded)
        assert (end.decision, end.attempts, end.decided, end.error) == (withdraw.name, 3, decided, None)
        assert 0 < first.elapsed_s <= second.elapsed_s <= end.elapsed_s

    def test_are_told_when_every_attempt_met_a_conflict(self, watched: Watched, told: list[Any]) -> None:
        watched.before_append = rivals(3)
        with pytest.raises(RetriesExhausted) as refused:
            rule(watched, Balance("w1"), withdrawal_id="x", amount=5)
        *conflicts, end = told
        assert [each.attempt for each in conflicts] == [1, 2, 3]
        assert (end.exhausted, end.error, end.attempts) == (True, refused.value, 3)

    def test_are_told_of_the_answer_of_the_rule(self, watched: Watched, told: list[Any]) -> None:
        with pytest.raises(InsufficientFunds):
            rule(watched, Balance("w1"), withdrawal_id="x", amount=500)
        (end,) = told
        assert isinstance(end.error, InsufficientFunds)
        assert (end.exhausted, end.attempts, end.decided) == (False, 1, None)

    async def test_are_told_of_tasks_as_well(self) -> None:
        observations: list[Any] = []
        async with aio.open("memory:") as store:
            with observe(observations.append, of=store):
                await open_wallet(store, wallet_id="w1", balance=100)
        assert [(each.decision, each.decided.position) for each in observations] == [(open_wallet.name, 1)]

    def test_are_not_told_of_scenarios_which_have_no_store(self) -> None:
        observations: list[Observation] = []
        with observe(observations.append):
            then = given(WalletOpened("w1", "Ada", 9)).when(rule, Balance("w1"), withdrawal_id="x", amount=5)
        then.then(WithdrawalMade("w1", "x", 5))
        assert observations == []


class TestTheLog:
    def test_logs_each_conflict_at_level_debug(self, watched: Watched, caplog: pytest.LogCaptureFixture) -> None:
        watched.before_append = rivals(1)
        with caplog.at_level(logging.DEBUG, "fencepost.decisions"):
            rule(watched, Balance("w1"), withdrawal_id="x", amount=5)
        (record,) = caplog.records
        assert (record.name, record.levelname) == ("fencepost.decisions", "DEBUG")
        assert "withdraw: attempt 1 met a conflict with WithdrawalMade at position 2" in record.getMessage()

    def test_has_a_warning_when_every_attempt_met_a_conflict(
        self, watched: Watched, caplog: pytest.LogCaptureFixture
    ) -> None:
        watched.before_append = rivals(3)
        with caplog.at_level(logging.WARNING, "fencepost.decisions"), pytest.raises(RetriesExhausted):
            rule(watched, Balance("w1"), withdrawal_id="x", amount=5)
        (record,) = caplog.records
        assert (record.name, record.levelname) == ("fencepost.decisions", "WARNING")
        assert "each of 3 attempts" in record.getMessage()

    def test_is_silent_by_default(self) -> None:
        program = "import logging, fencepost.decisions; logging.getLogger('fencepost.decisions').warning('heard')"
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
        assert (done.stdout, done.stderr) == ("", "")


def test_a_conflict_says_what_the_append_was_conditional_on(watched: Watched, told: list[Any]) -> None:
    watched.before_append = rivals(1)
    rule(watched, Balance("w1"), withdrawal_id="x", amount=5)
    met = told[0]
    assert watched.conditions[-2] == AppendCondition(met.boundary, met.after)
