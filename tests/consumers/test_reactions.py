"""Checkpoints in the store: at least once, and exactly once where the reaction is an append to the store."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fencepost import CheckpointBehind, Event, EventStore, SequencedEvent
from fencepost.consumers import ConsumerError, Failures, LeaseLost, Reaction, consumer, start
from fencepost.consumers.control import take_lease
from fencepost.consumers.control_state import Control, checkpoint_name
from fencepost.consumers.leases import Lease
from fencepost.consumers.presence import Presence
from fencepost.decisions import Projection, Tag, context, decision, event, on

from .places import Added, Place, add, eventually


@event
class Doubled:
    key: Tag
    of: int


class Doublings(Projection):
    key: Tag
    count: int = 0

    @on
    def _(self, event: Doubled) -> None:
        self.count += 1


@decision
def double(doublings: Doublings, *, of: int, least: int = 0) -> Doubled | None:
    return None if of < least else Doubled(doublings.key, of)


@pytest.fixture
def store(place: Place) -> Iterator[EventStore]:
    with place.open() as store:
        yield store


def doubled(store: EventStore) -> list[int]:
    return [int(event.data.split(b":")[-1].strip(b"}")) for event in store.read() if event.type == "Doubled"]


def lease_on(store: EventStore, name: str, holder: str) -> Lease:
    from fencepost.decisions import project

    over = project(store, Control(name)).token_of(0)
    taken = take_lease(store, Control(name), holder=holder, lease_s=5.0, query="{}", over=over)
    return Lease(store, name, taken.position, 0, 5.0, presence=Presence(store, holder, 5.0))


@consumer("double")
def doubling(event: Added, store: Reaction, stored: SequencedEvent) -> None:
    with context(caused_by=stored):
        double(store, Doublings(event.key), of=stored.position)


def test_the_reaction_to_each_event_is_stored_once(store: EventStore) -> None:
    add(store, 20)
    with start(store, doubling):
        eventually(lambda: len(doubled(store)) >= 20)
    with start(store, doubling):
        add(store)
        eventually(lambda: len(doubled(store)) >= 21)
    expected = [each.position for each in store.read() if each.type == "Added"]
    assert doubled(store) == expected


def test_the_checkpoint_is_in_the_append_of_the_reaction(store: EventStore) -> None:
    add(store, 3)
    lease = lease_on(store, "double", "me")
    reaction = Reaction(store, lease)
    reaction.begin("double", 2)
    reaction.append([Event("Reacted")])
    assert store.checkpoint("double") == 2


def test_the_late_reaction_of_a_deposed_leader_is_refused(store: EventStore) -> None:
    add(store, 3)
    late = Reaction(store, lease_on(store, "double", "first"))
    late.begin("double", 1)
    lease_on(store, "double", "second")
    head = store.head()
    with pytest.raises(LeaseLost):
        double(late, Doublings("a"), of=1)
    assert (store.head(), store.checkpoint("double")) == (head, 0)


def test_a_late_heartbeat_of_a_deposed_leader_is_refused(store: EventStore) -> None:
    late = lease_on(store, "double", "first")
    late.beat(1)
    lease_on(store, "double", "second")
    with pytest.raises(LeaseLost):
        late.beat(2)


def test_a_second_append_for_one_event_is_refused(store: EventStore) -> None:
    reaction = Reaction(store, lease_on(store, "double", "me"))
    reaction.begin("double", 1)
    reaction.append([Event("Reacted")])
    with pytest.raises(ConsumerError, match="a second append for one event"):
        reaction.append([Event("Reacted")])


def test_a_handler_without_an_append_moves_the_checkpoint_after_it_has_run(store: EventStore) -> None:
    seen: list[int] = []

    @consumer("seen")
    def see(event: Added, stored: SequencedEvent) -> None:
        assert store.checkpoint("seen") < stored.position
        seen.append(stored.position)

    last = add(store, 10)
    with start(store, see):
        eventually(lambda: store.checkpoint("seen") >= last)
    assert seen == list(range(1, 11))


def test_a_handler_that_fails_does_not_run_again_for_the_events_before(store: EventStore) -> None:
    seen: list[int] = []

    @consumer("seen", failures=Failures(attempts=3, base_s=0.01))
    def see(event: Added, stored: SequencedEvent) -> None:
        seen.append(stored.position)
        if stored.position == 5 and seen.count(5) < 3:
            raise ValueError("not yet")

    add(store, 10)
    with start(store, see):
        eventually(lambda: store.checkpoint("seen") >= 10)
    assert seen == [1, 2, 3, 4, 5, 5, 5, 6, 7, 8, 9, 10]


def test_reactions_can_go_into_another_store(store: EventStore, tmp_path) -> None:  # type: ignore[no-untyped-def]
    import fencepost

    with fencepost.open(tmp_path / "other.db") as other:

        @consumer("copy", into=other)
        def copy(event: Added, target: Reaction, stored: SequencedEvent) -> None:
            target.append([Event("Copied", data=str(stored.position).encode())])

        for count in (5, 10):
            add(store, 5)
            with start(store, copy):
                eventually(lambda count=count: other.checkpoint("copy") >= count)
        assert [event.data for event in other.read() if event.type == "Copied"] == [
            b"%d" % each for each in range(1, 11)
        ]
    assert store.head() == 10


class TestDecisions:
    def test_a_decision_carries_a_checkpoint(self, store: EventStore) -> None:
        double(store, Doublings("a"), of=1, checkpoint=("mine", 7))
        assert store.checkpoint("mine") == 7

    def test_it_is_refused_if_the_checkpoint_does_not_grow(self, store: EventStore) -> None:
        double(store, Doublings("a"), of=1, checkpoint=("mine", 7))
        with pytest.raises(CheckpointBehind):
            double(store, Doublings("a"), of=2, checkpoint=("mine", 7))
        assert doubled(store) == [1]

    def test_a_decision_for_nothing_moves_it_as_well(self, store: EventStore) -> None:
        double(store, Doublings("a"), of=1, least=5, checkpoint=("mine", 7))
        assert (store.head(), store.checkpoint("mine")) == (0, 7)

    def test_a_decision_that_was_taken_before_moves_it_as_well(self, store: EventStore) -> None:
        double.once("c-1")(store, Doublings("a"), of=1)
        decided = double(store, Doublings("a"), of=1, once="c-1", checkpoint=("mine", 7))
        assert (decided.already, store.checkpoint("mine"), doubled(store)) == (True, 7, [1])


def test_a_reset_begins_a_checkpoint_of_its_own() -> None:
    assert checkpoint_name("x", 0) == "x"
    assert checkpoint_name("x", 9) == "x#9"
