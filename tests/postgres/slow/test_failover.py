"""Failover with two real servers: the primary is killed under load, and the standby is promoted."""

from __future__ import annotations

import threading
import time

import psycopg
import pytest
from tests.support.failover import ASYNCHRONOUS, SYNCHRONOUS, TIMEOUT_S, Writer, cluster_of, wait_for_appends
from tests.support.postgres import PostgresServer

import fencepost
from fencepost import StoreCorrupt, StoreError
from fencepost.testing.contract.base import events
from fencepost.testing.faults import PATIENCE_S

FAILOVERS = 3
WRITERS = 4


def test_nothing_acknowledged_is_lost_when_a_synchronous_standby_is_promoted_again_and_again() -> None:
    end = threading.Event()
    with cluster_of(SYNCHRONOUS) as cluster, fencepost.open(cluster.url, create=True, patience_s=TIMEOUT_S) as store:
        delivered: list[int] = []
        subscription = store.subscribe(timeout_s=None)
        subscriber = threading.Thread(
            target=lambda: delivered.extend(event.position for event in subscription), daemon=True
        )
        subscriber.start()
        writers = [Writer(store, end) for _ in range(WRITERS)]
        for writer in writers:
            writer.start()
        for _ in range(FAILOVERS):
            wait_for_appends(writers)
            cluster.fail_over()
            cluster.rebuild_standby()
        wait_for_appends(writers)
        end.set()
        for writer in writers:
            writer.join(TIMEOUT_S)
            assert not writer.is_alive()
            assert writer.error is None
        log = {event.id: event.position for event in store.read()}
        acknowledged = {id: position for writer in writers for id, position in writer.acknowledged.items()}
        assert {id: log.get(id) for id in acknowledged} == acknowledged
        assert sorted(log.values()) == list(range(1, store.head() + 1))
        assert all("same event ids" in message for writer in writers for message in writer.unknown)
        deadline = time.monotonic() + TIMEOUT_S
        while len(delivered) < store.head():
            assert time.monotonic() < deadline, "the subscriber does not go on"
            time.sleep(0.05)
        subscription.stop()
        subscriber.join(PATIENCE_S)
        assert delivered == list(range(1, store.head() + 1))


def test_what_an_asynchronous_standby_did_not_have_is_lost_and_noticed() -> None:
    """Exactly the events that it had not received, of which those that had seen them learn."""
    with cluster_of(ASYNCHRONOUS) as cluster, fencepost.open(cluster.url, create=True) as store:
        store.append(events("Replicated", count=5))
        _wait_for_head(cluster.standby, 5)
        with psycopg.connect(cluster.standby.url(), autocommit=True) as connection:
            connection.execute("SELECT pg_wal_replay_pause()")
        cluster.standby.stop()  # so that it receives nothing more
        subscription = store.subscribe(timeout_s=TIMEOUT_S)
        store.append(events("Lost", count=2))
        assert [next(subscription).position for _ in range(7)] == list(range(1, 8))
        cluster.primary.kill()
        cluster.standby.start()
        cluster.standby.promote()
        for call in (lambda: store.append(events("Late")), store.head, lambda: next(subscription)):
            with pytest.raises(StoreCorrupt, match="the log went back"):
                call()
        with fencepost.open(cluster.url) as other:
            assert [event.type for event in other.read()] == ["Replicated"] * 5
            with pytest.raises(StoreCorrupt, match="after position 7"):
                next(other.subscribe(after=7, timeout_s=0))
            assert other.append(events("New", count=4)).last == 9
        with pytest.raises(StoreCorrupt, match="the log went back"):  # although the head is higher now
            store.append(events("Late"))
        subscription.stop()


def _wait_for_head(server: PostgresServer, head: int) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        try:
            with fencepost.open(server.url()) as store:
                if store.head() >= head:
                    return
        except StoreError:
            pass
        assert time.monotonic() < deadline, "the standby does not follow"
        time.sleep(0.05)
