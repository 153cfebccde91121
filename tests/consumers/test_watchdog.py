"""A consumer that has events to handle and makes no progress is reported, whatever the reason; so is its throughput."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from time import sleep
from typing import Any

import pytest

from fencepost import EventStore, InvalidInput, SequencedEvent
from fencepost.consumers import Stalled, consumer, reset, start, status
from fencepost.core.observers import observe

from .places import Added, Place, add, control, eventually, positions


@pytest.fixture
def store(place: Place) -> Iterator[EventStore]:
    with place.open() as store:
        yield store


def test_a_target_that_cannot_be_reached_stalls_the_consumer_until_it_is_back(
    place: Place, store: EventStore, caplog: pytest.LogCaptureFixture
) -> None:
    down = True
    seen: list[Any] = []
    mark = "?" if place.kind == "sqlite" else "%s"

    def connect() -> Any:
        if down:
            raise OSError("the database is down")
        return place.connect()

    @consumer("effects", into=connect, lease_s=0.5)
    def effects(event: Added, tx: Any, stored: SequencedEvent) -> None:
        tx.execute(f"INSERT INTO effect (position) VALUES ({mark})", (stored.position,))

    add(store, 3)
    with observe(seen.append), caplog.at_level(logging.ERROR), start(store, effects):
        eventually(lambda: control(store, "effects").stalls.get(0), "the report")
        (found,) = status(store)
        assert (found.state, found.healthy, found.lag_events) == ("stalled", False, 3)
        assert "the database is down" in str(found.error)
        assert found.holder is not None
        down = False
        eventually(lambda: place.effects() == positions(store), "the effects")
        eventually(lambda: status(store)[0].state == "running", "the end of the report")
    assert "consumer 'effects' is stalled at position 0" in caplog.text
    (stalled,) = [each for each in seen if isinstance(each, Stalled)]
    assert (stalled.consumer, stalled.position) == ("effects", 0)


def test_the_status_has_the_throughput_of_a_working_consumer(store: EventStore) -> None:
    @consumer("slow", lease_s=2, batch=500)
    def slow(event: Added) -> None:
        sleep(0.005)

    add(store, 2_000)
    with start(store, slow):
        found = eventually(lambda: next((each for each in status(store) if each.throughput_per_s), None))
        assert 1 <= found.throughput_per_s <= 200
    assert status(store)[0].throughput_per_s == 0
    assert control(store, "slow").stalls == {}  # a long batch is progress


class TestResettingToATime:
    def test_events_recorded_since_are_handled_again(self, store: EventStore) -> None:
        seen: list[int] = []

        @consumer("seen", lease_s=1)
        def see(event: Added, stored: SequencedEvent) -> None:
            seen.append(stored.position)

        add(store, 3)
        sleep(0.05)
        (third,) = store.read(after=2, up_to=3)
        add(store, 2)
        with start(store, see):
            eventually(lambda: len(seen) == 5, "all events")
            position = reset(store, "seen", to=third.recorded_at + timedelta(milliseconds=20), by="ada")
            assert position == 3
            eventually(lambda: len(seen) == 7, "the last two again")
        assert seen[5:] == [4, 5]

    def test_a_time_without_a_zone_and_a_time_beside_a_position_are_refused(self, store: EventStore) -> None:
        head = store.head()
        with pytest.raises(InvalidInput, match="has no time zone"):
            reset(store, "seen", to=datetime(2030, 1, 1))
        with pytest.raises(InvalidInput, match="not to both"):
            reset(store, "seen", position=3, to=datetime.now(timezone.utc))
        with pytest.raises(InvalidInput, match="position"):
            reset(store, "seen", position=-1)
        assert store.head() == head
