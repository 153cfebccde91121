"""Backups are whole, and `verify` finds every change that another program made to a file."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest
from tests.sqlite.outside import outside

import fencepost
from fencepost import Event, InvalidInput, Query, StoreUnavailable
from fencepost.engines.sqlite import backup, verify

INDEXED = "generation = 1 AND position = 3"


@pytest.fixture
def damaged(path: Path, small: None) -> Callable[..., list[str]]:
    """Damages a store of 11 events and returns what `verify` must report."""
    with fencepost.open(path) as store:
        for number in range(1, 12):
            id = UUID(int=number) if number == 3 else None
            event = Event(f"T{number % 2}", data=b"content %d" % number, tags={f"n:{number}", "all"}, id=id)
            store.append([event], checkpoint=("consumer", number))
    assert verify(path).problems == []

    def after(*statements: str) -> list[str]:
        outside(path, *statements)
        return [str(problem) for problem in verify(path).problems]

    return after


def test_a_sound_store_is_counted(path: Path, small: None) -> None:
    with fencepost.open(path) as store:
        for _ in range(11):
            store.append([Event("A", tags={"x", "y"})])
    report = verify(path)
    assert report.sound
    assert report.events == 11
    # Each event has a posting for each of its tags and one that every event has, once it is indexed.
    assert [[report.postings]] == outside(path, "SELECT count(*) FROM postings")
    assert report.postings >= 3 * 4


def test_a_flipped_bit_in_the_file_is_found(damaged: Callable[..., list[str]], path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[content.index(b"content 7") + 3] ^= 1
    path.write_bytes(content)
    report = verify(path)
    (problem,) = report.problems
    assert re.fullmatch(r"page \d+: does not agree with its checksum.*events", str(problem))


def test_a_missing_event_is_a_gap(damaged: Callable[..., list[str]]) -> None:
    problems = damaged("DELETE FROM events WHERE position = 4")
    assert "position 4: is missing; the next event is at 5" in problems


@pytest.mark.parametrize("term", ["''", "'all'", "'n:3'", "x'00000000000000000000000000000003'"])
def test_a_missing_posting_is_found(damaged: Callable[..., list[str]], term: str) -> None:
    problems = damaged(f"DELETE FROM postings WHERE {INDEXED} AND term = {term}")
    assert len(problems) == 1
    assert "event 3: has no posting for" in problems[0]


@pytest.mark.parametrize(
    ("term", "type", "position"),
    [("'n:4'", "T1", 3), ("'all'", "T0", 3), ("''", "T1", 99), ("'absent'", "T0", 2), ("x'07'", "T1", 3)],
)
def test_a_surplus_posting_is_found(damaged: Callable[..., list[str]], term: str, type: str, position: int) -> None:
    number = f"(SELECT number FROM types WHERE type = '{type}')"
    problems = damaged(f"INSERT INTO postings VALUES (1, {term}, {number}, {position})")
    assert len(problems) == 1
    assert f"at {position}" in problems[0]


def test_a_posting_that_was_swapped_for_another_is_found_on_both_sides(damaged: Callable[..., list[str]]) -> None:
    problems = damaged(f"UPDATE postings SET term = 'n:33' WHERE {INDEXED} AND term = 'n:3'")
    assert sorted(problem.split()[0] for problem in problems) == ["event", "posting"]


def test_a_wrong_type_number_is_found(damaged: Callable[..., list[str]]) -> None:
    problems = damaged(f"UPDATE postings SET type = 7 WHERE {INDEXED} AND term = 'all'")
    assert any("event 3: has no posting for tag 'all'" in problem for problem in problems)
    assert any("posting of tag 'all' at 3: belongs to no event, or" in problem for problem in problems)


def test_swapped_type_numbers_are_found(damaged: Callable[..., list[str]]) -> None:
    problems = damaged("UPDATE types SET number = number + 10", "UPDATE types SET number = 13 - number")
    assert any("has no posting" in problem for problem in problems)


def test_a_gap_between_generations_is_found(damaged: Callable[..., list[str]]) -> None:
    problems = damaged("UPDATE generations SET first = first + 1 WHERE generation = 1")
    assert any("generation 1" in problem for problem in problems)


def test_generations_beyond_the_last_event_are_found(damaged: Callable[..., list[str]]) -> None:
    problems = damaged("UPDATE generations SET last = 50 WHERE generation = 1")
    assert any("generation 1: covers 1 to 50" in problem for problem in problems)


def test_an_id_that_is_there_twice_is_found(damaged: Callable[..., list[str]]) -> None:
    problems = damaged("UPDATE events SET id = (SELECT id FROM events WHERE position = 3) WHERE position = 10")
    assert any("position 3 and again at 10" in problem for problem in problems)


def test_a_checkpoint_below_zero_is_found(damaged: Callable[..., list[str]]) -> None:
    problems = damaged("UPDATE records SET value = x'2d31'")
    assert any("checkpoint 'consumer'" in problem for problem in problems)


@pytest.mark.parametrize("page", range(1, 7))
def test_a_page_of_rubbish_is_a_problem(damaged: Callable[..., list[str]], path: Path, page: int) -> None:
    content = bytearray(path.read_bytes())
    content[4096 * (page - 1) : 4096 * page] = bytes(range(256)) * 16
    path.write_bytes(content)
    assert verify(path).problems


def test_verify_says_how_far_it_is(path: Path) -> None:
    with fencepost.open(path) as store:
        store.append([Event("A")] * 25_000)
        store.append([Event("A")])  # the tail of the first append is written before the second
    said: list[tuple[int, int]] = []
    verify(path, on_progress=lambda done, all: said.append((done, all)))
    assert said == [(10_000, 25_001), (20_000, 25_001), (25_000, 25_001)]


def test_what_does_not_exist_cannot_be_verified_or_backed_up(path: Path, tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="no such store"):
        verify(path)
    with pytest.raises(StoreUnavailable, match="no such store"):
        backup(path, tmp_path / "copy.db")
    assert list(tmp_path.iterdir()) == []


def test_a_backup_taken_while_others_write_is_a_whole_prefix_of_the_log(
    path: Path, tmp_path: Path, small: None
) -> None:
    stop = threading.Event()
    with fencepost.open(path) as store:
        store.append([Event("A", tags={"x"})])

        def write() -> None:
            while not stop.is_set():
                store.append([Event("A", data=bytes(500), tags={"x"})] * 3)

        writer = threading.Thread(target=write)
        writer.start()
        try:
            heads = [backup(path, tmp_path / f"copy-{number}.db") for number in range(5)]
        finally:
            stop.set()
            writer.join()
        log = list(store.read())
    assert heads == sorted(heads)
    for number, head in enumerate(heads):
        copy = tmp_path / f"copy-{number}.db"
        assert head % 3 == 1, "whole appends only"
        assert sorted(tmp_path.glob(f"{copy.name}*")) == [copy], "nothing but the file itself"
        assert verify(copy).problems == []
        with fencepost.open(copy) as copied:
            assert list(copied.read()) == log[:head]
            assert len(list(copied.read(Query.of(tags={"x"})))) == head
            assert copied.append([Event("B")]).first == head + 1


def test_a_backup_replaces_no_file(path: Path, tmp_path: Path) -> None:
    fencepost.open(path).close()
    (tmp_path / "copy.db").write_text("something else")
    with pytest.raises(InvalidInput, match="exists already"):
        backup(path, tmp_path / "copy.db")
    assert (tmp_path / "copy.db").read_text() == "something else"
