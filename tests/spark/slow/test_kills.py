"""kill -9 of driver and JVM in mid stream: nothing lost, nothing twice, in order."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest
from tests.spark.conftest import stored
from tests.spark.slow.conftest import Driver

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
query.awaitTermination()
print("finished", flush=True)
"""


def test_a_stream_that_is_killed_again_and_again_copies_exactly(tmp_path: Path) -> None:
    source, target = str(tmp_path / "source.db"), str(tmp_path / "target.db")
    with fencepost.open(source) as store:
        store.append([Event("Counted", data=str(number).encode(), tags={"n"}) for number in range(EVENTS)])
    fencepost.open(target).close()
    chance = random.Random(5)
    with fencepost.open(target) as watched:
        for _ in range(3):
            driver = Driver(tmp_path, COPY, source, target, str(tmp_path))
            before = watched.head()
            driver.wait_until(lambda: watched.head() > before)  # noqa: B023
            assert driver.process.poll() is None, driver.complained()[-3_000:]
            time.sleep(chance.uniform(0.0, 1.0))  # so that it is killed at work, each time at another step
            driver.kill()
    done = Driver(tmp_path, COPY, source, target, str(tmp_path)).result()
    assert "finished" in done.stdout, done.stderr[-3_000:]
    assert [int(event.data) for event in stored(target)] == list(range(EVENTS))
