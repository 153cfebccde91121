"""A store does not cross a fork: SQLite's locks do not, so a child is refused whatever its parent had open."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.sqlite import forking
from tests.support.processes import Child

import fencepost
from fencepost.engines.sqlite import verify

Scenario = Callable[[str], list[str]]

REMEDY = "'spawn' or 'forkserver'"


@pytest.fixture
def play(path: Path, tmp_path: Path) -> Scenario:
    """What the process and its children have reported, in order."""

    def play(scenario: str) -> list[str]:
        with Child(forking.__file__, tmp_path / "reports", scenario, path) as child:
            child.result()
            return child.lines()

    return play


def types_in(path: Path) -> list[str]:
    assert verify(path).problems == []
    with fencepost.open(path) as store:
        return [event.type for event in store.read()]


def test_a_child_may_not_use_a_store_or_open_a_file_that_its_parent_has_open(play: Scenario, path: Path) -> None:
    *refused, ended, parent = play("with_an_open_store")
    assert len(refused) == 10
    for said in refused:
        assert said.startswith("StoreClosed")
        assert REMEDY in said
    assert ended == "ended with 0"
    assert parent == "3001"
    assert types_in(path) == ["A"] * 3_000 + ["C"]
    assert not Path(f"{path}.copy").exists()


def test_a_file_that_the_parent_has_closed_before_the_fork_may_be_opened(play: Scenario, path: Path) -> None:
    assert play("with_a_closed_store") == ["2", "3", "0", "ended with 0", "4"]
    assert types_in(path) == ["A", "B", "C", "D"]


def test_another_file_may_be_opened_and_what_was_inherited_is_refused_to_grandchildren(
    play: Scenario, path: Path
) -> None:
    mine, grandchild, status, ended = play("with_another_file_open")
    assert mine == "1"
    assert grandchild.startswith("StoreClosed")
    assert (status, ended) == ("0", "ended with 0")


def test_a_child_that_was_forked_while_a_thread_was_inside_sqlite_may_open_no_file(play: Scenario) -> None:
    """SQLite's mutexes are locked there for ever: the child would hang, not fail."""
    during, ended, afterwards, ended_afterwards = play("while_a_thread_is_inside_sqlite")
    assert during.startswith("StoreClosed")
    assert "while a thread of its parent used SQLite" in during
    assert REMEDY in during
    assert afterwards == "1"
    assert ended == ended_afterwards == "ended with 0"


def test_a_child_that_drops_what_it_has_inherited_takes_nothing_from_others(play: Scenario, path: Path) -> None:
    assert play("dropping_what_was_inherited") == ["log: True", "ended with 0", "3"]
    assert types_in(path) == ["A", "B", "C"]


def test_a_child_that_drops_its_inherited_connections_does_not_delete_the_log_of_a_killed_process(
    play: Scenario, path: Path
) -> None:
    assert play("dropping_connections_beside_the_log_of_a_killed_process") == ["ended with 0"]
    assert types_in(path) == ["A", "B"]


def test_processes_that_are_spawned_share_the_file_and_forked_ones_are_refused(play: Scenario, path: Path) -> None:
    spawned, one, served, two, forked, three, parent = play("by_multiprocessing")
    assert (spawned, served) == ("spawn: 2", "forkserver: 3")
    assert forked.startswith("fork: StoreClosed")
    assert one == two == three == "ended with 0"
    assert parent == "4"
    assert types_in(path) == ["A", "spawn", "forkserver", "Z"]
