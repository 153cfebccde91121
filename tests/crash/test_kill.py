"""Processes are killed again and again while they append, and the other processes continue."""

from __future__ import annotations

import random
from itertools import groupby
from pathlib import Path

from tests.crash import counting
from tests.support.processes import Child
from tests.support.thorough import times

import fencepost
from fencepost import SequencedEvent
from fencepost.engines.sqlite import verify

ROUNDS = times(6, thorough=30)
THREADS = 3


def counting_child(path: Path, reports: Path) -> Child:
    return Child(counting.__file__, reports, path, THREADS, path.parent / "stop", reports.name)


def check_log(path: Path, reported: list[str]) -> None:
    """Each acknowledged append is there once where it was said to be, each other one whole or not at all."""
    assert verify(path).problems == []
    with fencepost.open(path) as store:
        log = list(store.read())
    assert [event.position for event in log] == list(range(1, len(log) + 1))
    appends = {token_of(events[0]): events for events in runs_of_one_append(log)}
    assert len(appends) == len(runs_of_one_append(log)), "no append is there twice, or in two pieces"
    for events in appends.values():
        assert len(events) == int(events[0].metadata["of"]), "an append is there whole"
    for line in reported:
        token, first, last = line.split()
        assert [event.position for event in appends[token]] == list(range(int(first), int(last) + 1))
    for number in range(counting.COUNTERS):
        counted = [int(events[0].data) for events in appends.values() if f"counter:{number}" in events[0].tags]
        assert counted == list(range(1, len(counted) + 1)), "each condition has held"


def token_of(event: SequencedEvent) -> str:
    (token,) = (tag.removeprefix("append:") for tag in event.tags if tag.startswith("append:"))
    return token


def runs_of_one_append(log: list[SequencedEvent]) -> list[list[SequencedEvent]]:
    return [list(events) for _, events in groupby(log, key=token_of)]


def test_nothing_acknowledged_is_lost_when_a_process_is_killed_at_any_moment(tmp_path: Path) -> None:
    path, chance = tmp_path / "store.db", random.Random(28)
    reported: list[str] = []
    for number in range(ROUNDS):
        with counting_child(path, tmp_path / f"reports-{number}") as child:
            child.wait_for(chance.randrange(30))
            child.kill()
            reported += child.lines()
        check_log(path, reported)
    assert len(reported) > ROUNDS


def test_others_go_on_when_one_process_of_several_is_killed(tmp_path: Path) -> None:
    path, chance = tmp_path / "store.db", random.Random(29)
    running = [counting_child(path, tmp_path / f"reports-{number}") for number in range(3)]
    finished: list[Child] = []
    for number in range(3, 7):
        victim = running.pop(chance.randrange(len(running)))
        victim.wait_for(chance.randrange(1, 20))
        victim.kill()
        finished.append(victim)
        for other in running:
            other.wait_for(len(other.lines()) + 10)
        running.append(counting_child(path, tmp_path / f"reports-{number}"))
    (tmp_path / "stop").touch()
    for child in running:
        child.result()
    check_log(path, [line for child in finished + running for line in child.lines()])
