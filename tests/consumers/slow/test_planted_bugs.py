"""The tests of consumers find the bugs that they are there for: each is planted on purpose, and shows.

A test that passes whatever the code does is worth nothing. Each scenario runs with the sound code, where it passes, and
with a bug, where its check fails.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.support.processes import Child

from fencepost import EventStore
from fencepost.consumers import start
from fencepost.consumers.read_models import ReadModelSession, states_of
from fencepost.consumers.targets import Target

from .. import planted_program
from ..places import Place, add, control, eventually, positions
from ..test_read_models import Reader, balances, move


@pytest.fixture
def store(place: Place) -> Iterator[EventStore]:
    with place.open() as store:
        yield store


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def process(stack: ExitStack, place: Place, folder: Path, bug: str, trouble: str = "", at: int = 0) -> Child:
    number = len(list(folder.glob("reports-*.log"))) + 1
    arguments = (bug, place.address, place.into, folder / "stop", trouble, at)
    child = stack.enter_context(Child(planted_program.__file__, folder / f"reports-{number}", *arguments))
    child.wait_for(1)
    return child


def leader(store: EventStore) -> int:
    holder = control(store, "effects").leases[0].holder
    return 0 if holder is None else int(holder.split("/")[1])


@pytest.mark.parametrize("bug", ["sound", "checkpoint-before-effect"])
def test_a_checkpoint_that_is_saved_before_its_effect_loses_events_in_a_crash(
    place: Place, store: EventStore, stack: ExitStack, tmp_path: Path, bug: str
) -> None:
    dying = process(stack, place, tmp_path, bug, "die-in-handler", 5)
    last = add(store, 20)
    dying.wait_for(2)
    process(stack, place, tmp_path, bug)
    eventually(lambda: place.checkpoint("effects") >= last, "the checkpoint at the end")
    assert (place.effects() == positions(store)) == (bug == "sound")


@pytest.mark.parametrize("bug", ["sound", "no-fencing"])
def test_without_fencing_a_suspended_leader_doubles_effects(
    place: Place, store: EventStore, stack: ExitStack, tmp_path: Path, bug: str
) -> None:
    add(store, 10)
    late = process(stack, place, tmp_path, bug, "stop-before-batch", 20)
    eventually(lambda: len(place.effects()) == 10, "the first effects")
    add(store, 10)
    late.wait_for(2)
    process(stack, place, tmp_path, bug)
    eventually(lambda: leader(store) not in (0, late._process.pid), "the new lease")
    eventually(lambda: len(place.effects()) == 20, "the effects of the second process")
    os.kill(late._process.pid, signal.SIGCONT)
    late.wait_for(3)
    if bug == "no-fencing":
        eventually(lambda: len(place.effects()) > 20, "the late effects")
    else:
        log = Path(f"{late.reports}.log")
        eventually(lambda: "is over, because the consumer was taken over" in log.read_text(), "the refusal")
    assert (place.effects() == positions(store)) == (bug == "sound")


def test_a_read_model_that_is_published_too_early_is_seen_by_a_reader(
    place: Place, store: EventStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    claimed = ReadModelSession.claimed

    def too_early(self: ReadModelSession, target: Target, position: int) -> None:
        claimed(self, target, position)
        with self._target.transaction() as transaction:
            states = states_of(self._target, transaction, self._model)
            old = next((version for version, state in states.items() if state == "published"), None)
            if old == self._model.version:
                return
            self._publish(transaction, old, states)
        seen = reader.looks
        eventually(lambda: reader.looks > seen + 1, "a look that began after the publication")

    old, new = balances(place), balances(place, 2, batch=100)
    move(store, 3_000)
    with start(store, old):
        old.wait_for(store, store.head(), timeout_s=60)
        with Reader(place) as reader:
            eventually(lambda: reader.looks > 5, "the reader")
            monkeypatch.setattr(ReadModelSession, "claimed", too_early)
            with start(store, new):
                eventually(lambda: reader.problems, "the reader to see it")
