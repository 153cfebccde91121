"""`fencepost pipeline` as people run it: from the shell, killed and run again, and for good."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from examples.wallet.domain import Balance, DepositMade, MoneyTransferred, WalletOpened
from tests.spark.slow.conftest import SOURCES, environment

import fencepost
from fencepost import Query
from fencepost.decisions import encode, project
from fencepost.spark.delta import FileTable

pytestmark = pytest.mark.timeout(900)  # several JVMs start in each, which takes long on a busy machine

ROOT = Path(SOURCES).parent
PIPELINE = "examples.wallet.pipeline"
WALLETS = [f"w{number}" for number in range(8)]


def filled(path: str) -> None:
    with fencepost.open(path) as store:
        store.append([encode(WalletOpened(name, name, 10_000)) for name in WALLETS])
        for round in range(20):
            a, b, c = random.Random(round).sample(WALLETS, 3)
            store.append([encode(MoneyTransferred(f"t{round}", a, b, 2_000))])
            store.append([encode(MoneyTransferred(f"t{round}b", b, c, 1_950))])


def command(store: str, folder: Path, *more: str) -> list[str]:
    words = ["pipeline", PIPELINE, "--store", store, "--folder", str(folder), "--master", "local[2]"]
    return [sys.executable, "-m", "fencepost.cli", *words, *more]


def begun(store: str, folder: Path, *more: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command(store, folder, *more),
        cwd=ROOT,
        env=environment(folder.parent),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def expected(store: str) -> dict[str, int]:
    with fencepost.open(store) as opened:
        return {name: project(opened, Balance(name)).amount for name in WALLETS}


def flags(store: str) -> list[Any]:
    with fencepost.open(store) as opened:
        found = [json.loads(event.data) for event in opened.read(Query.of(types={"TransferFlagged"}))]
    return sorted((flag["transfer_id"], flag["received_by"]) for flag in found)


def test_a_pipeline_that_is_killed_again_and_again_ends_as_one_that_was_not(tmp_path: Path) -> None:
    whole, killed = str(tmp_path / "whole.db"), str(tmp_path / "killed.db")
    filled(whole)
    filled(killed)
    output, errors = begun(whole, tmp_path / "whole").communicate(timeout=300)
    assert output, errors[-3_000:]
    done = json.loads(output)
    assert [query["query"] for query in done["queries"]] == ["lake", "balances", "movements", "flows", "flags"]
    chance = random.Random(3)
    for kill in range(4):
        driver = begun(killed, tmp_path / "killed")
        deadline = time.monotonic() + 120
        # Each time a little further: when the checkpoint of another query has come to be.
        checkpoints = tmp_path / "killed" / "checkpoints"
        while time.monotonic() < deadline and driver.poll() is None:
            if checkpoints.exists() and len(list(checkpoints.iterdir())) > kill:
                break
            time.sleep(0.05)
        time.sleep(chance.uniform(0.0, 2.0))
        os.killpg(driver.pid, signal.SIGKILL)
        driver.communicate()
    output, errors = begun(killed, tmp_path / "killed").communicate(timeout=300)
    assert output, errors[-3_000:]
    assert json.loads(output)["results"] == done["results"]
    assert {row["wallet_id"]: row["amount"] for row in done["results"]["balances"]} == expected(whole)
    assert flags(killed) == flags(whole)
    assert len(flags(whole)) >= 20


def test_a_pipeline_that_stays_keeps_everything_current_until_it_is_interrupted(tmp_path: Path) -> None:
    store = str(tmp_path / "wallet.db")
    filled(store)
    driver = begun(store, tmp_path / "out", "--every", "1 second")
    try:
        wait_for(driver, lambda: len(flags(store)) >= 20)
        with fencepost.open(store) as opened:
            opened.append([encode(DepositMade("w1", "late", 77))])
            opened.append([encode(MoneyTransferred("late1", "w1", "w2", 3_000))])
            opened.append([encode(MoneyTransferred("late2", "w2", "w3", 2_999))])
            late = opened.head()
        wait_for(driver, lambda: ("late2", "late1") in flags(store))
        wait_for(driver, lambda: covered(tmp_path / "out" / "balances") >= late)
        os.kill(driver.pid, signal.SIGINT)
        output, errors = driver.communicate(timeout=120)
    finally:
        if driver.poll() is None:
            os.killpg(driver.pid, signal.SIGKILL)
            driver.wait()
    assert driver.returncode == 0, errors[-3_000:]
    assert {row["wallet_id"]: row["amount"] for row in json.loads(output)["results"]["balances"]} == expected(store)


def covered(view: Path) -> int:
    state = FileTable(str(view)).state()
    return 0 if state is None else state.newest.position


def wait_for(driver: subprocess.Popen[str], happened: Any) -> None:
    deadline = time.monotonic() + 240
    while not happened():
        assert driver.poll() is None, driver.communicate()[1][-3_000:]
        assert time.monotonic() < deadline
        time.sleep(0.5)


def test_what_is_wrong_is_said_before_spark_starts(tmp_path: Path) -> None:
    for words, problem in [
        (command(str(tmp_path / "absent.db"), tmp_path), "there is no such store"),
        (
            [*command("x", tmp_path)[:3], "pipeline", "no.such.module", "--store", str(tmp_path / "s.db")],
            "no.such.module",
        ),
    ]:
        fencepost.open(str(tmp_path / "s.db")).close()
        done = subprocess.run(words, cwd=ROOT, env=environment(tmp_path), capture_output=True, text=True, check=False)
        assert done.returncode in (2, 3)
        assert problem in done.stderr
        assert len(done.stderr.splitlines()) == 1
