"""kill -9 of driver and JVM while a log is followed through a lake: the same ranges come again with the same events."""

from __future__ import annotations

import random
import time
from pathlib import Path

import msgspec
import pytest
from tests.spark.slow.conftest import Driver

import fencepost
from fencepost import Event

pytestmark = pytest.mark.timeout(900)  # several JVMs start in it, which takes long on a busy machine

EVENTS = 1_000
BATCH = 125
KILLS = 2

# Each batch is noted when it is given and when it was handled. Between the two the lake is exported and compacted, so
# a batch that comes again is read from other files.
FOLLOW = """
import json, sys
import fencepost, fencepost.spark
from fencepost.spark import lake
store, folder, batch_size = sys.argv[1], sys.argv[2], int(sys.argv[3])
spark = fencepost.spark.session("local[2]")

def note(**what):
    with open(folder + "/notes", "a") as notes:
        notes.write(json.dumps(what) + "\\n")

def handle(events, batch):
    rows = sorted((row["position"], bytes(row["data"]).decode()) for row in events.collect())
    note(given=[batch.id, batch.after, batch.up_to], rows=rows)
    spark = events.sparkSession
    lake.export(spark, store, folder + "/lake", up_to=batch.up_to + 100, chunk=60, compact=batch.id % 2 > 0)
    with fencepost.open(store) as opened:
        opened.append([fencepost.Event("Late", data=b"late")])
    note(handled=[batch.id, batch.after, batch.up_to])

lake.export(spark, store, folder + "/lake", up_to=0)
query = fencepost.spark.follow(
    spark, store, handle, lake=folder + "/lake", checkpoint=folder + "/checkpoint", max_events=batch_size,
    availableNow=True,
)
query.awaitTermination()
print("finished", flush=True)
"""


def test_a_stream_that_is_killed_again_and_again_repeats_its_ranges(tmp_path: Path) -> None:
    store, notes = str(tmp_path / "log.db"), tmp_path / "notes"
    notes.touch()
    with fencepost.open(store) as opened:
        opened.append([Event("Counted", data=str(number).encode()) for number in range(EVENTS)])
    chance = random.Random(7)
    for _ in range(KILLS):
        driver = Driver(tmp_path, FOLLOW, store, str(tmp_path), str(BATCH))
        before = len(taken(notes))
        driver.wait_until(lambda: len(taken(notes)) > before)  # noqa: B023
        assert driver.process.poll() is None, driver.complained()[-3_000:]
        time.sleep(chance.uniform(0.0, 1.0))  # so that it is killed at work, each time at another step
        driver.kill()
    done = Driver(tmp_path, FOLLOW, store, str(tmp_path), str(BATCH)).result()
    assert "finished" in done.stdout, done.stderr[-3_000:]
    with fencepost.open(store) as opened:
        expected = {event.position: event.data.decode() for event in opened.read()}
    given: dict[int, tuple[int, int]] = {}
    for note in taken(notes):
        if "given" in note:
            id, after, up_to = note["given"]
            assert given.setdefault(id, (after, up_to)) == (after, up_to)
            assert [tuple(row) for row in note["rows"]] == [
                (position, expected[position]) for position in range(after + 1, up_to + 1)
            ]
    ends = [given[id][1] for id in sorted(given)]
    assert [given[id][0] for id in sorted(given)] == [0, *ends[:-1]]
    assert ends[-1] >= EVENTS


def taken(notes: Path) -> list[dict[str, list[list[int]]]]:
    """The notes, without one that was cut short by a kill."""
    whole = notes.read_bytes().rpartition(b"\n")[0].splitlines()
    return [msgspec.json.decode(line) for line in whole if line.startswith(b"{") and line.endswith(b"}")]
