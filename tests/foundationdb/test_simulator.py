"""The simulator does what FoundationDB's documentation says; each test is one sentence of it."""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable
from typing import Any

import pytest
from tests.support.simulated_fdb import (
    Fate,
    Fault,
    FDBError,
    KeySelector,
    Schedule,
    SimulatedCluster,
    SimulatedDatabase,
    Transaction,
)

PLACEHOLDER = b"\xff" * 10


@pytest.fixture
def cluster() -> SimulatedCluster:
    return SimulatedCluster(1, late=0.0)


@pytest.fixture
def db(cluster: SimulatedCluster) -> SimulatedDatabase:
    return cluster.open()


def put(db: SimulatedDatabase, **values: bytes) -> None:
    tr = db.create_transaction()
    for key, value in values.items():
        tr[key.encode()] = value
    tr.commit().wait()


def begun(db: SimulatedDatabase) -> Transaction:
    tr = db.create_transaction()
    tr.get_read_version().wait()
    return tr


def keys(rows: Any) -> list[bytes]:
    return [row.key for row in rows]


def commit_fails(tr: Transaction, code: int) -> None:
    with pytest.raises(FDBError) as failed:
        tr.commit().wait()
    assert failed.value.code == code


class TestIsolation:
    def test_a_transaction_sees_the_database_as_it_was_at_its_read_version(self, db: SimulatedDatabase) -> None:
        put(db, a=b"1")
        tr = begun(db)
        put(db, a=b"2", b=b"new")
        assert tr[b"a"] == b"1"
        assert keys(tr[b"":b"\xff"]) == [b"a"]

    def test_a_transaction_created_after_a_commit_was_acknowledged_sees_it(self, db: SimulatedDatabase) -> None:
        for number in range(50):
            put(db, a=b"%d" % number)
            assert begun(db)[b"a"] == b"%d" % number

    def test_what_was_read_and_then_written_by_another_is_a_conflict(self, db: SimulatedDatabase) -> None:
        tr = begun(db)
        assert not tr[b"a"].present()
        tr[b"mine"] = b""
        put(db, a=b"2")
        commit_fails(tr, 1020)

    def test_writes_alone_never_conflict(self, db: SimulatedDatabase) -> None:
        tr = begun(db)
        tr[b"a"] = b"1"
        put(db, a=b"2")
        tr.commit().wait()
        assert begun(db)[b"a"] == b"1"

    def test_a_read_only_transaction_never_conflicts(self, db: SimulatedDatabase) -> None:
        tr = begun(db)
        tr[b"a"].wait()
        put(db, a=b"2")
        tr.commit().wait()
        assert tr.get_committed_version() == -1

    def test_a_snapshot_read_does_not_conflict(self, db: SimulatedDatabase) -> None:
        tr = begun(db)
        assert keys(tr.snapshot[b"a":b"z"]) == []
        tr.snapshot[b"a"].wait()
        tr[b"mine"] = b""
        put(db, a=b"2")
        tr.commit().wait()

    def test_a_range_read_conflicts_with_a_new_key_within_it(self, db: SimulatedDatabase) -> None:
        tr = begun(db)
        tr.get_range(b"a", b"c").to_list()
        tr[b"mine"] = b""
        put(db, b=b"")
        commit_fails(tr, 1020)

    def test_a_limited_range_read_conflicts_only_as_far_as_it_read(self, db: SimulatedDatabase) -> None:
        put(db, b=b"", d=b"")
        near, far = begun(db), begun(db)
        for tr in (near, far):
            assert keys(tr.get_range(b"a", b"z", limit=1)) == [b"b"]
            tr[b"mine"] = b""
        put(db, c=b"")
        near.commit().wait()
        put(db, b=b"2")
        commit_fails(far, 1020)

    def test_a_key_that_the_transaction_itself_has_set_is_read_without_a_conflict(self, db: SimulatedDatabase) -> None:
        tr = begun(db)
        tr[b"a"] = b"1"
        assert tr[b"a"] == b"1"
        put(db, a=b"2")
        tr.commit().wait()

    def test_reads_see_the_transactions_own_writes(self, db: SimulatedDatabase) -> None:
        put(db, a=b"1", b=b"2", c=b"3")
        tr = begun(db)
        del tr[b"a"]
        tr[b"d"] = b"4"
        tr.add(b"e", struct.pack("<q", 5))
        assert keys(tr[b"":b"\xff"]) == [b"b", b"c", b"d", b"e"]
        assert keys(tr.snapshot[b"":b"\xff"]) == [b"b", b"c", b"d", b"e"]
        assert keys(tr.get_range(b"", b"\xff", limit=2, reverse=True)) == [b"e", b"d"]
        tr.options.set_snapshot_ryw_disable()
        assert keys(tr.snapshot[b"":b"\xff"]) == [b"a", b"b", b"c"]


class TestConflictKeys:
    def test_a_read_conflict_key_meets_a_write_conflict_key_though_neither_is_stored(
        self, db: SimulatedDatabase
    ) -> None:
        reader, other, writer = begun(db), begun(db), begun(db)
        reader.add_read_conflict_key(b"k")
        reader[b"mine"] = b""
        other.add_read_conflict_key(b"k2")
        other[b"mine"] = b""
        writer.add_write_conflict_key(b"k")
        writer.commit().wait()
        commit_fails(reader, 1020)
        other.commit().wait()
        assert not begun(db)[b"k"].present()

    def test_conflict_ranges_meet_when_they_overlap(self, db: SimulatedDatabase) -> None:
        inside, outside, writer = begun(db), begun(db), begun(db)
        inside.add_read_conflict_range(b"b", b"d")
        outside.add_read_conflict_range(b"d", b"f")
        for tr in (inside, outside):
            tr[b"mine"] = b""
        writer.add_write_conflict_range(b"a", b"c")
        writer.commit().wait()
        commit_fails(inside, 1020)
        outside.commit().wait()

    @pytest.mark.parametrize(
        ("write", "kept"),
        [
            (lambda tr: tr.set(b"k", b""), False),
            (lambda tr: tr.clear(b"k"), False),
            (lambda tr: tr.set_versionstamped_value(b"k", PLACEHOLDER + bytes(4)), False),
            (lambda tr: tr.add(b"k", b"\1"), True),
            (lambda tr: (tr.set(b"k", b""), tr.add(b"k", b"\1")), False),
            (lambda tr: (tr.add(b"k", b"\1"), tr.set_versionstamped_value(b"k", PLACEHOLDER + bytes(4))), False),
            (lambda tr: tr.add_write_conflict_key(b"k"), True),
        ],
    )
    def test_a_read_conflict_on_a_key_that_the_transaction_has_written_is_dropped_unless_the_write_depends_on_it(
        self, db: SimulatedDatabase, write: Callable[[Transaction], object], kept: bool
    ) -> None:
        before, after, around = begun(db), begun(db), begun(db)
        before.add_read_conflict_key(b"k")
        for tr in (before, after, around):
            write(tr)
        after.add_read_conflict_key(b"k")
        around.add_read_conflict_range(b"j", b"l")
        put(db, k=b"2")
        commit_fails(before, 1020)
        for tr in (after, around):
            if kept:
                commit_fails(tr, 1020)
            else:
                tr.commit().wait()

    def test_a_read_conflict_range_is_kept_beside_the_keys_that_the_transaction_has_written(
        self, db: SimulatedDatabase
    ) -> None:
        tr = begun(db)
        tr[b"k"] = b""
        tr.add_read_conflict_range(b"a", b"z")
        put(db, l=b"2")
        commit_fails(tr, 1020)

    def test_a_write_without_a_write_conflict_range_causes_no_conflict(self, db: SimulatedDatabase) -> None:
        reader, writer = begun(db), begun(db)
        reader[b"a"].wait()
        reader[b"mine"] = b""
        writer.options.set_next_write_no_write_conflict_range()
        writer[b"a"] = b"1"
        writer.commit().wait()
        reader.commit().wait()

    def test_clearing_a_range_conflicts_with_whoever_read_in_it(self, db: SimulatedDatabase) -> None:
        reader = begun(db)
        reader[b"b"].wait()
        reader[b"mine"] = b""
        tr = db.create_transaction()
        tr.clear_range(b"a", b"c")
        tr.commit().wait()
        commit_fails(reader, 1020)


class TestVersionstamps:
    def test_keys_and_values_get_the_stamp_of_the_commit(self, db: SimulatedDatabase) -> None:
        tr = db.create_transaction()
        tr.set_versionstamped_key(b"k" + PLACEHOLDER + b"/x" + struct.pack("<L", 1), b"v")
        tr.set_versionstamped_value(b"v", PLACEHOLDER + b"/y" + struct.pack("<L", 0))
        stamp = tr.get_versionstamp()
        assert not stamp.is_ready()
        tr.commit().wait()
        assert stamp.value is not None
        assert int.from_bytes(stamp.value[:8], "big") == tr.get_committed_version()
        later = begun(db)
        assert keys(later.get_range_startswith(b"k")) == [b"k" + stamp.value + b"/x"]
        assert later[b"v"] == stamp.value + b"/y"

    def test_stamps_grow_in_the_order_of_commits_though_versions_may_be_shared(self, db: SimulatedDatabase) -> None:
        stamps: list[bytes] = []
        schedule = Schedule(3)
        db.cluster.on_step = schedule.step

        def write() -> None:
            tr = db.create_transaction()
            tr.set_versionstamped_key(b"k" + PLACEHOLDER + struct.pack("<L", 1), b"")
            tr.commit().wait()

        schedule.run([write] * 30)
        stamps = [row.key[1:] for row in begun(db).get_range_startswith(b"k")]
        assert len(set(stamps)) == 30
        assert len({stamp[:8] for stamp in stamps}) < 30, "some shared a batch"

    def test_reading_what_the_stamp_will_complete_is_refused(self, db: SimulatedDatabase) -> None:
        tr = begun(db)
        tr.set_versionstamped_value(b"v", PLACEHOLDER + struct.pack("<L", 0))
        tr.set_versionstamped_key(b"k" + PLACEHOLDER + struct.pack("<L", 1), b"")
        for read in (lambda: tr[b"v"].wait(), lambda: tr.get_range_startswith(b"k").to_list()):
            with pytest.raises(FDBError) as failed:
                read()
            assert failed.value.code == 1036
        assert keys(tr.get_range(b"a", b"k")) == []

    def test_a_read_only_transaction_has_no_stamp(self, db: SimulatedDatabase) -> None:
        tr = begun(db)
        stamp = tr.get_versionstamp()
        tr.commit().wait()
        with pytest.raises(FDBError) as failed:
            stamp.wait()
        assert failed.value.code == 2021

    def test_a_template_that_is_too_short_fails_the_commit(self, db: SimulatedDatabase) -> None:
        tr = db.create_transaction()
        tr.set_versionstamped_key(b"short" + struct.pack("<L", 0), b"")
        commit_fails(tr, 2000)


class TestAtomicOperations:
    @pytest.mark.parametrize(
        ("name", "before", "param", "after"),
        [
            ("add", None, b"\x05\x00", b"\x05\x00"),
            ("add", b"\xff", b"\x01\x00", b"\x00\x01"),
            ("add", b"\xff\xff", b"\x01\x00", b"\x00\x00"),
            ("add", b"\x01\x02\x03", b"\x01", b"\x02"),
            ("bit_and", None, b"\x0f", b"\x0f"),
            ("bit_and", b"\x3c", b"\x0f", b"\x0c"),
            ("bit_or", b"\x30", b"\x0f", b"\x3f"),
            ("bit_xor", b"\x3c", b"\x0f", b"\x33"),
            ("max", b"\x01\x02", b"\x02\x01", b"\x01\x02"),
            ("min", None, b"\x07", b"\x07"),
            ("min", b"\x01\x02", b"\x02\x01", b"\x02\x01"),
            ("byte_max", b"ab", b"b", b"b"),
            ("byte_min", b"ab", b"b", b"ab"),
            ("append_if_fits", b"ab", b"c", b"abc"),
            ("append_if_fits", b"x" * 100_000, b"c", b"x" * 100_000),
            ("compare_and_clear", b"ab", b"ab", None),
            ("compare_and_clear", b"ab", b"a", b"ab"),
        ],
    )
    def test_the_value_becomes(
        self, db: SimulatedDatabase, name: str, before: bytes | None, param: bytes, after: bytes | None
    ) -> None:
        if before is not None:
            put(db, k=before)
        tr, rival = begun(db), begun(db)
        getattr(tr, name)(b"k", param)
        rival.set(b"other", b"")
        tr.commit().wait()
        rival.commit().wait()
        assert begun(db)[b"k"].value == after

    def test_atomic_operations_on_one_key_do_not_conflict_with_each_other(self, db: SimulatedDatabase) -> None:
        one, two = begun(db), begun(db)
        for tr in (one, two):
            tr.add(b"k", b"\x01")
        one.commit().wait()
        two.commit().wait()
        assert begun(db)[b"k"] == b"\x02"


class TestKeySelectors:
    @pytest.mark.parametrize(
        ("selector", "expected"),
        [
            (KeySelector.last_less_than(b"b"), b"a"),
            (KeySelector.last_less_or_equal(b"b"), b"b"),
            (KeySelector.first_greater_or_equal(b"b"), b"b"),
            (KeySelector.first_greater_than(b"b"), b"c"),
            (KeySelector.first_greater_than(b"a") + 1, b"c"),
            (KeySelector.last_less_than(b"c") - 1, b"a"),
            (KeySelector.last_less_than(b"a"), b""),
            (KeySelector.first_greater_than(b"c"), b"\xff"),
        ],
    )
    def test_selects(self, db: SimulatedDatabase, selector: KeySelector, expected: bytes) -> None:
        put(db, a=b"", b=b"", c=b"")
        assert begun(db).get_key(selector) == expected

    def test_bound_a_range(self, db: SimulatedDatabase) -> None:
        put(db, a=b"", b=b"", c=b"", d=b"")
        tr = begun(db)
        assert keys(tr.get_range(KeySelector.first_greater_than(b"a"), KeySelector.last_less_or_equal(b"d"))) == [
            b"b",
            b"c",
        ]


class TestWatches:
    def test_fires_when_the_value_changes(self, db: SimulatedDatabase) -> None:
        put(db, k=b"1")
        tr = begun(db)
        watch = tr.watch(b"k")
        tr.commit().wait()
        put(db, k=b"1")
        put(db, other=b"1")
        assert not watch.is_ready()
        called = threading.Event()
        watch.on_ready(lambda _: called.set())
        put(db, k=b"2")
        assert called.wait(60)
        assert db.cluster.watches == 0

    def test_does_not_fire_in_the_call_that_changes_the_value(self, db: SimulatedDatabase) -> None:
        tr = begun(db)
        watch = tr.watch(b"k")
        tr.commit().wait()
        called = threading.Event()
        threads: list[threading.Thread] = []

        def callback(_: object) -> None:
            threads.append(threading.current_thread())
            called.set()

        watch.on_ready(callback)
        put(db, k=b"2")
        assert called.wait(60)
        assert threads[0] is not threading.current_thread()

    def test_what_changed_between_reading_and_committing_is_not_missed(self, db: SimulatedDatabase) -> None:
        tr = begun(db)
        watch = tr.watch(b"k")
        put(db, k=b"1")
        assert not watch.is_ready()
        tr.commit().wait()
        watch.wait()

    def test_a_watch_of_a_transaction_that_was_reset_is_cancelled(self, db: SimulatedDatabase) -> None:
        tr = begun(db)
        watch = tr.watch(b"k")
        tr.reset()
        with pytest.raises(FDBError) as failed:
            watch.wait()
        assert failed.value.code == 1025

    def test_one_watch_too_many_fails_and_its_commit_does_not(self, db: SimulatedDatabase) -> None:
        watches = []
        for _ in range(10_000):
            tr = begun(db)
            watches.append(tr.watch(b"k"))
            tr.commit().wait()
        tr = begun(db)
        one_more = tr.watch(b"k")
        tr.commit().wait()
        with pytest.raises(FDBError) as failed:
            one_more.wait()
        assert failed.value.code == 1032
        watches[0].cancel()
        tr = begun(db)
        with_room = tr.watch(b"k")
        tr.commit().wait()
        assert not with_room.is_ready()


class TestLimits:
    @pytest.mark.parametrize(
        ("write", "code"),
        [
            (lambda tr: tr.set(b"k" * 10_001, b""), 2102),
            (lambda tr: tr.set(b"k", b"v" * 100_001), 2103),
            (lambda tr: tr.set(b"\xff", b""), 2004),
            (lambda tr: tr.clear_range(b"b", b"a"), 2005),
            (lambda tr: tr.set_versionstamped_value(b"k", b"short"), 2000),
        ],
    )
    def test_an_error_of_a_write_comes_at_commit(
        self, db: SimulatedDatabase, write: Callable[[Transaction], object], code: int
    ) -> None:
        tr = db.create_transaction()
        tr.set(b"k" * 10_000, b"v" * 100_000)
        write(tr)
        commit_fails(tr, code)
        assert not begun(db)[b"k" * 10_000].present()

    def test_a_transaction_has_ten_million_bytes(self, db: SimulatedDatabase) -> None:
        tr = db.create_transaction()
        for number in range(100):
            tr.set(b"%d" % number, b"v" * 100_000)
        assert tr.get_approximate_size().wait() > 10_000_000
        commit_fails(tr, 2101)

    def test_a_mutation_counts_44_bytes_besides_key_value_and_conflict_range(self, db: SimulatedDatabase) -> None:
        tr = db.create_transaction()
        tr.options.set_next_write_no_write_conflict_range()
        tr.set(b"key", b"value")
        assert tr.get_approximate_size().wait() == len(b"key") + len(b"value") + 44

    def test_a_range_from_behind_its_end_is_empty_and_a_key_that_is_too_long_is_absent(
        self, db: SimulatedDatabase
    ) -> None:
        put(db, a=b"1", b=b"2")
        tr = begun(db)
        assert keys(tr.get_range(b"b", b"a")) == []
        assert not tr[b"k" * 10_001].present()

    def test_a_transaction_that_is_too_old_neither_reads_nor_commits(
        self, cluster: SimulatedCluster, db: SimulatedDatabase
    ) -> None:
        tr = begun(db)
        tr[b"a"] = b""
        cluster.advance(5_000_001)
        with pytest.raises(FDBError) as failed:
            tr[b"b"].wait()
        assert failed.value.code == 1007
        commit_fails(tr, 1007)


class TestErrors:
    @pytest.mark.parametrize("code", [1007, 1009, 1020, 1021, 1037, 1039])
    def test_on_error_makes_the_transaction_as_new(self, db: SimulatedDatabase, code: int) -> None:
        tr = begun(db)
        tr[b"a"] = b"1"
        tr.on_error(FDBError(code)).wait()
        tr.commit().wait()
        assert not begun(db)[b"a"].present()

    def test_only_the_multi_version_client_gets_over_a_new_version_of_the_cluster(self) -> None:
        begun(SimulatedCluster(1).open()).on_error(FDBError(1039)).wait()
        with pytest.raises(FDBError) as failed:
            begun(SimulatedCluster(1, multi_version=False).open()).on_error(FDBError(1039)).wait()
        assert failed.value.code == 1039

    def test_the_text_of_an_error_is_bytes(self) -> None:
        assert FDBError(1007).description == b"Transaction is too old to perform reads or be committed"

    @pytest.mark.parametrize("code", [1025, 1031, 1235, 2101])
    def test_on_error_raises_what_is_not_worth_another_try(self, db: SimulatedDatabase, code: int) -> None:
        with pytest.raises(FDBError) as failed:
            begun(db).on_error(FDBError(code)).wait()
        assert failed.value.code == code

    def test_the_retry_limit_ends_the_retries(self, db: SimulatedDatabase) -> None:
        tr = begun(db)
        tr.options.set_retry_limit(1)
        tr.on_error(FDBError(1020)).wait()
        with pytest.raises(FDBError):
            tr.on_error(FDBError(1020)).wait()

    @pytest.mark.parametrize(("fate", "stored"), [(Fate.LOST, False), (Fate.STORED, True), (Fate.IN_FLIGHT, False)])
    def test_an_unknown_result_is_stored_or_not(
        self, cluster: SimulatedCluster, db: SimulatedDatabase, fate: Fate, stored: bool
    ) -> None:
        cluster.faults.script("commit", Fault(1031, fate))
        tr = begun(db)
        tr[b"a"] = b"1"
        commit_fails(tr, 1031)
        cluster.advance(1)
        assert begun(db)[b"a"].present() is stored
        cluster.deliver()
        cluster.advance(1)
        assert begun(db)[b"a"].present() is (fate is not Fate.LOST)

    def test_what_arrives_late_still_conflicts(self, cluster: SimulatedCluster, db: SimulatedDatabase) -> None:
        cluster.faults.script("commit", Fault(1031, Fate.IN_FLIGHT))
        tr = begun(db)
        tr[b"a"].wait()
        tr[b"mine"] = b""
        commit_fails(tr, 1031)
        put(db, a=b"1")
        cluster.deliver()
        cluster.advance(1)
        assert not begun(db)[b"mine"].present()

    def test_versions_jump_when_the_cluster_recovers_and_what_is_under_way_is_too_old(
        self, cluster: SimulatedCluster, db: SimulatedDatabase
    ) -> None:
        tr = begun(db)
        tr[b"a"] = b""
        before = begun(db).get_read_version().wait()
        cluster.recover()
        assert begun(db).get_read_version().wait() >= before + 100_000_000
        commit_fails(tr, 1007)

    def test_the_first_version_is_chosen(self) -> None:
        assert begun(SimulatedCluster(1, first_version=2**50).open()).get_read_version().wait() >= 2**50
