"""Behaviour of this engine alone: unknown results, limits, positions, namespaces, watches."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from uuid import uuid4

import fdb.tuple
import pytest
from tests.support.simulated_fdb import Fate, Fault, SimulatedCluster

import fencepost
from fencepost import (
    AppendCondition,
    ConditionFailed,
    Delete,
    Event,
    EventStore,
    FormatUnsupported,
    InvalidInput,
    Put,
    Query,
    QueryItem,
    Record,
    StoreCorrupt,
    StoreError,
    StoreUnavailable,
)
from fencepost.buckets import write_buckets
from fencepost.core.verdicts import Append, judge_records, keys_of
from fencepost.engine import append_each
from fencepost.engines.foundationdb.binding import simple_write
from fencepost.engines.foundationdb.draft import Draft
from fencepost.engines.foundationdb.judgement import ReadBuckets
from fencepost.engines.foundationdb.layout import SUBSET_TAGS, Keys, at, position_in, stamped_key
from fencepost.model.limits import MAX_DATA_BYTES, MAX_POSITION, MAX_TAG_BYTES, MAX_TAGS, MAX_TYPE_BYTES

from .clusters import engine_on

WALLET = Query.of(tags={"wallet:1"})
OPENED = Event("Opened", tags={"wallet:1"})
UNKNOWN = [Fault(code, fate) for code in (1021, 1031, 1039) for fate in Fate if (code, fate) != (1021, Fate.IN_FLIGHT)]


@pytest.fixture
def cluster() -> SimulatedCluster:
    return SimulatedCluster(1, late=0.0)


@pytest.fixture
def store(cluster: SimulatedCluster) -> EventStore:
    return EventStore(engine_on(cluster))


def rows(cluster: SimulatedCluster) -> list[tuple[object, ...]]:
    """The keys of the namespace, as tuples."""
    found = cluster.open().create_transaction().get_range(b"", b"\xff").to_list()
    return [fdb.tuple.unpack(row.key)[2:] for row in found]


class TestUnknownResults:
    @pytest.mark.parametrize("fault", UNKNOWN, ids=str)
    def test_an_append_is_stored_once_and_does_not_conflict_with_itself(
        self, cluster: SimulatedCluster, store: EventStore, fault: Fault
    ) -> None:
        cluster.faults.script("commit", fault)
        placed = store.append([OPENED, OPENED], AppendCondition(WALLET))
        cluster.deliver()
        assert not placed.already
        assert [event.position for event in store.read()] == [placed.first, placed.last]
        assert store.head() == placed.last

    @pytest.mark.parametrize("fault", UNKNOWN, ids=str)
    def test_a_blind_append_is_stored_once(self, cluster: SimulatedCluster, store: EventStore, fault: Fault) -> None:
        cluster.faults.script("commit", fault, fault)
        placed = store.append([OPENED])
        cluster.deliver()
        assert [event.position for event in store.read()] == [placed.first]

    @pytest.mark.parametrize("fault", UNKNOWN, ids=str)
    def test_an_append_with_ids_is_not_told_that_it_was_there_already(
        self, cluster: SimulatedCluster, store: EventStore, fault: Fault
    ) -> None:
        given = [Event("Opened", id=uuid4())]
        cluster.faults.script("commit", fault)
        placed = store.append(given, unless=Query.of(types={"Opened"}))
        assert not placed.already
        assert store.append(given).already
        assert store.append(given).first == placed.first

    @pytest.mark.parametrize("fault", UNKNOWN, ids=str)
    def test_a_checkpoint_moves_once(self, cluster: SimulatedCluster, store: EventStore, fault: Fault) -> None:
        cluster.faults.script("commit", fault)
        head = store.append([OPENED]).last
        cluster.faults.script("commit", fault)
        assert store.append([], checkpoint=("name", 5)).last == head
        assert store.checkpoint("name") == 5

    def test_what_is_refused_by_a_later_try_never_arrives(self, cluster: SimulatedCluster, store: EventStore) -> None:
        """The first try is under way when a rival commits; the second is refused because of the rival."""
        cluster.faults.script("commit", Fault(1031, Fate.IN_FLIGHT), None)
        rival = EventStore(engine_on(cluster))
        steps: list[Callable[[], object]] = [lambda: None, lambda: rival.append([OPENED])]

        def overtake(step: str) -> None:
            if step == "read_version" and steps:
                steps.pop(0)()

        cluster.on_step = overtake
        with pytest.raises(ConditionFailed):
            store.append([Event("Mine", tags={"wallet:1"})], AppendCondition(WALLET))
        cluster.on_step = None
        cluster.deliver()
        cluster.advance(1)
        assert [event.type for event in store.read()] == ["Opened"]

    def test_too_many_timeouts_are_a_storage_error(self, cluster: SimulatedCluster, store: EventStore) -> None:
        cluster.faults.script("commit", *[Fault(1031)] * 3)
        with pytest.raises(StoreUnavailable):
            store.append([OPENED], AppendCondition(WALLET))
        assert list(store.read()) == []

    def test_tokens_are_cleared_by_later_appends_and_by_closing(
        self, cluster: SimulatedCluster, store: EventStore
    ) -> None:
        def tokens() -> int:
            return sum(row[0] == "e" and row[2] == "o" for row in rows(cluster))

        for _ in range(40):
            store.append([OPENED])
            assert tokens() == 1
        store.close()
        assert tokens() == 0


class TestConflicts:
    def test_a_conflict_alone_is_no_verdict(self, cluster: SimulatedCluster, store: EventStore) -> None:
        cluster.faults.script("commit", *[Fault(1020)] * 20)
        store.append([OPENED], AppendCondition(WALLET))
        assert len(list(store.read())) == 1

    @pytest.mark.parametrize("code", [1025, 2000])
    def test_a_failing_check_is_a_storage_error(self, cluster: SimulatedCluster, store: EventStore, code: int) -> None:
        cluster.faults.script("read", Fault(code))
        with pytest.raises(StoreError):
            store.append([OPENED], AppendCondition(WALLET))
        assert list(store.read()) == []

    def test_no_conflict_key_is_stored_and_what_is_stored_is_linear_in_the_tags(
        self, cluster: SimulatedCluster, store: EventStore
    ) -> None:
        def kept() -> list[tuple[object, ...]]:
            """Without heads and tokens, which do not stay."""
            return [row for row in rows(cluster) if not (row[0] == "e" and row[2] in ("h", "o"))]

        for count in range(11):
            before = len(kept())
            store.append([Event("A", tags={f"tag:{number}" for number in range(count)})])
            assert len(kept()) - before == 2 + 2 * count
        assert not any(row[0] == "c" for row in kept())

    def test_a_past_that_takes_longer_than_a_transaction_may_last_is_judged_in_several(
        self, cluster: SimulatedCluster, store: EventStore
    ) -> None:
        for _ in range(5):
            store.append([Event("Other", tags={"a" if number % 2 else "b"}) for number in range(200)])
        # Each try gets one page further before its transaction is too old.
        cluster.faults.script("read", *[None, Fault(1007)] * 6)
        placed = store.append([Event("Mine")], AppendCondition(Query.of(tags={"a", "b"})))
        assert store.head() == placed.last

    def test_the_retry_reads_only_what_is_new(self, cluster: SimulatedCluster, store: EventStore) -> None:
        for _ in range(15):
            store.append([Event("Other", tags={"a" if number % 2 else "b"}) for number in range(200)])
        first, second = self.reads_of(cluster, store, Query.of(tags={"a", "b"}))
        assert first > 3
        assert second == 2, "the token, and one page of what is new for the tag whose postings had ended"

    def test_a_rare_type_of_a_frequent_tag_is_judged_without_reading_every_posting_of_the_tag(
        self, cluster: SimulatedCluster, store: EventStore
    ) -> None:
        for _ in range(15):
            store.append([Event("Other", tags={"hot"}) for _ in range(200)])
        first, second = self.reads_of(cluster, store, Query.of(types={"Absent", "Rare"}, tags={"hot"}))
        assert first == 3, "a page of the tag, then the postings of each type"
        assert second == 3, "the token, and one page of what is new for each type"

    @staticmethod
    def reads_of(cluster: SimulatedCluster, store: EventStore, query: Query) -> tuple[int, int]:
        """How many reads an append under that condition takes in its first try, and in its second."""
        steps: list[str] = []
        cluster.on_step = steps.append
        cluster.faults.script("commit", Fault(1020))
        store.append([Event("Mine")], AppendCondition(query))
        first, second = (tried.split() for tried in " ".join(steps).split("commit")[:2])
        return first.count("read"), second.count("read")


class TestLimits:
    def test_the_largest_legal_event_is_stored(self, store: EventStore) -> None:
        tags = {f"{number:02}" + "x" * (MAX_TAG_BYTES - 2) for number in range(MAX_TAGS)}
        event = Event("T" * MAX_TYPE_BYTES, data=b"\xff" * MAX_DATA_BYTES, tags=tags, id=uuid4(), metadata={"m": "x"})
        store.append([event], AppendCondition(Query.of(tags=tags)))
        assert [stored.event for stored in store.read(Query.of(tags=tags))] == [event]

    @pytest.mark.parametrize(
        "events",
        [
            [Event("A", data=bytes(MAX_DATA_BYTES))] * 2,
            [Event("A", tags={f"tag:{number}"}) for number in range(1_000)],
            [Event("A")] * 4_097,
        ],
        ids=["bytes", "postings", "events"],
    )
    def test_what_no_transaction_can_hold_is_refused_before_it_is_sent(
        self, cluster: SimulatedCluster, store: EventStore, events: list[Event]
    ) -> None:
        steps: list[str] = []
        cluster.on_step = steps.append
        with pytest.raises(InvalidInput, match="limit of") as refused:
            store.append(events)
        assert refused.value.field == "events"
        assert steps == []
        assert store.head() == 0

    def test_of_several_appends_each_fails_by_itself(self, cluster: SimulatedCluster, store: EventStore) -> None:
        too_large = Append(tuple([Event("A", data=bytes(MAX_DATA_BYTES))] * 2), ())
        cluster.faults.script("commit", None, Fault(2000))
        verdicts = append_each(store, [Append((OPENED,), ()), too_large, Append((OPENED,), ()), Append((OPENED,), ())])
        assert [type(verdict).__name__ for verdict in verdicts] == ["Placed", "Failed", "Failed", "Placed"]
        assert len(list(store.read())) == 2

    def test_the_largest_conditions_of_an_append_fit_into_a_transaction(self, store: EventStore) -> None:
        items = [QueryItem(tags={f"{number}/{n}" + "x" * 1_000 for n in range(20)}) for number in range(256)]
        conditions = [AppendCondition(Query(items[number : number + 64])) for number in range(0, 256, 64)]
        assert store.append([OPENED], conditions).last > 0

    def test_a_draft_counts_at_least_what_the_database_counts(self, cluster: SimulatedCluster) -> None:
        keys = Keys("test")
        append = Append(
            tuple(Event("A", data=b"x" * n, tags={"a", "b", f"tag:{n}"}, id=uuid4()) for n in range(50)),
            (AppendCondition(WALLET),),
            checkpoint=("name", 1),
            records=(Put("name", b"x" * 1_000, 0), Delete("other", 1)),
        )
        other = Record("records/other", b"", 1)
        changes = judge_records(append, {other.name: other}.get)
        assert isinstance(changes, dict)
        reads = ReadBuckets(append, keys).keys(0)
        draft = Draft(append, keys, b"token", reads=reads)
        transaction = cluster.open().create_transaction()
        for event in append.events:
            assert event.id is not None
            transaction.get(keys.id(event.id)).wait()
        for key in keys_of(append):
            transaction.get(keys.record(key)).wait()
        simple_write(transaction, draft.writes(reads, changes, []))
        assert transaction.get_approximate_size().wait() <= draft.size


class TestPositions:
    def test_are_96_bits_wide_and_in_the_order_of_commits(self, store: EventStore) -> None:
        placed = [store.append([OPENED] * 3) for _ in range(20)]
        positions = [event.position for event in store.read()]
        assert positions == sorted(positions)
        assert positions == [position for one in placed for position in range(one.first, one.last + 1)]
        assert all(2**64 < position <= MAX_POSITION for position in positions)

    def test_survive_json(self, store: EventStore) -> None:
        condition = AppendCondition(WALLET, after=store.append([OPENED]).last)
        assert AppendCondition.from_json(condition.to_json()) == condition

    def test_keys_of_positions_are_the_tuple_layers(self) -> None:
        prefix = Keys("test").tag("x")
        position = (7 << 96) // 11
        key = at(prefix, position)
        stamp = fdb.tuple.unpack(key)[-1]
        assert stamp.tr_version + stamp.user_version.to_bytes(2, "big") == position.to_bytes(12, "big")
        assert position_in(key, prefix) == position
        template = stamped_key(prefix, Keys("test").place(partition=0, index=5))
        assert int.from_bytes(template[-4:], "little") == len(prefix) + 1
        assert template[:-4] == prefix + b"\x33" + b"\xff" * 10 + b"\0\5"

    def test_conflict_keys_are_the_tuple_layers(self) -> None:
        keys = Keys("test")
        event = Event("Ä", tags={"a", "a,b", "\U0001f600", "x" * 100})
        expected = {keys.bucket(bucket) for bucket in write_buckets(event, up_to=SUBSET_TAGS)}
        assert set(keys.index(event, 0)[1]) == expected
        assert len(expected) == 2 * (1 + 4 + 6)
        assert fdb.tuple.unpack(keys.bucket((("a", "b"), None)))[2:] == ("c", ("a", "b"), None)

    def test_a_cluster_that_is_behind_the_store_is_refused(self, cluster: SimulatedCluster, store: EventStore) -> None:
        """As after restoring a backup into a new cluster: positions would go back."""
        store.append([OPENED])
        restored = SimulatedCluster(1)
        tr = restored.open().create_transaction()
        for row in cluster.open().create_transaction().get_range(b"", b"\xff"):
            tr[row.key] = row.value
        tr[Keys("test").heads[3]] = (2**95).to_bytes(12, "big")
        tr.commit().wait()
        with pytest.raises(StoreCorrupt, match="advanceversion"):
            engine_on(restored)


class TestReading:
    def test_a_page_whose_transaction_fails_is_read_again_without_duplicates_or_gaps(
        self, cluster: SimulatedCluster, store: EventStore
    ) -> None:
        for first in range(0, 3_000, 500):
            store.append([Event("A", data=b"%d" % n, tags={"x", f"y:{n % 3}"}) for n in range(first, first + 500)])
        for query in (Query.all(), Query.of(tags={"x"}), Query.of(tags={"x", "y:1"}), Query.of(types={"A"})):
            for backwards in (False, True):
                undisturbed = list(store.read(query, backwards=backwards))
                cluster.faults.script("read", *[Fault(1007), None, Fault(1009)] * 3)
                assert list(store.read(query, backwards=backwards)) == undisturbed
        assert len(list(store.read(Query.of(tags={"x", "y:1"})))) == 1_000

    def test_events_in_many_pieces_are_read_whole_in_both_directions(self, store: EventStore) -> None:
        given = [
            Event("A", data=bytes([n]) * size) for n, size in enumerate([0, 89_000, 90_000, 500_000, 10, 180_001] * 3)
        ]
        for event in given:
            store.append([event])
        assert [event.event for event in store.read()] == given
        assert [event.event for event in store.read(backwards=True)] == given[::-1]
        assert [event.event for event in store.read(limit=5)] == given[:5]
        assert [event.event for event in store.read(limit=5, backwards=True)] == given[::-1][:5]

    def test_neighbours_are_fetched_in_one_range(self, cluster: SimulatedCluster, store: EventStore) -> None:
        store.append([Event("A", tags={"x"}) for _ in range(300)])
        steps: list[str] = []
        reading = store.read(Query.of(tags={"x"}))
        cluster.on_step = steps.append
        assert len(list(reading)) == 300
        assert steps.count("read") < 10


class TestNamespaces:
    def test_are_stores_of_their_own(self, cluster: SimulatedCluster) -> None:
        one, two = EventStore(engine_on(cluster, "one")), EventStore(engine_on(cluster, "two"))
        one.append([OPENED], AppendCondition(WALLET), checkpoint=("name", 1))
        assert (two.head(), two.checkpoint("name"), list(two.read())) == (0, 0, [])
        two.append([OPENED], AppendCondition(WALLET))

    def test_clearing_one_leaves_the_others(self, cluster: SimulatedCluster) -> None:
        one, two = engine_on(cluster, "one"), engine_on(cluster, "one2")
        EventStore(one).append([OPENED])
        EventStore(two).append([OPENED])
        one.clear()
        assert one.head() == 0
        assert two.head() > 0

    @pytest.mark.parametrize("name", ["", "a\0b", "x" * 513])
    def test_malformed_names_are_refused(self, cluster: SimulatedCluster, name: str) -> None:
        with pytest.raises(InvalidInput, match="namespace"):
            engine_on(cluster, name)

    def test_another_format_is_refused(self, cluster: SimulatedCluster) -> None:
        for format in (b"fencepost 1", fdb.tuple.pack(("fencepost", 2, 16)), fdb.tuple.pack(("other", 1, 16))):
            tr = cluster.open().create_transaction()
            tr[Keys("test").format] = format
            tr.commit().wait()
            with pytest.raises(FormatUnsupported):
                engine_on(cluster)


class TestWaiting:
    def test_a_watch_wakes_whoever_waits(self, cluster: SimulatedCluster, store: EventStore) -> None:
        engine = engine_on(cluster)
        heads: list[int] = []
        waiting = threading.Thread(target=lambda: heads.append(engine.wait(0, 60)))
        waiting.start()
        while not cluster.watches:
            time.sleep(0.001)
        cluster.disturb_watches()
        cluster.disturb_watches(1101)
        placed = store.append([OPENED])
        waiting.join(60)
        assert heads == [placed.last]
        assert cluster.watches == 0

    def test_an_interrupt_ends_the_waiting_and_its_watch(self, cluster: SimulatedCluster) -> None:
        engine = engine_on(cluster)
        heads: list[int] = []
        waiting = threading.Thread(target=lambda: heads.append(engine.wait(0, 600)))
        waiting.start()
        while not cluster.watches:
            time.sleep(0.001)
        engine.interrupt()
        waiting.join(60)
        assert heads == [0]
        assert cluster.watches == 0


class TestAddresses:
    def test_without_the_client_library_the_error_says_what_to_install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def api_version(version: int) -> None:
            raise Exception("Unable to locate the FoundationDB API shared library!")

        monkeypatch.setattr(fdb, "is_api_version_selected", lambda: False)
        monkeypatch.setattr(fdb, "api_version", api_version)
        with pytest.raises(StoreUnavailable, match="libfdb_c"):
            fencepost.open("fdb:/etc/foundationdb/fdb.cluster?namespace=wallets")

    def test_unknown_options_are_refused(self) -> None:
        with pytest.raises(InvalidInput, match="namespaces"):
            fencepost.open("fdb:?namespaces=wallets")
