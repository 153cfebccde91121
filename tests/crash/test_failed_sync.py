"""A sync fails once, and what it should have synced is lost: later syncs do not bring it back.

An append whose sync failed is refused with a `StoreError`. It is not there afterwards, or in a
crash at that very moment, whole; and everything that is acknowledged before and after it stays.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path

import apsw
import pytest
from tests.crash.workload import NAME, Attempt, attempts, check_store, open_on
from tests.support.disk import Disk, PowerCut, by_chance, everything, failing, no_fault, nothing

from fencepost import EventStore, Placed, StoreError

pytestmark = pytest.mark.usefixtures("small")

SURVIVAL = {"nothing": nothing, "everything": everything, "some": by_chance(1)}


def syncs_of(script: Sequence[Attempt], folder: Path) -> int:
    """How many syncs the script takes, without closing the store."""
    folder.mkdir()
    disk = Disk()
    store = open_on(disk, folder)
    for attempt in script:
        attempt.made(store)
    syncs = sum(step.kind == "sync" for step in disk.log)
    store.close()
    return syncs


@contextmanager
def opened_at_last(disk: Disk, folder: Path) -> Iterator[EventStore]:
    """The store, opened again if the first try was what failed."""
    try:
        store = open_on(disk, folder)
    except StoreError:
        store = open_on(disk, folder)
    with store:
        yield store


@pytest.mark.parametrize("forgetful", [False, True], ids=["page cache keeps it", "page cache forgets it"])
def test_whichever_sync_fails_the_append_is_refused_and_what_is_acknowledged_stays(
    forgetful: bool, before: Path, after: Path
) -> None:
    script = attempts(9)
    refusals = 0
    for nth in range(1, syncs_of(script, before / "counting") + 1):
        folder = before / str(nth)
        folder.mkdir()
        disk = Disk(forgetful=forgetful)
        disk.fault = failing("sync", apsw.SQLITE_IOERR_FSYNC, nth=nth)
        done: list[Attempt] = []
        with opened_at_last(disk, folder) as store:
            for attempt in script:
                head = store.head()
                if isinstance(attempt.outcome(store), Placed):
                    done.append(attempt)
                else:
                    refusals += 1
                    assert store.head() == head
                    check_every_survival(disk, after, done, attempt)
            assert len(done) >= len(script) - 1
            # Nothing has come after the last one, so it may be there after all.
            check_every_survival(disk, after, done, None if script[-1] in done else script[-1])
        check_store(folder / NAME, done)
    assert refusals > len(script), "those in flushing, merging and checkpointing count too"


def check_every_survival(disk: Disk, folder: Path, done: list[Attempt], refused: Attempt | None = None) -> None:
    for what, kept in SURVIVAL.items():
        PowerCut(what, disk.platter.after_power_cut(kept), ()).restore(folder)
        try:
            check_store(folder / NAME, done, refused)
        except BaseException as error:
            error.add_note(f"after a power cut when {what} survives that was not synced")
            raise


def test_a_failed_checkpoint_makes_no_stored_append_look_failed_and_no_failed_one_look_stored(
    before: Path, after: Path
) -> None:
    disk, script = Disk(), attempts(30)
    done = []
    with open_on(disk, before) as store:
        disk.fault = failing("sync", apsw.SQLITE_IOERR_FSYNC, times=None, file=NAME)
        for attempt in script:
            head = store.head()
            if isinstance(attempt.outcome(store), Placed):
                done.append(attempt)
                assert store.head() == head + len(attempt.events)
            else:
                assert store.head() == head
        assert any(step.kind == "lost" for step in disk.log), "a checkpoint has failed"
        check_every_survival(disk, after, done)
        disk.fault = no_fault
    check_store(before / NAME, done)


def test_a_restarted_process_does_not_build_on_what_only_the_page_cache_still_holds(
    before: Path, after: Path, tmp_path: Path
) -> None:
    """The page cache outlives a killed process: the next one finds the refused append in the log.

    It may take it for stored, but then it has to write it again: what it appends after that must
    not stand on something that the next power cut takes away.
    """
    disk, script = Disk(), attempts(9)
    with open_on(disk, before) as store:
        for attempt in script[:5]:
            attempt.made(store)
        disk.fault = failing("sync", apsw.SQLITE_IOERR_FSYNC, file="-wal")
        assert isinstance(script[5].outcome(store), StoreError)
        # kill -9: nothing is closed, and the files are as the page cache has them.
        killed = tmp_path / "killed"
        killed.mkdir()
        for name in (NAME, f"{NAME}-wal"):
            shutil.copy(before / name, killed / name)
        restarted = Disk(platter=deepcopy(disk.platter))
    with open_on(restarted, killed) as store:
        there = len({event.data.split(b".")[0] for event in store.read()})
        assert there == 6, "the refused append is found, or this test would show nothing"
        for attempt in script[6:]:
            attempt.made(store)
        check_every_survival(restarted, after, script)


def test_a_checkpoint_that_fails_after_a_partial_one_loses_nothing(before: Path, after: Path) -> None:
    """A checkpoint goes only as far as the oldest reader allows, and SQLite does not sync such a part.

    If the sync of a later one fails, the part is lost with it, and SQLite would not copy it again.
    """
    disk, script = Disk(), attempts(40)
    done = []
    with open_on(disk, before) as store:
        reader = apsw.Connection(str(before / NAME), vfs=disk.name)
        for attempt in script:
            if attempt.number == 16:
                reader.execute("BEGIN")
                assert reader.execute("SELECT count(*) FROM events").get > 0
            if attempt.number == 25:
                assert copied_without_sync(disk), "a checkpoint got as far as the reader"
                reader.close()
                disk.fault = failing("sync", apsw.SQLITE_IOERR_FSYNC, file=NAME)
            if isinstance(attempt.outcome(store), Placed):
                done.append(attempt)
        assert len(done) == len(script) - 1
        check_every_survival(disk, after, done)
    check_every_survival(disk, after, done)
    open_on(disk, before).close()
    check_every_survival(disk, after, done)


def copied_without_sync(disk: Disk) -> bool:
    touched = [step.kind for step in disk.log if step.file == NAME]
    return touched[-1] == "write"
