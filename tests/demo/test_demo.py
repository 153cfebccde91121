"""`make demo`: what it shows is true, and it notices when it is not."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from datetime import datetime, timezone
from pathlib import Path

import apsw
import pytest
from examples.demo.proof import file_is_sound, history_is_right
from examples.demo.wallet import DEPOSITED, WITHDRAWN, Wallet
from examples.demo.watch import Balances, watching

import fencepost
from fencepost import AppendCondition, ConditionFailed, Event, Query, SequencedEvent
from fencepost.testing import ClientStore

ROOT = Path(__file__).parents[2]
NOW = datetime(2026, 3, 4, tzinfo=timezone.utc)


def stored(position: int, type: str, amount: int) -> SequencedEvent:
    return SequencedEvent(position, type, frozenset({"wallet:ada"}), b'{"amount": %d}' % amount, NOW)


def test_the_demo_runs_without_a_terminal_and_all_of_its_claims_hold(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "examples.demo", "--seconds", "0.5", "--processes", "2", "--threads", "3"]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "COLUMNS": "200"}
    ran = subprocess.run(
        [*command, "--folder", str(tmp_path / "demo")], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.count("✔") == 6
    assert "no balance was ever below zero" in ran.stdout
    assert "the history is right" in ran.stdout
    assert re.search(r"Spark folds [\d,]+ events into the balances that the subscriber saw", ran.stdout)
    assert "SQL on typed tables" in ran.stdout
    assert re.search(r"the audit is clean: each of [\d,]+ recorded conditions held at its position", ran.stdout)
    assert (tmp_path / "demo" / "money.png").read_bytes().startswith(b"\x89PNG")
    assert "\x1b" not in ran.stdout


def test_a_withdrawal_is_refused_after_another_one_and_not_after_a_deposit() -> None:
    with fencepost.open("memory:") as store:
        store.append([Wallet("ada").deposit(100)])
        seen = Wallet("ada").read_on(store)
        store.append([seen.deposit(5)])
        event, condition = seen.withdrawal(80)
        store.append([event], condition)
        with pytest.raises(ConditionFailed, match=WITHDRAWN):
            store.append([event], condition)
        assert seen.read_on(store).balance == 25


def test_balances_remember_the_lowest_that_ever_was() -> None:
    balances = Balances(["ada"])
    for event in (stored(1, DEPOSITED, 10), stored(2, WITHDRAWN, 15), stored(3, DEPOSITED, 20)):
        balances.add(event)
    assert (balances.now["ada"], balances.lowest["ada"], balances.overdrawn) == (15, -5, 1)


def test_watching_ends_when_everything_that_is_stored_has_been_seen() -> None:
    balances = Balances(["ada"])
    with fencepost.open("memory:") as store:
        with watching(store, balances):
            for _ in range(50):
                store.append([Wallet("ada").deposit(1)])
        assert (balances.events, balances.position) == (50, 50)


def test_a_history_that_cannot_have_happened_is_noticed(tmp_path: Path) -> None:
    path = str(tmp_path / "wallets.db")
    with fencepost.open(path) as store:
        client = ClientStore(store, "client")
        client.append([Event("T")], AppendCondition(Query.all()))
        assert history_is_right(path, [client.history]).holds
        store.append([Event("T", metadata={"client_append": "client/7/0"})])  # which no client says it appended
    assert not history_is_right(path, [client.history]).holds


def test_a_file_that_was_tampered_with_is_noticed(tmp_path: Path) -> None:
    path = str(tmp_path / "wallets.db")
    with fencepost.open(path) as store:
        store.append([Wallet("ada").deposit(1)])
    assert file_is_sound(path).holds
    connection = apsw.Connection(path)
    connection.execute("UPDATE events SET data = x'00'")
    connection.close()
    assert not file_is_sound(path).holds
