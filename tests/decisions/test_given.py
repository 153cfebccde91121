"""given/when/then passes and fails tests as it should."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from fencepost import InvalidInput
from fencepost.decisions import DefinitionError, decision, having, now
from fencepost.testing import given

from .wallets import (
    Balance,
    DepositMade,
    InsufficientFunds,
    Status,
    WalletClosed,
    WalletOpened,
    WithdrawalMade,
    withdraw,
)

OPENED = WalletOpened("w1", "Ada", 100)
withdraw_once = decision(once=lambda withdrawal_id: having(WithdrawalMade, withdrawal_id=withdrawal_id))(
    withdraw.function
)


class TestThen:
    def test_events(self) -> None:
        asked = given(OPENED).when(withdraw, Balance("w1"), withdrawal_id="x", amount=50)
        asked.then(WithdrawalMade("w1", "x", 50))
        asked.then([WithdrawalMade("w1", "x", 50)])
        with pytest.raises(AssertionError, match=r"amount=50.*amount=49"):
            asked.then(WithdrawalMade("w1", "x", 49))
        with pytest.raises(AssertionError, match="amount=50"):
            asked.then_nothing()

    def test_an_error_by_its_class_or_by_example(self) -> None:
        asked = given(OPENED).when(withdraw, Balance("w1"), withdrawal_id="x", amount=500)
        asked.then(InsufficientFunds)
        asked.then(InsufficientFunds(100))
        with pytest.raises(AssertionError, match="99"):
            asked.then(InsufficientFunds(99))

    def test_another_error_than_expected_is_raised_itself(self) -> None:
        asked = given(OPENED).when(withdraw, Balance("w1"), withdrawal_id="x", amount=500)
        for expected in (KeyError, KeyError("x"), WithdrawalMade("w1", "x", 500)):
            with pytest.raises(InsufficientFunds):
                asked.then(expected)

    def test_an_error_that_does_not_come_is_missed(self) -> None:
        asked = given(OPENED).when(withdraw, Balance("w1"), withdrawal_id="x", amount=50)
        with pytest.raises(AssertionError, match="instead of raising"):
            asked.then(InsufficientFunds)

    def test_nothing(self) -> None:
        @decision
        def close(status: Status) -> WalletClosed | None:
            return WalletClosed(status.wallet_id) if status.open else None

        given().when(close, Status("w1")).then_nothing()
        with pytest.raises(AssertionError):
            given().when(close, Status("w1")).then(WalletClosed("w1"))
        given(OPENED).when(close, Status("w1")).then(WalletClosed("w1"))

    def test_already(self) -> None:
        earlier = WithdrawalMade("w1", "x", 50)
        repeated = given(OPENED, earlier).when(withdraw_once, Balance("w1"), withdrawal_id="x", amount=50)
        repeated.then_already(earlier)
        with pytest.raises(AssertionError, match="decided before"):
            repeated.then(earlier)
        with pytest.raises(AssertionError, match="decided now"):
            given(OPENED).when(withdraw_once, Balance("w1"), withdrawal_id="x", amount=1).then_already()

    def test_a_projection(self) -> None:
        given(OPENED, DepositMade("w1", "d", 5), WalletOpened("w2", "Bob", 7)).then(Balance("w1"), amount=105)
        with pytest.raises(AssertionError, match="105"):
            given(OPENED, DepositMade("w1", "d", 5)).then(Balance("w1"), amount=5)


class TestGiven:
    def test_events_in_lists_and_out_of_them(self) -> None:
        given([OPENED, DepositMade("w1", "d", 5)], DepositMade("w1", "e", 6)).then(Balance("w1"), amount=111)

    def test_what_is_outside_the_boundary_is_not_seen(self) -> None:
        given(WalletOpened("w2", "Bob", 100)).when(withdraw, Balance("w1"), withdrawal_id="x", amount=1).then(
            InsufficientFunds(0)
        )

    def test_is_not_changed_by_what_is_tried_on_it(self) -> None:
        history = given(OPENED)
        for _ in range(2):
            history.when(withdraw, Balance("w1"), withdrawal_id="x", amount=100).then(WithdrawalMade("w1", "x", 100))
        history.and_(DepositMade("w1", "d", 1)).then(Balance("w1"), amount=101)
        history.then(Balance("w1"), amount=100)

    def test_what_is_no_event_is_refused(self) -> None:
        with pytest.raises(DefinitionError):
            given("something")

    def test_the_time_can_be_set(self) -> None:
        @decision
        def stamp() -> DepositMade:
            return DepositMade("w1", str(now().year), 1)

        moment = datetime(2031, 1, 1, tzinfo=timezone.utc)
        given().at(moment).when(stamp).then(DepositMade("w1", "2031", 1))

    def test_an_async_decision_is_tried_as_well(self) -> None:
        @decision
        async def waiting(status: Status) -> WalletClosed:
            return WalletClosed(status.wallet_id)

        given(OPENED).when(waiting, Status("w1")).then(WalletClosed("w1"))


INVALID: Any = DepositMade("w1", "d", None)  # type: ignore[arg-type]


class TestAnEventThatNoStoreWouldTake:
    def test_is_refused_where_it_is_given(self) -> None:
        with pytest.raises(InvalidInput, match=r"DepositMade\.amount"):
            given(OPENED, INVALID)
        with pytest.raises(InvalidInput, match=r"DepositMade\.amount"):
            given(OPENED).and_(INVALID)

    def test_is_refused_where_it_is_decided(self) -> None:
        @decision
        def spoil(status: Status) -> DepositMade:
            return INVALID  # type: ignore[no-any-return]

        given(OPENED).when(spoil, Status("w1")).then(InvalidInput)

    def test_is_refused_where_it_is_expected(self) -> None:
        asked = given(OPENED).when(withdraw, Balance("w1"), withdrawal_id="x", amount=50)
        with pytest.raises(InvalidInput, match=r"DepositMade\.amount"):
            asked.then(INVALID)
        with pytest.raises(DefinitionError, match="not an event"):
            asked.then("something")


FORGETFUL = """
from fencepost.testing import given
from tests.decisions.wallets import Balance, WalletOpened, withdraw

OPENED = WalletOpened("w1", "Ada", 100)

def asked(amount):
    return given(OPENED).when(withdraw, Balance("w1"), withdrawal_id="x", amount=amount)

def test_forgets_then():
    given(OPENED).when(withdraw, Balance("w1"), withdrawal_id="x", amount=50)

def test_forgets_it_after_an_error():
    forgotten = asked(500)

async def test_forgets_it_in_a_coroutine():
    asked(50)

def test_remembers():
    asked(500).then(Exception)
    assert asked(50).decided.event.amount == 50

def test_fails_before_it():
    forgotten = asked(50)
    assert not "before then"

def test_is_not_blamed_for_the_one_before():
    pass
"""

ROOT = Path(__file__).parents[2]


def run(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
    environment.pop("PYTEST_ADDOPTS", None)
    return subprocess.run(
        [sys.executable, *arguments, program], cwd=Path(program).parent, env=environment, capture_output=True, text=True
    )


class TestAScenarioWithoutThen:
    def test_fails_its_test_with_file_and_line(self, tmp_path: Path) -> None:
        page = tmp_path / "test_forgetful.py"
        page.write_text(FORGETFUL)
        (tmp_path / "pytest.ini").write_text("[pytest]\nasyncio_mode = auto")
        ran = run(str(page), "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "fencepost_pytest")
        failed = re.findall(r"^FAILED test_forgetful.py::(\w+)", ran.stdout, re.MULTILINE)
        assert failed == [
            "test_forgets_then",
            "test_forgets_it_after_an_error",
            "test_forgets_it_in_a_coroutine",
            "test_fails_before_it",
        ], ran.stdout
        assert f"{page}:11: given(...).when(...) checks nothing; end it with .then(...)" in ran.stdout
        assert re.findall(rf"^{page}:(\d+): given", ran.stdout, re.MULTILINE) == ["11", "8", "8"]
        assert "2 passed" in ran.stdout

    def test_is_reported_where_there_is_no_pytest(self, tmp_path: Path) -> None:
        program = tmp_path / "program.py"
        program.write_text(FORGETFUL + "test_forgets_then()\n")
        ran = run(str(program))
        assert f"AssertionError: {program}:11: given(...).when(...) checks nothing" in ran.stderr

    def test_is_one_that_compares_no_field_of_a_projection(self) -> None:
        with pytest.raises(TypeError, match="name the fields"):
            given(OPENED).then(Balance("w1"))
