"""The log in partitions: appends spread over them, readers merge them, and the order stays that of the commits."""

from __future__ import annotations

import random
from collections import Counter

import fdb.tuple
import pytest
from tests.support.simulated_fdb import Fault, SimulatedCluster

from fencepost import AppendCondition, ConditionFailed, Event, EventStore, InvalidInput, Query
from fencepost.buckets import matches
from fencepost.engines.foundationdb.layout import Keys, format_of, packed_bytes, packed_text, partitions_in

from .clusters import engine_on

QUERIES = [
    Query.all(),
    Query.of(types={"A"}),
    Query.of(types={"A", "B"}),
    Query.of(tags={"x"}),
    Query.of(types={"B"}, tags={"x"}),
    Query.of(types={"A", "B"}, tags={"x", "y"}),
]


def filled(cluster: SimulatedCluster, partitions: int, appends: int = 200) -> EventStore:
    chance = random.Random(partitions)
    store = EventStore(engine_on(cluster, partitions=partitions))
    for number in range(appends):
        store.append(
            [
                Event(chance.choice("ABC"), data=b"%d/%d" % (number, n), tags=chance.sample("xyz", 2))
                for n in range(chance.choice([1, 1, 2, 5]))
            ]
        )
    return store


@pytest.mark.parametrize("partitions", [1, 2, 16, 64])
def test_every_reading_is_in_the_order_of_commits(partitions: int) -> None:
    store = filled(SimulatedCluster(1), partitions)
    every = list(store.read())
    assert [event.position for event in every] == sorted(event.position for event in every)
    numbers = [tuple(map(int, event.data.split(b"/"))) for event in every]
    assert numbers == sorted(numbers), "the order of the commits, and within each the order of its events"
    for query in QUERIES:
        expected = [event for event in every if matches(event, query)]
        assert list(store.read(query)) == expected
        assert list(store.read(query, backwards=True)) == expected[::-1]
        middle = every[len(every) // 2].position
        assert list(store.read(query, after=middle, limit=7)) == [e for e in expected if e.position > middle][:7]
        assert (
            list(store.read(query, up_to=middle, limit=7, backwards=True))
            == [e for e in expected if e.position <= middle][::-1][:7]
        )


def test_appends_are_spread_evenly_and_a_position_names_its_partition() -> None:
    cluster = SimulatedCluster(1)
    store = filled(cluster, 16, appends=160)
    tr = cluster.open().create_transaction()
    keys = Keys("test", 16)
    held = [{row.key[: len(log) + 13] for row in tr.get_range(log + b"\x33", log + b"\x34")} for log in keys.logs]
    assert [len({key[-12:-2] for key in part}) for part in held] == [10] * 16, "appends in each partition"
    for event in store.read():
        log = keys.log_of(event.position)
        assert log + b"\x33" + event.position.to_bytes(12, "big") in held[keys.logs.index(log)]


def test_no_key_is_written_by_every_append() -> None:
    """One such key, or one place where all keys are added, would be a shard that cannot be split."""
    cluster = SimulatedCluster(1)
    store = EventStore(engine_on(cluster, partitions=16))
    written: list[set[bytes]] = []

    def note(step: str) -> None:
        if step == "commit":
            written.append(set())

    cluster.on_step = note
    before = stored(cluster)
    for _ in range(32):
        store.append([Event("A")])
        after = stored(cluster)
        written[-1] |= {key for key in after if before.get(key) != after[key]}
        before = after
    times = Counter(key for keys in written for key in keys)
    assert max(times.values()) == 2, "each partition's head is written by two of 32 appends"


def stored(cluster: SimulatedCluster) -> dict[bytes, bytes]:
    cluster.advance(1)
    return {row.key: row.value for row in cluster.open().create_transaction().get_range(b"", b"\xff")}


def test_the_number_of_partitions_is_stored_with_the_format() -> None:
    cluster = SimulatedCluster(1)
    store = filled(cluster, 4, appends=20)
    assert partitions_in(format_of(4)) == 4
    again = EventStore(engine_on(cluster))
    assert list(again.read()) == list(store.read())
    with pytest.raises(InvalidInput, match="partitions: the store exists and has 4 partitions, not 8"):
        engine_on(cluster, partitions=8)


@pytest.mark.parametrize("partitions", [0, 3, 128, -1])
def test_a_number_of_partitions_that_is_not_possible_is_refused(partitions: int) -> None:
    with pytest.raises(InvalidInput, match="partitions"):
        engine_on(SimulatedCluster(1), partitions=partitions)


def test_the_events_of_an_append_and_the_partitions_share_sixteen_bits() -> None:
    cluster = SimulatedCluster(1)
    store = EventStore(engine_on(cluster, partitions=64, transaction_bytes=10_000_000))
    assert Keys("test", 64).events_per_append == 1_024
    placed = [store.append([Event("A")] * 1_024) for _ in range(3)]
    assert [p.last - p.first for p in placed] == [1_023] * 3
    assert [e.position for e in store.read()] == [n for p in placed for n in range(p.first, p.last + 1)]
    with pytest.raises(InvalidInput, match="1025 events, the limit of a FoundationDB store with 64 partitions is 1024"):
        store.append([Event("A")] * 1_025)


def test_the_head_is_that_of_the_last_commit_in_whichever_partition() -> None:
    store = EventStore(engine_on(SimulatedCluster(1)))
    for _ in range(40):
        assert store.append([Event("A")]).last == store.head()


@pytest.mark.parametrize("query", QUERIES, ids=range(len(QUERIES)))
def test_a_condition_sees_a_match_in_every_partition(query: Query) -> None:
    for partition in range(16):
        cluster = SimulatedCluster(partition)
        store = EventStore(engine_on(cluster))
        for _ in range(partition):
            store.append([Event("Other")])
        after = store.head()
        placed = store.append([Event(max(query.items[0].types, default="A"), tags={"x", "y"})])
        with pytest.raises(ConditionFailed) as failed:
            store.append([Event("C")], AppendCondition(query, after=after))
        assert failed.value.conflict.position == placed.first


def test_a_reading_begins_with_head_and_first_page_in_one_transaction() -> None:
    cluster = SimulatedCluster(1)
    store = filled(cluster, 16, appends=20)
    for query in QUERIES:
        steps: list[str] = []
        cluster.on_step = steps.append
        reading = store.read(query)
        next(iter(reading), None)
        cluster.on_step = None
        assert steps.count("read_version") == 1, query
        assert reading.head == store.head()


def test_what_is_appended_while_a_reading_goes_on_is_not_in_it() -> None:
    cluster = SimulatedCluster(1)
    store = EventStore(engine_on(cluster, transaction_bytes=10_000_000))
    store.append([Event("A", tags={"x"})] * 1_500)
    for query in (Query.all(), Query.of(tags={"x"})):
        for backwards in (False, True):
            reading = store.read(query, backwards=backwards)
            count, head = len(list(store.read(query))), store.head()
            seen = [next(iter(reading))]
            store.append([Event("A", tags={"x"})] * 3)
            seen += reading
            assert len(seen) == count
            assert reading.head == head


def test_a_page_of_the_merged_log_that_fails_midway_is_gone_on_with() -> None:
    cluster = SimulatedCluster(1, rows_per_reply=5)
    store = filled(cluster, 4)
    undisturbed = list(store.read())
    for number in range(30):
        cluster.faults.script("read", *[None] * number, Fault(1007), None, Fault(1009))
        assert list(store.read()) == undisturbed
        cluster.faults = type(cluster.faults)()


@pytest.mark.parametrize("text", ["", "plain", "Ä\U0001f600", "a\0b", "\0", "\0\xff", "x" * 1_000])
def test_strings_and_bytes_are_packed_as_by_the_tuple_layer(text: str) -> None:
    assert packed_text(text) == fdb.tuple.pack((text,))
    assert packed_bytes(text.encode()) == fdb.tuple.pack((text.encode(),))


def test_keys_are_the_tuple_layers() -> None:
    keys = Keys("test", 16)
    assert fdb.tuple.unpack(keys.heads[3])[2:] == ("e", 3, "h")
    assert fdb.tuple.unpack(keys.token(2, b"t"))[2:] == ("e", 2, "o", b"t")
    assert fdb.tuple.unpack(keys.type_in_partitions("A")[5])[2:] == ("t", "A", 5)
    assert fdb.tuple.unpack(keys.tag("x", "A"))[2:] == ("g", "x", "A")
    assert fdb.tuple.unpack(keys.tag("x"))[2:] == ("g", "x", None)
