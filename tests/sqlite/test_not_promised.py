"""What docs/explanation/guarantees.md lists as not promised: what really happens, so that the page stays honest."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.sqlite import dropped_locks
from tests.sqlite.outside import outside
from tests.support.processes import Child

import fencepost
from fencepost import Event, Query, StoreCorrupt
from fencepost.engines.sqlite import verify


def test_a_row_that_another_tool_deletes_is_missed_by_reads_and_by_verify(path: Path) -> None:
    with fencepost.open(path) as store:
        store.append([Event("A", tags={"a"})] * 3)
    outside(path, "DELETE FROM events WHERE position = 2")
    assert next(str(problem) for problem in verify(path).problems) == "position 2: is missing; the next event is at 3"
    with fencepost.open(path) as store, pytest.raises(StoreCorrupt, match="event 2 is missing"):
        list(store.read())


def test_a_condition_does_not_see_an_event_whose_postings_were_deleted_but_verify_does(path: Path, small: None) -> None:
    query = Query.of(tags={"once"})
    with fencepost.open(path) as store:
        store.append([Event("A", tags={"once"})])
        for _ in range(20):
            store.append([Event("B", tags={"often"})])
    outside(path, "DELETE FROM postings WHERE term = 'once'")
    with fencepost.open(path) as store:
        assert list(store.read(query)) == []
    assert [problem.part for problem in verify(path).problems] == ["index"]


# Another library that opens a file of the store in the same process. Each runs in a process of its own.


def test_a_process_that_reads_the_files_by_other_means_loses_its_log_and_says_so(path: Path, tmp_path: Path) -> None:
    """Another process takes itself for the last user and deletes the log, into which this one then writes."""
    with Child(dropped_locks.__file__, tmp_path / "reports", "read_all_files", path) as child:
        child.wait_for(2)
        child.kill()
        assert child.lines() == ["other: 2", "mine: its write-ahead log was deleted; what was appended is lost"]
    with fencepost.open(path) as store:
        assert [event.type for event in store.read()] == ["A", "Other"]


@pytest.mark.parametrize(("read_in_between", "outcome"), [("", "StoreUnavailable"), ("-shm", "2")])
def test_another_process_writes_into_a_transaction_of_a_process_that_reads_the_shm(
    path: Path, tmp_path: Path, read_in_between: str, outcome: str
) -> None:
    """The write lock lies on the -shm; closing any descriptor of the file drops it. Without that, it is held."""
    with Child(
        dropped_locks.__file__, tmp_path / "reports", "read_inside_a_transaction", path, read_in_between
    ) as child:
        child.result()
        assert [line.split(":")[:2] for line in child.lines()] == [["other", f" {outcome}"]]
