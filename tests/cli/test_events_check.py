"""`check`: what a condition would do now."""

from __future__ import annotations

import pytest

import fencepost
from fencepost import AppendCondition, ConditionFailed, Event, Query

from .conftest import Cli


def test_a_condition_that_fails_names_the_event_that_stops_it(cli: Cli, wallets: str) -> None:
    ran = cli("check", wallets, "--tag", "wallet:w1", "--after", "1")
    assert ran.code == 1
    (said,) = ran.lines
    assert (said["holds"], said["conflict"]["position"]) == (False, 2)


def test_a_condition_that_holds_says_up_to_where(cli: Cli, wallets: str) -> None:
    ran = cli("check", wallets, "--tag", "wallet:w1", "--after", "4")
    assert (ran.code, ran.lines) == (0, [{"holds": True, "head": 4}])


def test_check_takes_the_conditions_that_append_takes(cli: Cli, wallets: str) -> None:
    holds = AppendCondition(Query.of(tags={"wallet:w1"}), after=4).to_json()
    fails = AppendCondition(Query.of(types={"MoneyWithdrawn"}), after=3).to_json()
    ran = cli("check", wallets, "--condition", holds, "--condition", fails)
    assert ran.code == 1
    assert [line["holds"] for line in ran.lines] == [True, False]


@pytest.mark.parametrize("after", range(5))
@pytest.mark.parametrize("tag", ["wallet:w1", "wallet:w2", "wallet:w3"])
def test_check_says_what_an_append_would_be_told(cli: Cli, wallets: str, tag: str, after: int) -> None:
    said = cli("check", wallets, "--tag", tag, "--after", str(after)).lines[0]
    told: int | None = None
    with fencepost.open(wallets) as store:
        try:
            store.append([Event("Probe")], AppendCondition(Query.of(tags={tag}), after=after))
        except ConditionFailed as error:
            told = error.conflict.position
    assert said["holds"] == (told is None)
    assert said.get("conflict", {}).get("position") == told


def test_check_needs_a_condition_and_takes_it_in_one_form(cli: Cli, wallets: str) -> None:
    whole = AppendCondition(Query.all()).to_json()
    assert cli("check", wallets).code == 2
    assert cli("check", wallets, "--condition", whole, "--tag", "wallet:w1").code == 2
    assert cli("check", wallets, "--condition", whole, "--after", "2").code == 2


def test_check_writes_nothing(cli: Cli, wallets: str) -> None:
    cli("check", wallets, "--tag", "wallet:w3")
    assert cli("head", wallets).out == "4\n"
