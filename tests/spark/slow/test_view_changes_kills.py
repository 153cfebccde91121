"""kill -9 of driver and JVM while a view records its changes: what is published is what was committed, once."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from tests.spark.purses import Added, Moved
from tests.spark.slow.conftest import environment
from tests.spark.slow.test_view_kills import folded, versions

import fencepost
from fencepost.decisions import encode
from fencepost.spark.view.folder import read_view_manifest

pytestmark = pytest.mark.timeout(900)  # several JVMs start in it, which takes long on a busy machine

EVENTS = 2_000
STEP = 200
KILLS = 4

REFRESH = """
import sys
import fencepost.spark
from tests.spark.purses import Purse
store, folder, step, events = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
spark = fencepost.spark.session("local[2]")
view = fencepost.spark.View(Purse, by="purse_id", at="file:" + folder, store=store, spark=spark, keep=100, changes=True)
print("running", flush=True)
while view.position < events:
    view.refresh(upto=view.position + step)
view.refresh()
print("finished", flush=True)
"""


def test_replayed_changes_of_killed_refreshes_are_the_view_at_each_version(tmp_path: Path) -> None:
    store, folder = str(tmp_path / "purses.db"), tmp_path / "view"
    chance = random.Random(12)
    with fencepost.open(store) as opened:
        opened.append(
            [
                encode(Added(f"p{chance.randrange(30)}", chance.randrange(100)))
                if chance.random() < 0.7
                else encode(Moved(f"p{chance.randrange(30)}", f"p{chance.randrange(30)}", 5))
                for _ in range(EVENTS)
            ]
        )
    for kill in range(KILLS + 1):
        driver = subprocess.Popen(
            [sys.executable, "-c", REFRESH, store, str(folder), str(STEP), str(EVENTS)],
            env=environment(tmp_path),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        if kill == KILLS:
            output, errors = driver.communicate(timeout=600)
            break
        assert driver.stdout is not None
        assert driver.stdout.readline().strip() == "running"
        before = versions(folder)
        while versions(folder) == before and driver.poll() is None:  # until it is at work
            time.sleep(0.02)
        time.sleep(chance.uniform(0.0, 1.0))
        os.killpg(driver.pid, signal.SIGKILL)
        driver.communicate()
        manifest = read_view_manifest(folder)
        committed = [version.position for version in manifest.versions] if manifest is not None else []
        there = sorted(published(folder))
        assert there == committed[: len(there)], "no change of a refresh that was not committed"
        assert len(there) >= len(committed) - 1, "only the last refresh may have been killed before it published"
    assert output.endswith("finished\n"), errors[-3_000:]
    feed = published(folder)
    assert sorted(feed) == list(range(STEP, EVENTS + 1, STEP))
    rows: dict[str, tuple[int, int]] = {}
    for position in sorted(feed):
        for change in feed[position]:
            assert (change["before"] and values(change["before"])) == rows.get(change["purse_id"])
            assert change["position"] == position
        rows |= {change["purse_id"]: values(change["after"]) for change in feed[position]}
        assert rows == folded(store, position)


def published(folder: Path) -> dict[int, list[dict[str, Any]]]:
    """The published changes of each refresh, read without Spark."""
    found: dict[int, list[dict[str, Any]]] = {}
    for place in folder.glob("changes/*/*"):
        found[int(place.name)] = [row for path in place.glob("*.parquet") for row in pq.read_table(path).to_pylist()]
    return found


def values(row: dict[str, Any]) -> tuple[int, int]:
    return row["amount"], row["position"]
