"""kill -9 of driver and JVM while a view is refreshed: what is there is always a whole view."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.spark.purses import Added, Moved, Purse
from tests.spark.slow.conftest import environment

import fencepost
from fencepost.decisions import Projection, encode
from fencepost.spark.delta import FileTable

pytestmark = pytest.mark.timeout(900)  # several JVMs start in it, which takes long on a busy machine

EVENTS = 2_000
STEP = 400
KILLS = 3

REFRESH = """
import sys
import fencepost.spark
from tests.spark.purses import Purse
store, folder, step, events = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
spark = fencepost.spark.session("local[2]")
view = fencepost.spark.View(Purse, by="purse_id", at=folder, store=store, spark=spark, keep=100)
print("running", flush=True)
while view.position < events:
    view.refresh(up_to=view.position + step)
previous = 0
for position in view.versions:
    for row in view.at(position).collect():
        print("row", position, row["purse_id"], row["amount"], row["position"])
    for row in view.changes(after=previous, up_to=position).collect():
        print("change", position, row["purse_id"], row["after"]["amount"], row["after"]["position"])
    previous = position
print("finished", flush=True)
"""


def test_a_view_that_is_killed_again_and_again_is_whole_at_every_version(tmp_path: Path) -> None:
    store, folder = str(tmp_path / "purses.db"), tmp_path / "view"
    chance = random.Random(11)
    with fencepost.open(store) as opened:
        opened.append(
            [
                encode(Added(f"p{chance.randrange(50)}", chance.randrange(100)))
                if chance.random() < 0.7
                else encode(Moved(f"p{chance.randrange(50)}", f"p{chance.randrange(50)}", 5))
                for _ in range(EVENTS)
            ]
        )
    killed = 0
    while True:
        driver = subprocess.Popen(
            [sys.executable, "-c", REFRESH, store, str(folder), str(STEP), str(EVENTS)],
            env=environment(tmp_path),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        if killed < KILLS:
            assert driver.stdout is not None
            assert driver.stdout.readline().strip() == "running"
            before = versions(folder)
            while versions(folder) == before and driver.poll() is None:  # until it is at work
                time.sleep(0.02)
            time.sleep(chance.uniform(0.0, 1.2))
            os.killpg(driver.pid, signal.SIGKILL)
            driver.communicate()
            killed += 1
        else:
            output, errors = driver.communicate(timeout=300)
            break
    assert output.endswith("finished\n"), errors[-3_000:]
    found: dict[str, dict[int, dict[str, tuple[int, int]]]] = {"row": {}, "change": {}}
    for line in output.splitlines():
        kind, _, rest = line.partition(" ")
        if kind in found:
            version, key, amount, position = rest.split()
            found[kind].setdefault(int(version), {})[key] = (int(amount), int(position))
    assert list(found["row"]) == list(range(STEP, EVENTS + 1, STEP))
    replayed: dict[str, tuple[int, int]] = {}
    for version, rows in found["row"].items():
        assert rows == folded(store, version)
        replayed |= found["change"][version]
        assert replayed == rows


def versions(folder: Path) -> int:
    state = FileTable(str(folder)).state()
    return 0 if state is None else state.number


def folded(path: str, up_to: int) -> dict[str, tuple[int, int]]:
    instances: dict[str, Projection] = {}
    with fencepost.open(path) as store:
        for event in store.read(up_to=up_to):
            for scope in Purse.definition.scopes_of(event):
                instances.setdefault(scope["purse_id"], Purse(**scope)).apply(event)
    return {key: (instance.amount, instance.position) for key, instance in instances.items()}  # type: ignore[attr-defined]
