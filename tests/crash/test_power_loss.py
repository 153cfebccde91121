"""Power loss at every step of a workload, with every kind of partly written file.

The workload flushes the tail, merges generations, checkpoints the write-ahead log and closes and
opens the store on its way; that it does so is checked too, or the tests would say little.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from copy import deepcopy
from itertools import cycle
from pathlib import Path

import apsw
import pytest
from tests.crash.workload import NAME, Attempt, attempts, check_store, open_on
from tests.support.disk import Disk, Platter, PowerCut, Step, nothing, power_cuts

pytestmark = pytest.mark.usefixtures("small")

Run = Callable[[Disk, Path, Sequence[Attempt]], None]


def opening_twice(disk: Disk, folder: Path, script: Sequence[Attempt]) -> None:
    """Make the attempts, each marked when it is acknowledged, the second half after opening the store again."""
    half = len(script) // 2
    for part in (script[:half], script[half:]):
        with open_on(disk, folder) as store:
            for attempt in part:
                attempt.made(store)
                disk.mark(attempt)


def taking_turns(disk: Disk, folder: Path, script: Sequence[Attempt]) -> None:
    """Likewise through two handles, so that each append finds its positions taken at first."""
    with ExitStack() as opened:
        stores = cycle([opened.enter_context(open_on(disk, folder)) for _ in range(2)])
        for attempt, store in zip(script, stores, strict=False):
            attempt.made(store)
            disk.mark(attempt)


def check_cut(cut: PowerCut, folder: Path, script: Sequence[Attempt]) -> list[Attempt]:
    cut.restore(folder)
    done = list(cut.marks)
    try:
        return check_store(folder / NAME, done, next(iter(script[len(done) :]), None))
    except BaseException as error:
        error.add_note(f"after a power cut at {cut.after}")
        raise


@pytest.mark.parametrize(("run", "appends"), [(opening_twice, 20), (taking_turns, 14)])
def test_a_power_cut_at_any_step_loses_nothing_acknowledged_and_tears_no_append(
    run: Run, appends: int, before: Path, after: Path
) -> None:
    disk, script = Disk(), attempts(appends)
    run(disk, before, script)
    assert disk.marks() == script
    survived = [len(check_cut(cut, after, script)) > len(cut.marks) for cut in power_cuts(disk.log)]
    assert survived.count(True) > 10, "an unacknowledged append is there in some cases"
    assert survived.count(False) > 100, "and in other cases it is not"
    check_that_everything_happened(disk, before)


def check_that_everything_happened(disk: Disk, folder: Path) -> None:
    connection = apsw.Connection(str(folder / NAME))
    try:
        levels = connection.execute("SELECT max(level), count(*) FROM generations WHERE state = 'ready'").get
        assert levels[0] >= 1, "generations were merged"
        assert levels[1] > 1, "and other operations follow them"
    finally:
        connection.close()
    first_mark = next(number for number, step in enumerate(disk.log) if step.kind == "mark")
    checkpoints = sum(step.kind == "sync" and step.file == NAME for step in disk.log[first_mark:])
    assert checkpoints >= 2, "the write-ahead log was copied into the file on the way"


def test_a_power_cut_while_recovering_from_a_power_cut_loses_nothing_either(before: Path, after: Path) -> None:
    disk, script = Disk(), attempts(16)
    opening_twice(disk, before, script)
    for first in list(power_cuts(disk.log))[60::60]:
        first.restore(before)
        again = Disk()
        for attempt in first.marks:
            again.mark(attempt)
        with open_on(again, before) as store:
            # An event that was read must survive like an acknowledged one.
            there = len({event.data.split(b".")[0] for event in store.read()})
            for attempt in script[len(first.marks) : there]:
                again.mark(attempt)
            for attempt in script[there : there + 2]:
                attempt.made(store)
                again.mark(attempt)
        for second in power_cuts(again.log, chances=0, begin=first.image):
            if len(second.marks) >= len(first.marks):
                check_cut(second, after, script)


def test_what_was_read_after_a_process_was_killed_before_its_sync_outlives_a_power_cut(
    before: Path, after: Path, tmp_path: Path
) -> None:
    """The page cache outlives the process, so the next one finds the append and shows it: then it must stay."""
    disk, script = Disk(), attempts(6)
    killed = tmp_path / "killed"
    platters: list[Platter] = []

    def kill(step: Step) -> None:
        if step.kind == "sync" and not platters:
            shutil.copytree(before, killed, ignore=shutil.ignore_patterns("*-shm"))
            platters.append(deepcopy(disk.platter))

    with open_on(disk, before) as store:
        for attempt in script[:-1]:
            attempt.made(store)
        disk.fault = kill_after_events(kill, script[-1])
        script[-1].made(store)
    restarted = Disk(platter=platters[0])
    with open_on(restarted, killed) as store:
        found = [event.event for event in store.read()]
        assert found == [event for attempt in script for event in attempt.events], "the last one is found"
        PowerCut("", restarted.platter.after_power_cut(nothing), ()).restore(after)
        check_store(after / NAME, script)


def kill_after_events(kill: Callable[[Step], None], attempt: Attempt) -> Callable[[Step], None]:
    """Only the sync that follows the writing of the attempt's events: flushing and merging come before."""
    written: list[Step] = []

    def fault(step: Step) -> None:
        if step.kind == "write" and attempt.events[0].data in step.data:
            written.append(step)
        if written:
            kill(step)

    return fault
