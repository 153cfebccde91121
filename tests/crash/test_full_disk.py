"""The disk is full at any write: a clear error, nothing torn, and appends work again once there is room."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import apsw
import pytest
from tests.crash.workload import NAME, Attempt, attempts, check_index, check_store, open_on
from tests.support.disk import Disk, PowerCut, everything, failing, no_fault, nothing

from fencepost import EventStore, Placed, StoreError, StoreUnavailable
from fencepost.engine import engine_of, verify

pytestmark = pytest.mark.usefixtures("small")


def writes_of(script: Sequence[Attempt], folder: Path) -> int:
    """How many writes the script takes, without closing the store."""
    folder.mkdir()
    disk = Disk()
    store = open_on(disk, folder)
    for attempt in script:
        attempt.made(store)
    writes = sum(step.kind == "write" for step in disk.log)
    store.close()
    return writes


def open_outcome(disk: Disk, folder: Path) -> EventStore | StoreError:
    try:
        return open_on(disk, folder)
    except StoreError as error:
        return error


def check_clear(error: object) -> None:
    assert isinstance(error, StoreUnavailable)
    assert "the disk is full; nothing was written, make room and try again" in str(error)


def test_whichever_write_finds_the_disk_full_nothing_is_torn_and_appends_work_again(before: Path, after: Path) -> None:
    script = attempts(8)
    for nth in range(1, writes_of(script, before / "counting") + 1):
        folder = before / str(nth)
        folder.mkdir()
        disk = Disk()
        disk.fault = failing("write", apsw.SQLITE_FULL, nth=nth, times=None)
        opened = open_outcome(disk, folder)
        if not isinstance(opened, EventStore):
            check_clear(opened)
            disk.fault = no_fault
            opened = open_on(disk, folder)
        with opened as store:
            for attempt in script:
                head = store.head()
                outcome = attempt.outcome(store)
                if not isinstance(outcome, Placed):
                    check_clear(outcome)
                    assert store.head() == head
                    disk.fault = no_fault
                    outcome = attempt.made(store)
                assert outcome.first == head + 1
            assert disk.fault is no_fault, "the disk was full at some time"
            PowerCut("", disk.platter.after_power_cut(nothing), ()).restore(after)
            check_store(after / NAME, script)
        check_store(folder / NAME, script)


def test_while_the_disk_is_full_every_append_is_refused_and_everything_can_be_read(before: Path) -> None:
    disk, script = Disk(), attempts(12)
    with open_on(disk, before) as store:
        for attempt in script[:8]:
            attempt.made(store)
        stored = list(store.read())
        disk.fault = failing("write", apsw.SQLITE_FULL, times=None)
        for attempt in script[8:]:
            with pytest.raises(StoreUnavailable, match="disk is full"):
                attempt.made(store)
        assert list(store.read()) == stored
        disk.fault = no_fault
        for attempt in script[8:]:
            attempt.made(store)
            check_index(store, attempt)


def test_a_write_that_fails_for_another_reason_is_a_storage_error_and_tears_nothing(before: Path, after: Path) -> None:
    disk, script = Disk(), attempts(12)
    with open_on(disk, before) as store:
        disk.fault = failing("write", apsw.SQLITE_IOERR_WRITE, nth=20)
        outcomes = [attempt.outcome(store) for attempt in script]
        done = [attempt for attempt, outcome in zip(script, outcomes, strict=True) if isinstance(outcome, Placed)]
        (error,) = (outcome for outcome in outcomes if not isinstance(outcome, Placed))
        assert not isinstance(error, StoreUnavailable), "trying again would not help"
        for kept in (nothing, everything):
            PowerCut("", disk.platter.after_power_cut(kept), ()).restore(after)
            check_store(after / NAME, done)


def test_a_store_whose_pages_are_still_in_the_log_is_sound(before: Path) -> None:
    """The file says how many pages it has before it has all of them: there was no room to copy the others."""
    disk, script = Disk(), attempts(12)
    with open_on(disk, before) as store:
        for attempt in script:
            attempt.made(store)
        disk.fault = failing("write", apsw.SQLITE_FULL, nth=2, times=None, file=NAME)
        writer = engine_of(store)._committer.writer  # type: ignore[attr-defined]
        with pytest.raises(apsw.FullError):
            writer.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        content = (before / NAME).stat().st_size
        assert content < writer.execute("PRAGMA page_count").get * 4096, "the file is shorter than it says"
        assert verify(before / NAME).problems == []
        disk.fault = no_fault
    check_store(before / NAME, script)
