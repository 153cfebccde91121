"""Several workers share a consumer: every effect happens once, and the events of each key are handled in order.

Workers are threads and real processes, which come, go, are killed with -9 and are suspended with SIGSTOP.
"""

from __future__ import annotations

import os
import random
import signal
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.support.processes import Child

import fencepost
from fencepost import Event, EventStore, InvalidInput, SequencedEvent
from fencepost.consumers import (
    CommandRefused,
    Consumer,
    Failures,
    PartitionsDiffer,
    Reaction,
    Runner,
    consumer,
    dead_letters,
    pause,
    repartition,
    replay,
    reset,
    resume,
    start,
    status,
    step,
)
from fencepost.consumers.partitions import Division
from fencepost.decisions import encode

from . import sharing_program
from .places import Added, Moved, Other, Place, control, eventually
from .sharing_program import PARTITIONS, shared_into

KEYS = [f"k{number}" for number in range(20)]


@pytest.fixture
def store(place: Place) -> Iterator[EventStore]:
    with place.open() as store:
        yield store


def fill(store: EventStore, count: int, chance: random.Random | None = None) -> None:
    """Store so many events of random keys; every tenth or so concerns two of them."""
    chance = chance or random.Random(count)
    events = []
    for _ in range(count):
        source, target = chance.sample(KEYS, 2)
        events.append(Moved(source, target) if chance.random() < 0.1 else Added(source, 1))
    for begin in range(0, count, 20):
        store.append([encode(each) for each in events[begin : begin + 20]])


def expected(store: EventStore) -> list[int]:
    return [event.position for event in store.read() if event.type in ("Added", "Moved")]


def by_key(store: EventStore, handled: list[int]) -> dict[str, list[int]]:
    """The handled positions of each key, in the order in which they were handled."""
    tags = {event.position: event.tags for event in store.read()}
    found: dict[str, list[int]] = defaultdict(list)
    for position in handled:
        for tag in tags[position]:
            found[tag].append(position)
    return found


def assert_once_and_in_order(store: EventStore, handled: list[int]) -> None:
    assert sorted(handled) == expected(store)
    assert all(positions == sorted(positions) for positions in by_key(store, handled).values())


def all_handled(place: Place, store: EventStore) -> Callable[[], bool]:
    return lambda: len(place.effects()) >= len(expected(store))


def holders(store: EventStore) -> dict[str, int]:
    """How many partitions each process leads."""
    found: dict[str, int] = defaultdict(int)
    for lease in control(store, "shared").leases.values():
        if lease.holder is not None:
            found[lease.holder] += 1
    return dict(found)


def shares(store: EventStore, *wanted: int) -> Callable[[], bool]:
    return lambda: sorted(holders(store).values()) == sorted(wanted)


class TestTheDivision:
    def test_it_is_the_same_in_every_process_and_version(self) -> None:
        division = Division(8, "wallet")
        assert [division.partition_of(value) for value in ("w1", "w2", "w3", "ünï")] == [0, 2, 5, 7]

    def test_keys_are_spread_evenly(self) -> None:
        division = Division(16, "wallet")
        counts = [0] * 16
        for number in range(16_000):
            counts[division.partition_of(f"wallet-{number}")] += 1
        assert all(800 < count < 1_200 for count in counts)

    def test_an_event_without_the_key_belongs_to_partition_0(self) -> None:
        with fencepost.open("memory:") as store:
            store.append([Event("A", tags={"owner:1"}), Event("B")])
            assert [list(Division(8, "wallet").of(event)) for event in store.read()] == [[0], [0]]

    @pytest.mark.parametrize(
        ("options", "field"),
        [
            ({"partitions": 0, "key": "wallet"}, "partitions"),
            ({"partitions": 1_025, "key": "wallet"}, "partitions"),
            ({"partitions": 4}, "key"),
            ({"key": "wallet"}, "key"),
            ({"partitions": 4, "key": "wallet:w1"}, "key"),
            ({"partitions": 4, "key": "wallet", "failures": Failures(then="set aside", key="owner")}, "failures.key"),
        ],
    )
    def test_a_declaration_that_cannot_work_is_refused(self, options: dict[str, Any], field: str) -> None:
        with pytest.raises(InvalidInput) as refused:
            Consumer("shared", **options)
        assert refused.value.field == field

    def test_partitions_cannot_share_one_connection(self, place: Place, store: EventStore) -> None:
        connection = place.connect()
        try:
            with pytest.raises(InvalidInput, match="cannot share one connection"):
                start(store, _into(connection))
        finally:
            connection.close()


def _into(into: Any) -> Consumer:
    @consumer("shared", into=into, partitions=2, key="key")
    def shared(event: Added, tx: Any) -> None: ...

    return shared


def test_one_worker_leads_all_partitions(place: Place, store: EventStore) -> None:
    fill(store, 200)
    with start(store, shared_into(place.into, lease_s=30)):  # a lease that ended on a busy machine is not given back
        eventually(all_handled(place, store), "all effects")
        fill(store, 100)
        eventually(all_handled(place, store), "the later effects")
        assert shares(store, PARTITIONS)()
    assert_once_and_in_order(store, place.effects())
    assert holders(store) == {}


def test_workers_that_come_and_go_share_the_partitions(place: Place, store: EventStore) -> None:
    with ExitStack() as stack:
        runners: list[Runner] = []
        for wanted in ([4], [2, 2], [2, 1, 1]):
            runners.append(stack.enter_context(start(store, shared_into(place.into, wait_s=0.001))))
            fill(store, 100)
            eventually(shares(store, *wanted), f"the shares {wanted}")
        for wanted in ([2, 2], [4]):
            fill(store, 100)
            runners.pop(0).stop()
            eventually(shares(store, *wanted), f"the shares {wanted}")
        eventually(all_handled(place, store), "all effects")
    assert_once_and_in_order(store, place.effects())


def test_more_workers_than_partitions_wait_as_a_reserve(place: Place, store: EventStore) -> None:
    with ExitStack() as stack:
        runners = [stack.enter_context(start(store, shared_into(place.into, partitions=2))) for _ in range(3)]
        eventually(shares(store, 1, 1), "the shares")
        eventually(lambda: len(control(store, "shared").workers) == 3, "three workers")
        leading = next(each for each in runners if each.holder in holders(store))
        leading.stop()
        eventually(lambda: leading.holder not in holders(store) and shares(store, 1, 1)(), "the reserve")
        fill(store, 50)
        eventually(all_handled(place, store), "all effects")
    assert_once_and_in_order(store, place.effects())


def test_reactions_of_partitions_are_stored_once_and_in_order(store: EventStore) -> None:
    @consumer("shared", partitions=PARTITIONS, key="key", lease_s=1)
    def shared(event: Added | Moved, reaction: Reaction, stored: SequencedEvent) -> None:
        reaction.append([Event("Reacted", data=str(stored.position).encode())])

    def reacted() -> list[int]:
        return [int(event.data) for event in store.read() if event.type == "Reacted"]

    fill(store, 100)
    with start(store, shared):
        eventually(lambda: len(reacted()) >= 30, "some reactions")
        with start(store, shared):
            fill(store, 50)
            eventually(lambda: len(reacted()) >= 80, "more reactions")
        eventually(lambda: len(reacted()) >= len(expected(store)), "all reactions")
    assert_once_and_in_order(store, reacted())


class Processes:
    """Starts processes that share the consumer, and ends them all with the test."""

    def __init__(self, place: Place, folder: Path, stack: ExitStack) -> None:
        self._place, self._folder, self._stack = place, folder, stack
        self._count = 0

    def start(self, trouble: str = "", at: int = 0) -> Child:
        self._count += 1
        reports = self._folder / f"reports-{self._count}"
        arguments = (self._place.address, self._place.into, self._folder / "stop", trouble, at)
        child = self._stack.enter_context(Child(sharing_program.__file__, reports, *arguments))
        child.wait_for(1)
        return child


def pid(child: Child) -> int:
    return child._process.pid


def leads(store: EventStore, child: Child) -> bool:
    return any(int(holder.split("/")[1]) == pid(child) for holder in holders(store))


@pytest.fixture
def processes(place: Place, tmp_path: Path) -> Iterator[Processes]:
    with ExitStack() as stack:
        yield Processes(place, tmp_path, stack)


class TestProcesses:
    def test_the_partitions_of_a_killed_process_are_taken_over(
        self, place: Place, processes: Processes, store: EventStore
    ) -> None:
        chance = random.Random(1)
        children = [processes.start(), processes.start()]
        eventually(shares(store, 2, 2), "equal shares")
        for _ in range(3):
            fill(store, 150, chance)
            before = len(place.effects())
            eventually(lambda before=before: len(place.effects()) > before + 20, "progress")
            children.pop(0).kill()
            children.append(processes.start())
        eventually(all_handled(place, store), "all effects")
        eventually(lambda: all(leads(store, child) for child in children), "equal shares of the living")
        assert_once_and_in_order(store, place.effects())

    def test_a_suspended_process_loses_its_partitions_and_its_late_writes_are_refused(
        self, place: Place, processes: Processes, store: EventStore
    ) -> None:
        late = processes.start("stop-in-handler", 60)
        eventually(shares(store, 4), "the lead")
        fill(store, 100)
        late.wait_for(2)
        assert "suspended" in late.lines()[1]
        processes.start()
        if place.kind == "postgres":  # an SQLite file stays locked by the suspended process
            eventually(all_handled(place, store), "the effects of the other process")
        eventually(lambda: not leads(store, late) and shares(store, 4)(), "the new leases")
        os.kill(pid(late), signal.SIGCONT)
        late.wait_for(3)
        fill(store, 50)
        eventually(lambda: leads(store, late), "the return of the suspended process")
        eventually(all_handled(place, store), "all effects")
        assert_once_and_in_order(store, place.effects())


class TestChangingTheNumber:
    def test_another_declaration_is_refused_and_says_what_to_do(self, place: Place, store: EventStore) -> None:
        with start(store, shared_into(place.into)):
            eventually(shares(store, 4), "the lead")
            with start(store, shared_into(place.into, partitions=8)) as other:
                assert other.wait(60)
                with pytest.raises(PartitionsDiffer, match=r"declares 8 partitions .* recorded 4 .* repartition"):
                    other.check()

    def test_a_consumer_without_partitions_is_not_divided_by_itself(self, place: Place, store: EventStore) -> None:
        with start(store, _single(place)):
            eventually(lambda: control(store, "shared").leases, "the lead")
        with start(store, shared_into(place.into)) as runner:
            assert runner.wait(60)
            with pytest.raises(PartitionsDiffer, match="has recorded no partitions"):
                runner.check()

    def test_nothing_is_lost_doubled_or_reordered_by_a_change(self, place: Place, store: EventStore) -> None:
        fill(store, 300)
        with start(store, _single(place)):
            eventually(lambda: len(place.effects()) > 50, "some effects")
        for partitions in (4, 3, 7):
            before = len(place.effects())
            assert repartition(store, "shared", partitions=partitions, key="key", by="ada")
            fill(store, 40)
            # Ended in the middle, so that the checkpoints of the partitions differ.
            with start(store, shared_into(place.into, partitions=partitions, batch=1, wait_s=0.002)):
                eventually(lambda before=before: len(place.effects()) > before + 30, "more effects")
        assert repartition(store, "shared", partitions=1)
        assert not repartition(store, "shared", partitions=1)
        with start(store, _single(place)):
            fill(store, 40)
            eventually(all_handled(place, store), "all effects")
        assert_once_and_in_order(store, place.effects())

    def test_a_process_with_the_old_declaration_ends(self, place: Place, store: EventStore) -> None:
        with start(store, shared_into(place.into)) as old:
            eventually(shares(store, 4), "the lead")
            fill(store, 100)
            repartition(store, "shared", partitions=3, key="key")
            assert old.wait(60)
            with pytest.raises(PartitionsDiffer):
                old.check()
        with start(store, shared_into(place.into, partitions=3)):
            eventually(all_handled(place, store), "all effects")
        assert_once_and_in_order(store, place.effects())

    def test_after_a_reset_everything_is_handled_again(self, place: Place, store: EventStore) -> None:
        fill(store, 60)
        with start(store, shared_into(place.into)):
            eventually(all_handled(place, store), "all effects")
        repartition(store, "shared", partitions=2, key="key")
        reset(store, "shared", position=0)
        with start(store, shared_into(place.into, partitions=2)):
            eventually(lambda: len(place.effects()) >= 120, "all effects again")
        assert_once_and_in_order(store, place.effects()[60:])


def _single(place: Place) -> Consumer:
    mark = "?" if place.kind == "sqlite" else "%s"

    @consumer("shared", into=place.into, lease_s=1, batch=5)
    def shared(event: Added | Moved, tx: Any, stored: SequencedEvent) -> None:
        tx.execute(f"INSERT INTO effect (position, pid) VALUES ({mark}, 0)", (stored.position,))

    return shared


class TestCommands:
    def test_a_pause_stops_every_partition_and_a_step_moves_one(self, place: Place, store: EventStore) -> None:
        division = Division(PARTITIONS, "key")
        number = division.partition_of("k1")
        with start(store, shared_into(place.into)) as runner:
            eventually(shares(store, 4), "the lead")
            pause(store, "shared", by="ada")
            eventually(lambda: runner.partition_runners[0].recorder.control.paused_by, "the pause")
            store.append([encode(Added(key, 1)) for key in ("k1", "k2", "k1")])
            with pytest.raises(CommandRefused, match="has 4 partitions; say which"):
                step(store, "shared")
            with pytest.raises(CommandRefused, match="no partition 4"):
                step(store, "shared", partition=4)
            step(store, "shared", partition=number)
            eventually(lambda: len(place.effects()) == 1, "the step")
            assert place.effects() == expected(store)[:1]
            resume(store, "shared")
            eventually(all_handled(place, store), "the rest")
        assert_once_and_in_order(store, place.effects())

    def test_the_status_shows_partitions_and_their_holders(self, place: Place, store: EventStore) -> None:
        fill(store, 50)
        with start(store, shared_into(place.into)), start(store, shared_into(place.into)):
            eventually(shares(store, 2, 2), "equal shares")
            eventually(lambda: status(store, ["shared"])[0].lag_events == 0, "no lag")
            (found,) = status(store)
            assert [each.number for each in found.partitions] == [0, 1, 2, 3]
            assert len({each.holder for each in found.partitions}) == 2
            assert {each.state for each in found.partitions} == {"running"} == {found.state}
            assert found.position == min(each.position for each in found.partitions)

    def test_after_a_reset_to_a_position_partitions_meet_there(self, store: EventStore) -> None:
        seen: list[int] = []

        @consumer("shared", partitions=PARTITIONS, key="key", lease_s=1)
        def shared(event: Moved, stored: SequencedEvent) -> None:
            seen.append(stored.position)

        moves = [encode(Moved("k0", key)) for key in KEYS[1:]]
        first = store.append(moves).first
        with start(store, shared):
            eventually(lambda: len(seen) == len(moves), "all of them")
            reset(store, "shared", position=first)
            eventually(lambda: len(seen) == 2 * len(moves) - 1, "all but one again")
        assert seen[len(moves) :] == seen[1 : len(moves)]

    def test_a_failing_key_stops_its_partition_only(self, place: Place, store: EventStore) -> None:
        division, good = Division(2, "key"), "k0"
        bad = next(key for key in KEYS if division.partition_of(key) != division.partition_of(good))
        seen: list[str] = []

        @consumer("shared", partitions=2, key="key", lease_s=1, failures=Failures(attempts=2, base_s=0.01))
        def shared(event: Added | Other) -> None:
            if isinstance(event, Added):
                seen.append(event.key)
            else:
                raise ValueError("poison")

        store.append([encode(Other(bad)), encode(Added(bad, 1)), encode(Added(good, 1))])
        with start(store, shared):
            stopped = eventually(lambda: control(store, "shared").stopped, "the stop")
            eventually(lambda: good in seen, "the other partition")
            assert (stopped.position, seen) == (1, [good])
            states = {each.number: each.state for each in status(store)[0].partitions}
            assert states[division.partition_of(bad)] == "stopped" == status(store)[0].state
            assert states[division.partition_of(good)] == "running"

    def test_events_behind_a_dead_letter_wait_for_its_replay_in_every_partition(self, store: EventStore) -> None:
        division = Division(2, "key")
        one = "k0"
        two = next(key for key in KEYS if division.partition_of(key) != division.partition_of(one))
        poisoned = True
        seen: list[int] = []

        @consumer(
            "shared",
            partitions=2,
            key="key",
            lease_s=1,
            failures=Failures(attempts=1, then="set aside", key="key"),
        )
        def shared(event: Added | Moved, stored: SequencedEvent) -> None:
            if poisoned and isinstance(event, Moved):
                raise ValueError("poison")
            seen.append(stored.position)

        first = store.append([encode(each) for each in (Moved(one, two), Added(one, 1), Added(two, 1))]).first
        with start(store, shared):
            eventually(lambda: len(control(store, "shared").dead_letters) == 3, "three dead letters")
            poisoned = False
            replay(store, "shared")
            eventually(lambda: len(seen) == 3 and not dead_letters(store, "shared"), "the replay")
        assert seen[0] == first
        assert sorted(seen) == [first, first + 1, first + 2]
