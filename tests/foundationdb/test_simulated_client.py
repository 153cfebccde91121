"""The simulated client does what FoundationDB's documentation and its binding say about time, threads and failures."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator

import pytest
from tests.support.simulated_fdb import (
    Fault,
    FDBError,
    NetworkThread,
    SimulatedCluster,
    SimulatedDatabase,
    TimedNetwork,
    Transaction,
)


@pytest.fixture
def cluster() -> SimulatedCluster:
    return SimulatedCluster(1, late=0.0)


@pytest.fixture
def db(cluster: SimulatedCluster) -> SimulatedDatabase:
    return cluster.open()


@pytest.fixture
def network() -> Iterator[NetworkThread]:
    network = NetworkThread()
    yield network
    network.stop()


@pytest.fixture
def remote(network: NetworkThread) -> SimulatedDatabase:
    """A database whose calls a network thread answers."""
    return SimulatedCluster(1, late=0.0, network=network).open()


def put(db: SimulatedDatabase, **values: bytes) -> None:
    tr = db.create_transaction()
    for key, value in values.items():
        tr[key.encode()] = value
    tr.commit().wait()


def code_of(call: object) -> int:
    assert callable(call)
    with pytest.raises(FDBError) as failed:
        call()
    return failed.value.code


class TestTime:
    def test_after_five_seconds_a_transaction_neither_reads_nor_commits(
        self, cluster: SimulatedCluster, db: SimulatedDatabase
    ) -> None:
        tr = db.create_transaction()
        tr.get_read_version().wait()
        tr[b"a"] = b""
        cluster.pass_time(4.9)
        tr[b"b"].wait()
        cluster.pass_time(0.2)
        assert code_of(tr[b"b"].wait) == 1007
        assert code_of(tr.commit().wait) == 1007

    def test_a_timeout_fails_all_pending_and_future_uses(
        self, cluster: SimulatedCluster, db: SimulatedDatabase
    ) -> None:
        tr = db.create_transaction()
        tr.options.set_timeout(1_000)
        cluster.pass_time(0.9)
        tr[b"a"].wait()
        cluster.pass_time(0.2)
        assert code_of(tr[b"a"].wait) == 1031
        assert code_of(tr.commit().wait) == 1031
        assert code_of(tr.on_error(FDBError(1020)).wait) == 1031

    def test_a_timeout_counts_from_the_creation_across_retries_until_a_reset(
        self, cluster: SimulatedCluster, db: SimulatedDatabase
    ) -> None:
        tr = db.create_transaction()
        tr.options.set_timeout(5_000)
        for _ in range(3):
            cluster.pass_time(1.5)
            tr.on_error(FDBError(1020)).wait()
            tr[b"a"].wait()
        cluster.pass_time(1.5)
        assert code_of(tr[b"a"].wait) == 1031
        tr.reset()
        tr[b"a"].wait()

    def test_on_error_waits_longer_each_time_up_to_the_longest_delay(
        self, cluster: SimulatedCluster, db: SimulatedDatabase
    ) -> None:
        def waited(code: int) -> list[float]:
            tr = db.create_transaction()
            times = []
            for _ in range(40):
                before = cluster.now_s
                tr.on_error(FDBError(code)).wait()
                times.append(cluster.now_s - before)
            return times

        conflicts, throttled = waited(1020), waited(1213)
        assert conflicts[0] <= 0.01
        assert 0.5 < max(conflicts) <= 1
        assert 1 < max(throttled) <= 30

    @pytest.mark.parametrize("code", [1042, 1051, 1078, 1213, 1223])
    def test_throttling_is_worth_another_try(self, cluster: SimulatedCluster, db: SimulatedDatabase, code: int) -> None:
        step = "commit" if code == 1042 else "read_version"
        cluster.faults.script(step, Fault(code))
        tr = db.create_transaction()
        tr[b"a"].wait() if step == "commit" else None
        tr[b"a"] = b""
        assert code_of(tr.commit().wait) == code
        tr.on_error(FDBError(code)).wait()
        tr[b"a"] = b""
        tr.commit().wait()


class TestRangeReads:
    def test_come_in_several_replies(self) -> None:
        db = SimulatedCluster(1, rows_per_reply=3).open()
        put(db, **{f"k{number}": b"" for number in range(8)})
        tr = db.create_transaction()
        every = [b"k%d" % number for number in range(8)]
        assert [row.key for row in tr.get_range(b"a", b"z")] == every
        assert [row.key for row in tr.get_range(b"a", b"z", reverse=True)] == every[::-1]
        assert [row.key for row in tr.get_range(b"a", b"z", limit=7)] == every[:7]
        assert [row.key for row in tr.get_range(b"a", b"z", limit=6)] == every[:6]

    def test_can_fail_midway(self) -> None:
        cluster = SimulatedCluster(1, rows_per_reply=3)
        db = cluster.open()
        put(db, **{f"k{number}": b"" for number in range(8)})
        cluster.faults.script("read", None, Fault(1009))
        rows = iter(db.create_transaction().get_range(b"a", b"z"))
        assert [next(rows).key for _ in range(3)] == [b"k0", b"k1", b"k2"]
        assert code_of(lambda: next(rows)) == 1009

    def test_conflict_with_what_the_replies_that_came_have_shown(self) -> None:
        db = SimulatedCluster(1, rows_per_reply=3).open()
        put(db, **{f"k{number}": b"" for number in range(8)})
        tr = db.create_transaction()
        next(iter(tr.get_range(b"a", b"z")))
        tr[b"mine"] = b""
        put(db, k7=b"1")
        tr.commit().wait()


class TestWatches:
    def test_get_the_error_of_the_commit(self, cluster: SimulatedCluster, db: SimulatedDatabase) -> None:
        cluster.faults.script("commit", Fault(1021))
        tr = db.create_transaction()
        watch = tr.watch(b"k")
        tr[b"a"] = b""
        assert code_of(tr.commit().wait) == 1021
        assert code_of(watch.wait) == 1021

    def test_can_fail_long_after_they_were_set_up(self, cluster: SimulatedCluster, db: SimulatedDatabase) -> None:
        tr = db.create_transaction()
        watch = tr.watch(b"k")
        tr.commit().wait()
        cluster.pass_time(100)
        assert not watch.is_ready()
        cluster.disturb_watches(1101)
        assert code_of(watch.wait) == 1101

    def test_outlive_the_timeout_of_their_transaction(self, cluster: SimulatedCluster, db: SimulatedDatabase) -> None:
        tr = db.create_transaction()
        tr.options.set_timeout(1_000)
        watch = tr.watch(b"k")
        tr.commit().wait()
        cluster.pass_time(100)
        put(db, k=b"1")
        watch.wait()


class TestTheNetworkThread:
    def test_callbacks_run_in_another_thread(self, network: NetworkThread, remote: SimulatedDatabase) -> None:
        network.hold()
        tr = remote.create_transaction()
        future = tr.get(b"a")
        called = threading.Event()
        threads = []

        def callback(_: object) -> None:
            threads.append(threading.current_thread())
            called.set()

        future.on_ready(callback)
        assert not future.is_ready()
        network.release()
        assert called.wait(60)
        assert threads[0] is not threading.current_thread()

    def test_a_callback_must_not_block(self, network: NetworkThread, remote: SimulatedDatabase) -> None:
        network.hold()
        tr = remote.create_transaction()
        codes: list[int] = []
        called = threading.Event()

        def callback(_: object) -> None:
            try:
                tr.get(b"b").wait()
            except FDBError as error:
                codes.append(error.code)
            called.set()

        tr.get(b"a").on_ready(callback)
        network.release()
        assert called.wait(60)
        assert codes == [2026]

    def test_commit_waits_for_reads_that_are_under_way_except_for_snapshot_reads(
        self, network: NetworkThread, remote: SimulatedDatabase
    ) -> None:
        put(remote, a=b"1")
        network.hold()
        tr = remote.create_transaction()
        read, snapshot_read = tr.get(b"a"), tr.snapshot.get(b"a")
        tr[b"mine"] = b""
        commit = tr.commit()
        assert code_of(lambda: snapshot_read.value) == 1025
        assert not read.is_ready()
        network.release()
        commit.wait()
        assert read.value == b"1"

    def test_a_read_that_is_under_way_conflicts(self, network: NetworkThread, remote: SimulatedDatabase) -> None:
        tr = remote.create_transaction()
        tr.get_read_version().wait()
        put(remote, a=b"1")
        network.hold()
        tr.get(b"a")
        tr[b"mine"] = b""
        commit = tr.commit()
        network.release()
        assert code_of(commit.wait) == 1020

    def test_a_read_sees_the_writes_before_it_and_none_after(
        self, network: NetworkThread, remote: SimulatedDatabase
    ) -> None:
        network.hold()
        tr = remote.create_transaction()
        tr[b"a"] = b"1"
        before = tr.get(b"a")
        tr[b"a"] = b"2"
        network.release()
        assert before.value == b"1"

    def test_an_operation_during_a_commit_fails_and_so_does_the_commit(
        self, network: NetworkThread, remote: SimulatedDatabase
    ) -> None:
        network.hold()
        tr = remote.create_transaction()
        tr[b"a"] = b""
        commit = tr.commit()
        tr.set(b"b", b"")
        assert code_of(tr.get(b"b").wait) == 2017
        network.release()
        assert code_of(commit.wait) == 2017
        tr.reset()
        tr.set(b"b", b"")
        tr.commit().wait()

    def test_a_transaction_cannot_be_used_after_its_commit_until_it_is_reset(self, remote: SimulatedDatabase) -> None:
        tr = remote.create_transaction()
        tr[b"a"] = b""
        tr.commit().wait()
        assert code_of(tr.get(b"a").wait) == 2017
        assert code_of(tr.commit().wait) == 2017
        tr.reset()
        assert tr.get(b"a").value == b""

    def test_a_transaction_that_is_collected_fails_its_reads_watches_and_commit(
        self, network: NetworkThread, remote: SimulatedDatabase
    ) -> None:
        network.hold()
        tr = remote.create_transaction()
        read, rows, watch = tr.get(b"a"), tr.get_range(b"a", b"b").first, tr.watch(b"k")
        tr[b"a"] = b""
        commit = tr.commit()
        del tr
        assert [code_of(future.wait) for future in (read, rows, watch, commit)] == [1025] * 4

    def test_a_transaction_is_not_collected_while_its_snapshot_or_rows_are_used(
        self, network: NetworkThread, remote: SimulatedDatabase
    ) -> None:
        put(remote, a=b"1")
        network.hold()
        tr = remote.create_transaction()
        snapshot, rows = tr.snapshot, tr.snapshot.get_range(b"a", b"b")
        read = tr.get(b"a")
        del tr
        network.release()
        assert read.value == b"1"
        assert [row.key for row in rows] == [b"a"]
        assert snapshot.get(b"a").value == b"1"

    def test_a_watch_that_was_set_up_outlives_its_transaction(self, remote: SimulatedDatabase) -> None:
        tr = remote.create_transaction()
        watch = tr.watch(b"k")
        tr.commit().wait()
        del tr
        assert not watch.is_ready()
        put(remote, k=b"1")
        watch.wait()

    def test_a_reset_cancels_what_is_under_way(self, network: NetworkThread, remote: SimulatedDatabase) -> None:
        network.hold()
        tr = remote.create_transaction()
        read = tr.get(b"a")
        tr.reset()
        assert code_of(read.wait) == 1025

    def test_an_interrupted_wait_spoils_the_next_wait_of_its_thread(
        self, network: NetworkThread, remote: SimulatedDatabase
    ) -> None:
        """A fault of the binding: the callback of the interrupted wait releases the semaphore of the next one."""
        network.hold()
        tr = remote.create_transaction()
        first = tr.get(b"a")
        interrupted_wait(first.wait)
        second = tr.get(b"b")
        first.resolve(None)
        threading.Timer(2, network.release).start()  # for a wait that is not spoiled
        assert code_of(second.wait) == 2015


class TestTheTimedNetwork:
    def test_calls_take_time_of_the_client_and_of_the_cluster_and_wait_for_each_other(self) -> None:
        network = TimedNetwork()
        cluster = SimulatedCluster(1, network=network)
        transactions = [cluster.open().create_transaction() for _ in range(100)]
        versions = [tr.get_read_version() for tr in transactions]
        client_s = 100 * TimedNetwork.CLIENT_S
        assert cluster.now_s == pytest.approx(client_s)
        assert not versions[0].is_ready()
        for _ in versions:
            network.answer_next()
        assert versions[-1].wait() > versions[0].wait()
        assert cluster.now_s == pytest.approx(client_s + 100 * TimedNetwork.CLUSTER_S["read_version"])

    def test_a_transaction_that_waits_too_long_for_its_commit_is_too_old(self) -> None:
        network = TimedNetwork()
        cluster = SimulatedCluster(1, network=network)
        tr = cluster.open().create_transaction()
        tr.get_read_version()
        tr[b"a"] = b""
        network.answer_next()
        commit = tr.commit()
        cluster.pass_time(5.1)
        network.answer_next()
        assert code_of(commit.wait) == 1007

    def test_a_commit_is_sent_when_the_read_version_has_come(self) -> None:
        network = TimedNetwork()
        cluster = SimulatedCluster(1, network=network)
        first, second = cluster.open().create_transaction(), cluster.open().create_transaction()
        for tr in (first, second):
            tr.get_read_version()
            tr[b"a"] = b""
        commits = [tr.commit() for tr in (first, second)]
        network.answer_next()
        network.answer_next()
        assert not any(commit.is_ready() for commit in commits), "both versions came first"
        network.answer_next()
        network.answer_next()
        assert all(commit.is_ready() for commit in commits)

    def test_waiting_before_another_try_takes_time_in_which_others_are_answered(self) -> None:
        network = TimedNetwork()
        cluster = SimulatedCluster(1, network=network)
        tr, other = cluster.open().create_transaction(), cluster.open().create_transaction()
        recovered, version = tr.on_error(1020), other.get_read_version()
        network.answer_next()
        assert version.is_ready()
        assert not recovered.is_ready()
        before_s = cluster.now_s
        network.answer_next()
        assert recovered.is_ready()
        assert cluster.now_s > before_s
        assert not network.answer_next()


def interrupted_wait(wait: object) -> None:
    """Wait in the main thread until a signal raises KeyboardInterrupt."""
    assert callable(wait)
    threading.Timer(0.05, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        wait()


def test_a_transaction_is_as_new_after_a_retry() -> None:
    tr = Transaction(SimulatedCluster(1).open())
    tr.options.set_timeout(1_000)
    tr.options.set_retry_limit(3)
    tr.options.set_max_retry_delay(10)
    tr.options.set_size_limit(100)
    tr.on_error(FDBError(1020)).wait()
    options = tr.options
    assert (options.timeout_ms, options.retry_limit, options.max_retry_delay_ms) == (1_000, 3, 10)
    assert options.size_limit == 10_000_000, "only these three outlast a retry"
