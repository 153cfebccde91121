"""A process shows with one heartbeat that it is alive, and loses all of its leases with the slot of that heartbeat."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fencepost import EventStore
from fencepost.consumers import consumer, start
from fencepost.consumers.control import take_lease
from fencepost.consumers.control_events import RunnerStarted
from fencepost.consumers.control_state import Control, heartbeat_name
from fencepost.consumers.leases import Lease
from fencepost.consumers.partition_runner import PartitionRunner
from fencepost.consumers.presence import Presence, Sessions, Watch
from fencepost.decisions import encode

from .places import Added, Place, add, control, eventually


@pytest.fixture
def store(place: Place) -> Iterator[EventStore]:
    with place.open() as store:
        yield store


def present(store: EventStore, holder: str) -> Presence:
    presence = Presence(store, holder, 1.0)
    presence.ensure()
    return presence


def abandon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let other processes see the slot as one whose heartbeat is old."""
    monkeypatch.setattr("fencepost.consumers.presence.ABANDONED_S", -1e9)


def test_each_process_has_a_slot_of_its_own_and_given_back_ones_are_used_again(store: EventStore) -> None:
    first, second = present(store, "first"), present(store, "second")
    assert (first.slot, second.slot) == (0, 1)
    first.end()
    assert present(store, "third").slot == 0


@pytest.mark.parametrize("before_ms", [0, 1], ids=["a new slot", "a slot that was used long ago"])
def test_a_process_that_has_not_moved_its_heartbeat_yet_keeps_its_slot(store: EventStore, before_ms: int) -> None:
    if before_ms:
        store.append([], checkpoint=(heartbeat_name(0), before_ms))
    store.append([encode(RunnerStarted("0", "starting", 1.0))])
    assert present(store, "other").slot == 1


def test_a_heartbeat_moves_the_checkpoint_of_the_slot(store: EventStore) -> None:
    presence = present(store, "me")
    before = store.checkpoint(heartbeat_name(presence.slot))
    presence.beat()
    assert store.checkpoint(heartbeat_name(presence.slot)) > before > 0


def test_a_process_whose_slot_was_taken_has_no_session_and_no_valid_lease(
    store: EventStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = present(store, "late")
    lease = Lease(store, "x", 1, 0, 60.0, presence=late)
    assert lease.is_valid
    abandon(monkeypatch)
    assert present(store, "next").slot == late.slot
    late.beat()
    assert late.session == 0
    assert not lease.is_valid
    assert late.ensure() > 0
    assert not lease.is_valid  # a new session does not bring an old lease back


def test_a_session_is_over_for_others_when_it_ends_or_is_replaced_or_falls_silent(
    store: EventStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch, presence = Watch(store), present(store, "one")
    slot, session = presence.slot, presence.session
    assert not watch.is_over(slot, session, 60.0)
    eventually(lambda: watch.is_over(slot, session, 0.05), "the silence to be noticed")
    presence.beat()
    eventually(lambda: not watch.is_over(slot, session, 60.0), "the heartbeat to be noticed")
    abandon(monkeypatch)
    other = present(store, "two")
    assert Watch(store).is_over(slot, session, 60.0)
    slot, session = other.slot, other.session
    assert not Watch(store).is_over(slot, session, 60.0)
    other.end()
    assert Watch(store).is_over(slot, session, 60.0)


def test_a_late_heartbeat_keeps_a_lease_only_if_it_is_still_the_newest(store: EventStore) -> None:
    presence = present(store, "me")
    lease = Lease(store, "x", 1, 0, 1.0, presence=presence)
    lease.valid_until = 0.0
    presence.beat()
    lease.extend()
    lease.extend(lambda: 2)
    assert not lease.is_valid
    lease.extend(lambda: 1)
    assert lease.is_valid


def test_a_process_beats_once_for_all_of_its_consumers_and_gives_its_slot_back(store: EventStore) -> None:
    made = []
    for number in range(5):

        @consumer(f"c{number}", lease_s=1)
        def handler(event: Added) -> None: ...

        made.append(handler)
    add(store)
    with start(store, *made):
        for number in range(5):
            eventually(lambda number=number: control(store, f"c{number}").leases, "the lead")
        sessions = Sessions(store)
        sessions.refresh()
        assert list(sessions.slots) == [0]
        assert {control(store, f"c{number}").leases[0].session for number in range(5)} == {sessions.slots[0]}
    sessions.refresh()
    assert sessions.slots == {0: 0}


def test_a_process_that_ends_does_not_release_the_lease_of_the_process_that_has_taken_over(
    store: EventStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    @consumer("c", lease_s=30)
    def handler(event: Added) -> None: ...

    monkeypatch.setattr(PartitionRunner, "notice", lambda self: None)  # it does not learn that it was replaced
    with start(store, handler) as late:
        eventually(lambda: late.partition_runners[0].lease, "the lead")
        token, query = control(store, "c").token_of(0), handler.query.to_json()
        take_lease(store, Control("c"), holder="next", lease_s=30.0, query=query, over=token)
        late.partition_runners[0].recorder.refresh()
    assert control(store, "c").leases[0].holder == "next"
