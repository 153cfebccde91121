"""Several processes run one consumer: one leads, another takes over, and a process that was replaced writes nothing.

Real processes are killed with -9 and suspended with SIGSTOP. The target's table has a row for each effect, so an event
that was handled twice, or not at all, shows.
"""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from time import monotonic

import pytest
from tests.support.processes import Child

from fencepost import EventStore
from fencepost.consumers import pause, resume

from . import program
from .places import Place, add, control, eventually, positions


class Processes:
    """Starts processes that run the consumer, numbered from 1, and ends them all with the test."""

    def __init__(self, place: Place, folder: Path, stack: ExitStack) -> None:
        self.stop_file = folder / "stop"
        self._place, self._folder, self._stack = place, folder, stack
        self._count = 0

    def start(self, trouble: str = "", at: int = 0) -> Child:
        self._count += 1
        reports = self._folder / f"reports-{self._count}"
        arguments = (self._place.address, self._place.into, self.stop_file, trouble, at)
        child = self._stack.enter_context(Child(program.__file__, reports, *arguments))
        child.wait_for(1)
        return child


def pid(child: Child) -> int:
    return child._process.pid


@pytest.fixture
def processes(place: Place, tmp_path: Path) -> Iterator[Processes]:
    with ExitStack() as stack:
        yield Processes(place, tmp_path, stack)


@pytest.fixture
def store(place: Place) -> Iterator[EventStore]:
    with place.open() as store:
        yield store


def leader(store: EventStore) -> int:
    """The process that holds the lease."""
    holder = control(store, "effects").leases[0].holder
    return 0 if holder is None else int(holder.split("/")[1])


def test_when_the_leader_is_killed_another_process_goes_on_where_it_ended(
    place: Place, processes: Processes, store: EventStore
) -> None:
    children = {pid(child): child for child in (processes.start(), processes.start())}
    add(store, 100)
    eventually(lambda: len(place.effects()) >= 100, "the first 100 effects")
    first = eventually(lambda: leader(store))
    children[first].kill()
    began = monotonic()
    add(store, 50)
    eventually(lambda: len(place.effects()) >= 150, "the effects after the kill")
    assert monotonic() - began < 30  # a lease of 1 s, on a machine that may be busy
    assert place.effects() == positions(store)
    assert leader(store) not in (0, first)


def test_effects_happen_exactly_once_though_leaders_are_killed_at_random(
    place: Place, processes: Processes, store: EventStore
) -> None:
    chance = random.Random(0)
    for _ in range(4):
        child = processes.start()
        add(store, 400)
        before = len(place.effects())
        eventually(lambda before=before: len(place.effects()) > before + chance.randrange(50), "progress")
        child.kill()
    processes.start()
    eventually(lambda: len(place.effects()) >= 1_600, "all effects")
    assert place.effects() == positions(store)


def test_the_late_write_of_a_suspended_leader_is_refused(place: Place, processes: Processes, store: EventStore) -> None:
    add(store, 10)
    late = processes.start("stop-before-batch", 20)
    eventually(lambda: len(place.effects()) == 10, "the first effects")
    add(store, 10)
    late.wait_for(2)
    assert "suspended" in late.lines()[1]
    assert len(place.effects()) == 10
    processes.start()
    eventually(lambda: leader(store) not in (0, pid(late)), "the new lease")
    eventually(lambda: len(place.effects()) == 20, "the effects of the second process")
    checkpoint = place.checkpoint("effects")
    os.kill(pid(late), signal.SIGCONT)
    late.wait_for(3)
    log = Path(f"{late.reports}.log")
    eventually(lambda: "is over, because the consumer was taken over" in log.read_text(), "the refusal")
    assert place.checkpoint("effects") >= checkpoint
    add(store, 5)
    eventually(lambda: len(place.effects()) >= 25, "the last effects")
    assert place.effects() == positions(store)
    assert leader(store) != pid(late)


def test_effects_happen_once_if_a_leader_is_suspended_in_the_middle_of_a_transaction(
    place: Place, processes: Processes, store: EventStore
) -> None:
    late = processes.start("stop-in-handler", 5)
    add(store, 20)
    late.wait_for(2)
    processes.start()
    if place.kind == "postgres":  # the server ends the transaction, whose locks would keep the next leader waiting
        eventually(lambda: len(place.effects()) == 20, "the effects of the second process")
    else:  # only the suspended process can release the lock of an SQLite file
        eventually(lambda: leader(store) not in (0, pid(late)), "the new lease")
    os.kill(pid(late), signal.SIGCONT)
    late.wait_for(3)
    add(store, 5)
    eventually(lambda: len(place.effects()) >= 25, "all effects")
    assert place.effects() == positions(store)


def test_a_paused_consumer_stays_paused_under_the_next_leader(
    place: Place, processes: Processes, store: EventStore
) -> None:
    child = processes.start()
    add(store, 10)
    eventually(lambda: len(place.effects()) == 10, "the first effects")
    pause(store, "effects", by="ada")
    child.kill()
    add(store, 10)
    processes.start()
    eventually(lambda: leader(store) not in (0, pid(child)), "the new lease")
    assert len(place.effects()) == 10
    assert control(store, "effects").paused_by == "ada"
    resume(store, "effects")
    eventually(lambda: len(place.effects()) == 20, "the effects after the pause")
    assert place.effects() == positions(store)


def test_a_process_that_ends_releases_its_lease_at_once(place: Place, processes: Processes, store: EventStore) -> None:
    child = processes.start()
    add(store)
    eventually(lambda: len(place.effects()) == 1, "the first effect")
    processes.stop_file.touch()
    child.result()
    assert control(store, "effects").leases[0].holder is None
