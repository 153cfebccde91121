"""Every event of the topic is published, in batches and in order, and new ones as they come."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.consumers.places import add, control, eventually, positions

import fencepost
from fencepost import Event, EventStore
from fencepost.consumers import pause, reset, resume, run_async, start
from fencepost.consumers.outbox import Outbox, Topic

from .receivers import TOPIC, Collector, add_keys


@pytest.fixture
def store(tmp_path: Path) -> Iterator[EventStore]:
    with fencepost.open(tmp_path / "log.db") as store:
        yield store


def test_the_past_goes_in_batches_and_the_present_as_it_comes(store: EventStore) -> None:
    add(store, 250)
    collector = Collector()
    with start(store, Outbox("o", TOPIC, collector, lease_s=1)):
        eventually(lambda: len(collector.messages) == 250)
        assert [len(batch) for batch in collector.batches] == [100, 100, 50]
        add(store, 3)
        eventually(lambda: len(collector.messages) == 253)
        eventually(lambda: store.checkpoint("o") >= positions(store)[-1])
    assert collector.positions == positions(store)
    assert collector.closed == 1


def test_a_topic_publishes_only_what_its_filter_matches(store: EventStore) -> None:
    store.append(
        [
            Event("A", tags={"tenant:x", "k:1"}),
            Event("B", tags={"tenant:x"}),
            Event("A", tags={"tenant:y"}),
            Event("A", tags={"tenant:x"}),
        ]
    )
    collector, everything = Collector(), Collector()
    chosen = Topic("chosen", source="/s", types={"A"}, tags={"tenant:x"})
    with start(
        store,
        Outbox("chosen", chosen, collector, lease_s=1),
        Outbox("everything", Topic("all", source="/s"), everything, lease_s=1),
    ):
        eventually(lambda: collector.positions == [1, 4])
        eventually(lambda: everything.positions == [1, 2, 3, 4])
        add(store)
        eventually(lambda: len(everything.positions) == 5)
    assert collector.positions == [1, 4]
    assert {message.event.type for message in everything.messages} == {"A", "B", "Added"}


def test_a_second_start_publishes_nothing_again(store: EventStore) -> None:
    add(store, 5)
    first, second = Collector(), Collector()
    with start(store, Outbox("o", TOPIC, first, lease_s=1)):
        eventually(lambda: len(first.messages) == 5)
        eventually(lambda: store.checkpoint("o") >= 5)
    with start(store, Outbox("o", TOPIC, second, lease_s=1)):
        add(store)
        eventually(lambda: second.messages)
    assert second.positions == positions(store)[-1:]


def test_a_paused_outbox_publishes_nothing_until_it_is_resumed(store: EventStore) -> None:
    collector = Collector()
    outbox = Outbox("o", TOPIC, collector, lease_s=1)
    add(store)
    with start(store, outbox):
        eventually(lambda: collector.messages)
        pause(store, "o")
    add(store, 3)
    with start(store, outbox):
        eventually(lambda: control(store, "o").leases)
        assert len(collector.messages) == 1
        resume(store, "o")
        eventually(lambda: len(collector.messages) == 4)


def test_a_reset_publishes_again_with_the_same_ids(store: EventStore) -> None:
    add_keys(store, "abc")
    collector = Collector()
    with start(store, Outbox("o", TOPIC, collector, lease_s=1)):
        eventually(lambda: len(collector.messages) == 3)
        reset(store, "o")
        eventually(lambda: len(collector.messages) == 6)
    ids = [message.id for message in collector.messages]
    assert ids[:3] == ids[3:]


async def test_an_outbox_runs_on_an_event_loop(store: EventStore) -> None:
    add(store, 3)
    collector = Collector()
    task = asyncio.create_task(run_async(store, Outbox("o", TOPIC, collector, lease_s=1)))
    await asyncio.to_thread(eventually, lambda: len(collector.messages) == 3)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert collector.closed == 1


def test_partitions_share_the_keys_and_each_keeps_its_order(store: EventStore) -> None:
    add_keys(store, "abcdefgh" * 10)
    made: list[Collector] = []

    def publisher() -> Collector:
        made.append(Collector())
        return made[-1]

    with start(store, Outbox("o", TOPIC, publisher, lease_s=1, partitions=3)):
        eventually(lambda: sum(len(each.messages) for each in made) == 80)
    assert len(made) == 3
    assert all(each.closed == 1 for each in made)
    keys = [{message.key for message in each.messages} for each in made]
    assert sorted(key for each in keys for key in each if key) == list("abcdefgh")
    for each in made:
        for key in {message.key for message in each.messages}:
            positions_of_key = [message.event.position for message in each.messages if message.key == key]
            assert positions_of_key == sorted(positions_of_key)
            assert len(positions_of_key) == 10


def test_partitions_can_share_one_publisher(store: EventStore) -> None:
    add_keys(store, "abcdefgh" * 10)
    collector = Collector()
    with start(store, Outbox("o", TOPIC, collector, lease_s=1, partitions=3)):
        eventually(lambda: len(collector.messages) == 80)
    assert sorted(collector.positions) == positions(store)
