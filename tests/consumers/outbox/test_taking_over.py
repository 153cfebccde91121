"""Processes that run an outbox are killed and suspended: every event is published, and a receiver that ignores the ids
that it has seen gets each event once and in order."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.consumers.places import Place, add, control, eventually, positions
from tests.support.processes import Child

from fencepost import EventStore

from . import program
from .receivers import first_seen


class Processes:
    """Starts processes that run the outbox, and ends them all with the test."""

    def __init__(self, place: Place, folder: Path, stack: ExitStack) -> None:
        self.path = folder / "out.jsonl"
        self._stop, self._place, self._folder, self._stack = folder / "stop", place, folder, stack
        self._count = 0

    def start(self, trouble: str = "", at: int = 0) -> Child:
        self._count += 1
        reports = self._folder / f"reports-{self._count}"
        arguments = (self._place.address, self.path, self._stop, trouble, at)
        child = self._stack.enter_context(Child(program.__file__, reports, *arguments))
        child.wait_for(1)
        return child

    def stop(self) -> None:
        self._stop.touch()

    def published(self) -> list[str]:
        return [json.loads(line)["id"] for line in self.path.read_text().splitlines()] if self.path.exists() else []


@pytest.fixture
def processes(place: Place, tmp_path: Path) -> Iterator[Processes]:
    with ExitStack() as stack:
        yield Processes(place, tmp_path, stack)


@pytest.fixture
def store(place: Place) -> Iterator[EventStore]:
    with place.open() as store:
        yield store


def ids(store: EventStore) -> list[str]:
    return [f"/tests#{each}" for each in positions(store)]


def leader(store: EventStore) -> int:
    holder = control(store, "o").leases[0].holder
    return 0 if holder is None else int(holder.split("/")[1])


def pid(child: Child) -> int:
    return child._process.pid


def test_a_kill_between_publishing_and_the_checkpoint_publishes_again_with_the_same_ids(
    processes: Processes, store: EventStore
) -> None:
    add(store, 30)
    killed = processes.start("die-after-publishing", at=10)
    assert killed._process.wait(60) == -signal.SIGKILL
    published, saved = processes.published(), store.checkpoint("o")
    assert published == ids(store)[: len(published)]
    assert saved < len(published)  # the last batch is published, and not saved
    second = processes.start()
    eventually(lambda: len(set(processes.published())) == 30)
    processes.stop()
    second.result()
    twice = ids(store)[saved : len(published)]
    assert processes.published() == [*published, *twice, *ids(store)[len(published) :]]


def test_of_two_processes_one_publishes_and_the_other_takes_over(processes: Processes, store: EventStore) -> None:
    children = {pid(child): child for child in (processes.start(), processes.start())}
    add(store, 50)
    eventually(lambda: len(set(processes.published())) == 50)
    first = eventually(lambda: leader(store))
    eventually(lambda: store.checkpoint("o") >= positions(store)[-1])
    assert processes.published() == ids(store)  # by one process: nothing is there twice
    children[first].kill()
    add(store, 20)
    eventually(lambda: len(set(processes.published())) == 70)
    assert first_seen(processes.published()) == ids(store)
    assert leader(store) not in (0, first)


def test_a_process_that_is_suspended_in_a_batch_changes_no_order_when_it_goes_on(
    processes: Processes, store: EventStore
) -> None:
    suspended = processes.start("suspend-in-batch", at=10)
    add(store, 40)
    suspended.wait_for(2)
    processes.start()
    eventually(lambda: len(set(processes.published())) == 40)
    assert leader(store) != pid(suspended)
    os.kill(pid(suspended), signal.SIGCONT)
    suspended.wait_for(3)
    add(store, 10)
    eventually(lambda: len(set(processes.published())) == 50)
    assert first_seen(processes.published()) == ids(store)
