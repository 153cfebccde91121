"""kill -9 at every step of an export with a compaction: the lake verifies, and the next run tidies up.

The steps run in a child process, in which Spark's tasks are plain calls: a Spark for each step would take minutes.
test_lake_kills.py kills real drivers.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import fencepost
from fencepost import AppendCondition, Event, Query
from fencepost.spark.lake_engine.files import lake_at

# Fork before any work: a child does one thing and ends. `steps` counts the calls that change files.
SCRIPT = """
import os, shutil, signal, sys
from pathlib import Path
import fencepost
from fencepost.engine import recorded
from fencepost.core.address import Address
from fencepost.spark import delta
from fencepost.spark.lake_engine import files
from fencepost.spark.lake import compaction, exports
from fencepost.spark.scanning.store import StoreScan
from fencepost.spark.scanning.lake import LakeScan
import fencepost.engines.sqlite  # here, not in every child

store, begun, retain = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
folder = begun.with_name("lake")

def here(spark, inputs, work):
    return [work(each) for each in inputs]

os.fsync = lambda file: None  # a kill of the process loses nothing that was written
exports.on_spark = compaction.on_spark = here
exports.parallelism = lambda spark: 2
exports.scan_of = lambda address: StoreScan(address)

def killing(step):
    count = 0
    def counted(call):
        def called(*args, **kwargs):
            nonlocal count
            count += 1
            if count == step:
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*args, **kwargs)
        return called
    for name in ("rename", "fsync", "mkdir"):
        setattr(os, name, counted(getattr(os, name)))
    for name in ("commit", "create", "put", "delete", "unused", "_sync"):
        setattr(delta.FileTable, name, counted(getattr(delta.FileTable, name)))

def run():
    exports.export(None, store, str(folder), chunk=20, retain_hours=retain)

def check(again):
    if again:
        run()
    found = files.lake_at(folder)
    problems = [files.problem_of(found.table, file) for file in found.files]
    assert not any(problems), problems
    with LakeScan(str(folder)).open() as lake, fencepost.open(store) as log:
        assert list(lake.read()) == list(log.read(up_to=lake.head())), "the lake is not a prefix of the log"
        assert list(recorded(lake)) == list(recorded(log, after=0, up_to=lake.head())), "recorded appends differ"
        if again:
            assert lake.head() == log.head()

def in_child(work):
    child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException as error:
            print(repr(error), flush=True)
            os._exit(1)
        os._exit(0)
    return os.waitpid(child, 0)[1]

step, killed = 0, True
while killed:
    step += 1
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(begun, folder)
    ended = in_child(lambda: (killing(step), run()))
    killed = os.WIFSIGNALED(ended)
    assert killed or ended == 0, ended
    assert in_child(lambda: (check(False), check(True))) == 0, step
print("killed at steps", step - 1)
"""

EXPORTS = (
    SCRIPT.partition("def killing")[0]
    + """
for up_to in (5, 9, 13, 17):
    exports.export(None, store, str(begun), chunk=20, up_to=up_to)
"""
)


def run(script: str, *arguments: str) -> str:
    done = subprocess.run([sys.executable, "-c", script, *arguments], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.timeout(900)
@pytest.mark.parametrize("retain_hours", [0, 1])
def test_a_kill_at_any_step_leaves_a_lake_that_verifies(tmp_path: Path, retain_hours: int) -> None:
    log, begun = str(tmp_path / "log.db"), tmp_path / "begun"
    with fencepost.open(log, record_conditions=True) as store:
        for number in range(33):
            mine = Query.of(tags={f"w:{number % 3}"})
            store.append([Event("Paid", tags={f"w:{number % 3}"})], AppendCondition(mine, after=store.head()))
    run(EXPORTS, log, str(begun), "0")
    assert len(lake_at(begun).files) == 4
    # This export closes the first chunk, so its files are merged, and begins the next one.
    said = run(SCRIPT, log, str(begun), str(retain_hours))
    assert int(said.split()[-1]) > 15
    lake = tmp_path / "lake"
    assert [file.rows for file in lake_at(lake).files] == [20, 13]
    kept = list((lake / "events").glob("*.parquet"))
    assert len(kept) == (2 if retain_hours == 0 else 7), "replaced files stay only if they are to"
