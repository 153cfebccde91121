"""A handler that fails is retried, then stops its consumer or leaves a dead letter; other consumers go on."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from threading import Event as Flag
from typing import Any

import pytest

from fencepost import EventStore, SequencedEvent
from fencepost.consumers import (
    CommandRefused,
    Consumer,
    Failures,
    NoSuchConsumer,
    Reaction,
    consumer,
    dead_letters,
    discard,
    pause,
    replay,
    reset,
    resume,
    start,
    status,
    step,
)
from fencepost.decisions import encode

from .places import Added, Place, add, control, eventually, positions

QUICK = Failures(attempts=2, base_s=0.01, then="set aside")


@pytest.fixture
def store(place: Place) -> Iterator[EventStore]:
    with place.open() as store:
        yield store


class Poison:
    """The positions that the handler refuses, for as long as they are here."""

    def __init__(self, *positions: int) -> None:
        self.positions = set(positions)
        self.tried: list[int] = []


def effects_into(place: Place, poison: Poison, failures: Failures, name: str = "effects") -> Consumer:
    mark = "?" if place.kind == "sqlite" else "%s"

    @consumer(name, into=place.into, lease_s=1, failures=failures)
    def effects(event: Added, tx: Any, stored: SequencedEvent) -> None:
        tx.execute(f"INSERT INTO effect (position) VALUES ({mark})", (stored.position,))
        poison.tried.append(stored.position)
        if stored.position in poison.positions:
            raise ValueError(f"poison at {stored.position}")

    return effects


def letters(store: EventStore) -> list[int]:
    return sorted(control(store, "effects").dead_letters)


def test_a_poison_event_is_set_aside_and_the_others_go_on(place: Place, store: EventStore) -> None:
    add(store, 20)
    poison = Poison(7)
    with start(store, effects_into(place, poison, QUICK)):
        eventually(lambda: len(place.effects()) == 19)
        assert letters(store) == [7]
    assert place.effects() == [each for each in positions(store) if each != 7]
    (letter,) = dead_letters(store, "effects")
    assert (letter.error, letter.attempts, letter.type) == ("ValueError: poison at 7", 2, "Added")
    assert poison.tried.count(7) == 2  # once in the batch that it spoiled, once alone


def test_a_whole_batch_of_poison_does_not_stop_the_others(place: Place, store: EventStore) -> None:
    add(store, 30)
    with start(store, effects_into(place, Poison(*range(5, 15)), QUICK)):
        eventually(lambda: len(place.effects()) == 20)
    assert letters(store) == list(range(5, 15))


def test_a_consumer_stops_at_an_event_that_fails_until_it_is_resumed(place: Place, store: EventStore) -> None:
    add(store, 10)
    poison = Poison(4)
    failures = Failures(attempts=2, base_s=0.01)
    seen: list[int] = []

    @consumer("other")
    def other(event: Added, stored: SequencedEvent) -> None:
        seen.append(stored.position)

    with start(store, effects_into(place, poison, failures), other):
        stopped = eventually(lambda: control(store, "effects").stopped)
        assert (stopped.position, stopped.error) == (4, "ValueError: poison at 4")
        eventually(lambda: len(seen) == 10)  # one consumer's trouble is not another's
        assert place.effects() == [1, 2, 3]
        poison.positions.clear()
        resume(store, "effects")
        eventually(lambda: len(place.effects()) == 10)
    assert place.effects() == positions(store)


def test_later_events_of_the_same_key_are_held_back(place: Place, store: EventStore) -> None:
    for key in "abcabc":
        store.append([encode(Added(key, 1))])
    poison = Poison(2)
    failures = Failures(attempts=1, then="set aside", key="key")
    with start(store, effects_into(place, poison, failures)):
        eventually(lambda: len(place.effects()) == 4)
        assert letters(store) == [2, 5]
        assert dead_letters(store, "effects")[1].behind == 2
        poison.positions.clear()
        replay(store, "effects")
        eventually(lambda: len(place.effects()) == 6)
        eventually(lambda: letters(store) == [])
    assert place.effects() == [1, 3, 4, 6, 2, 5]


def test_a_replay_waits_for_earlier_dead_letters_of_its_key(place: Place, store: EventStore) -> None:
    add(store, 3)
    poison = Poison(1)
    failures = Failures(attempts=1, then="set aside", key="key")
    with start(store, effects_into(place, poison, failures)):
        eventually(lambda: letters(store) == [1, 2, 3])
        replay(store, "effects", [3])
        discard(store, "effects", [1])
        replay(store, "effects", [2])
        eventually(lambda: letters(store) == [])
    assert place.effects() == [2, 3]


def test_a_replay_that_fails_leaves_the_dead_letter(place: Place, store: EventStore) -> None:
    add(store, 3)
    with start(store, effects_into(place, Poison(2), QUICK)):
        eventually(lambda: letters(store) == [2])
        replay(store, "effects")
        eventually(lambda: dead_letters(store, "effects")[0].attempts == 3)
    assert place.effects() == [1, 3]


def test_a_dead_letter_of_a_reaction_is_replayed_once(store: EventStore) -> None:
    broken = [True]

    @consumer("react", failures=Failures(attempts=1, then="set aside"))
    def react(event: Added, reaction: Reaction, stored: SequencedEvent) -> None:
        if broken and stored.position == 2:
            raise ValueError("not now")
        if event.key == "a":
            reaction.append([encode(Added(f"of-{stored.position}", 0))])

    add(store, 3)
    with start(store, react):
        eventually(lambda: list(control(store, "react").dead_letters) == [2])
        broken.clear()
        replay(store, "react")
        eventually(lambda: not dead_letters(store, "react"))
    made = sorted(tag for event in store.read() for tag in event.tags if "of-" in tag)
    assert made == ["key:of-1", "key:of-2", "key:of-3"]


def test_a_hanging_handler_is_timed_out_and_cannot_write_later(place: Place, store: EventStore) -> None:
    release, hung = Flag(), Flag()
    mark = "?" if place.kind == "sqlite" else "%s"

    @consumer("effects", into=place.into, lease_s=1, failures=Failures(attempts=1, timeout_s=0.5, then="set aside"))
    def effects(event: Added, tx: Any, stored: SequencedEvent) -> None:
        tx.execute(f"INSERT INTO effect (position) VALUES ({mark})", (stored.position,))
        if stored.position == 3:
            hung.set()
            release.wait(60)

    add(store, 6)
    with start(store, effects):
        eventually(lambda: place.effects() == [1, 2, 4, 5, 6])
        assert hung.is_set()
        assert letters(store) == [3]
        release.set()
        last = add(store)
        eventually(lambda: place.effects()[-1] == last)
    assert 3 not in place.effects()


def test_a_consumer_without_progress_is_reported_as_stalled(
    place: Place, store: EventStore, caplog: pytest.LogCaptureFixture
) -> None:
    release = Flag()

    @consumer("stuck", lease_s=0.5)
    def stuck(event: Added) -> None:
        release.wait(60)

    add(store)
    with caplog.at_level(logging.ERROR), start(store, stuck):
        stalled = eventually(lambda: control(store, "stuck").stalls.get(0))
        assert "busy with the event at position 1" in stalled.error
        release.set()
    assert "consumer 'stuck' is stalled" in caplog.text


class TestCommands:
    def test_a_pause_takes_effect_and_a_resume_ends_it(self, place: Place, store: EventStore) -> None:
        with start(store, effects_into(place, Poison(), QUICK)) as runner:
            add(store, 3)
            eventually(lambda: len(place.effects()) == 3)
            assert pause(store, "effects", by="ada", reason="upgrade")
            assert not pause(store, "effects")
            eventually(lambda: runner.partition_runners[0].recorder.control.paused_by)
            add(store, 3)
            step(store, "effects")
            eventually(lambda: len(place.effects()) == 4)
            assert control(store, "effects").paused_by == "ada"
            assert resume(store, "effects")
            eventually(lambda: len(place.effects()) == 6)

    def test_no_event_that_follows_a_pause_is_handled(self, store: EventStore) -> None:
        seen: list[int] = []

        @consumer("seen")
        def see(event: Added, stored: SequencedEvent) -> None:
            seen.append(stored.position)

        with start(store, see):
            add(store)
            eventually(lambda: len(seen) == 1)
            for _ in range(10):
                pause(store, "seen")
                last = add(store, 2)  # at once: the leader has not been told of the pause yet
                step(store, "seen")
                eventually(lambda last=last: seen[-1] >= last - 1)
                assert seen[-1] == last - 1
                resume(store, "seen")
                eventually(lambda last=last: seen[-1] == last)

    def test_a_step_is_saved_where_checkpoints_are_in_the_store(self, store: EventStore) -> None:
        @consumer("seen")
        def see(event: Added) -> None:
            pass

        with start(store, see):
            eventually(lambda: control(store, "seen").token_of(0))
            pause(store, "seen")
            first = add(store, 2) - 1
            step(store, "seen")
            eventually(lambda: status(store)[0].position == first)

    def test_a_reset_handles_the_events_again(self, place: Place, store: EventStore) -> None:
        with start(store, effects_into(place, Poison(), QUICK)):
            add(store, 5)
            eventually(lambda: len(place.effects()) == 5)
            skipped = place.effects()[1]
            reset(store, "effects", position=skipped)
            eventually(lambda: len(place.effects()) == 8)
        assert place.effects()[5:] == [each for each in positions(store) if each > skipped]

    def test_a_reset_of_a_checkpoint_in_the_store_handles_the_events_again(self, store: EventStore) -> None:
        seen: list[int] = []

        @consumer("seen")
        def see(event: Added, stored: SequencedEvent) -> None:
            seen.append(stored.position)

        with start(store, see):
            add(store, 3)
            eventually(lambda: len(seen) == 3)
            reset(store, "seen")
            eventually(lambda: len(seen) == 6)
        with start(store, see):
            add(store)
            eventually(lambda: len(seen) == 7)

    def test_a_step_needs_a_pause(self, place: Place, store: EventStore) -> None:
        with start(store, effects_into(place, Poison(), QUICK)):
            eventually(lambda: control(store, "effects").token_of(0))
            with pytest.raises(CommandRefused, match="is not paused"):
                step(store, "effects")

    def test_every_command_is_recorded_with_its_author_and_time(self, place: Place, store: EventStore) -> None:
        with start(store, effects_into(place, Poison(), QUICK)):
            eventually(lambda: control(store, "effects").token_of(0))
            pause(store, "effects", by="ada")
            resume(store, "effects", by="bob")
        recorded = [event for event in store.read() if b'"by"' in event.data]
        assert [(event.type, b"ada" in event.data) for event in recorded] == [
            ("fencepost.ConsumerPaused", True),
            ("fencepost.ConsumerResumed", False),
        ]
        assert all(event.recorded_at is not None for event in recorded)


@pytest.mark.parametrize("command", [pause, resume])
def test_a_command_to_an_unknown_consumer_is_refused(store: EventStore, command: Callable[..., bool]) -> None:
    with pytest.raises(NoSuchConsumer, match="'occupany'"):
        command(store, "occupany")


def test_a_reset_beyond_the_head_is_refused(store: EventStore) -> None:
    head = add(store, 3)
    with pytest.raises(CommandRefused, match=f"cannot be reset to {head + 9}: the log ends at {head}"):
        reset(store, "effects", position=head + 9)
