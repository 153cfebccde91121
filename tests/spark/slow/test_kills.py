"""kill -9 of driver and JVM in mid stream: nothing lost, nothing twice, in order."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.spark.conftest import stored
from tests.spark.slow.conftest import environment

import fencepost
from fencepost import Event

pytestmark = pytest.mark.timeout(900)  # several JVMs start in each, which takes long on a busy machine

EVENTS = 3_000

COPY = """
import sys
import fencepost.spark
source, target, folder = sys.argv[1:]
spark = fencepost.spark.session("local[2]")
events = spark.readStream.format("fencepost").option("store", source).option("maxEventsPerTrigger", 250).load()
copies = events.select("type", "tags", "data").writeStream.format("fencepost").option("store", target)
copies = copies.option("checkpointLocation", folder + "/checkpoint").option("staging", folder + "/staging")
query = copies.trigger(availableNow=True).start()
print("running", flush=True)
query.awaitTermination()
print("finished", flush=True)
"""


def test_a_stream_that_is_killed_again_and_again_copies_exactly(tmp_path: Path) -> None:
    source, target = str(tmp_path / "source.db"), str(tmp_path / "target.db")
    with fencepost.open(source) as store:
        store.append([Event("Counted", data=str(number).encode(), tags={"n"}) for number in range(EVENTS)])
    fencepost.open(target).close()
    chance = random.Random(5)
    killed = 0
    while True:
        driver = subprocess.Popen(
            [sys.executable, "-c", COPY, source, target, str(tmp_path)],
            env=environment(tmp_path),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        assert driver.stdout is not None
        if killed < 3:
            assert driver.stdout.readline().strip() == "running"
            before = len(stored(target))
            while len(stored(target)) == before and driver.poll() is None:  # kill it while it works
                time.sleep(0.05)
            time.sleep(chance.uniform(0.0, 1.0))
            os.killpg(driver.pid, signal.SIGKILL)
            driver.wait()
            killed += 1
        else:
            assert "finished" in driver.communicate(timeout=200)[0]
            break
    assert [int(event.data) for event in stored(target)] == list(range(EVENTS))
