"""Failovers of PostgreSQL: the primary is killed at a random moment under load, and its synchronous standby promoted.

No acknowledged append is lost or moved, positions have no gaps, and a subscriber goes on by itself.
"""

from __future__ import annotations

import random
import threading
import time

from tests.support.failover import SYNCHRONOUS, TIMEOUT_S, Writer, cluster_of, wait_for_appends

import fencepost


def run(seconds: float, seed: int) -> str:
    chance = random.Random(seed)
    end = threading.Event()
    failovers = 0
    with cluster_of(SYNCHRONOUS) as cluster, fencepost.open(cluster.url, create=True, patience_s=TIMEOUT_S) as store:
        delivered: list[int] = []
        subscription = store.subscribe(timeout_s=TIMEOUT_S)
        subscriber = threading.Thread(
            target=lambda: delivered.extend(event.position for event in subscription), daemon=True
        )
        writers = [Writer(store, end) for _ in range(4)]
        deadline = time.monotonic() + seconds
        for thread in (subscriber, *writers):
            thread.start()
        while failovers == 0 or time.monotonic() < deadline:
            wait_for_appends(writers)
            time.sleep(chance.random() / 5)
            cluster.fail_over()
            cluster.rebuild_standby()
            failovers += 1
        end.set()
        for writer in writers:
            writer.join(TIMEOUT_S)
            assert writer.error is None, f"seed {seed}: {writer.error}"
        log = {event.id: event.position for event in store.read()}
        acknowledged = {id: position for writer in writers for id, position in writer.acknowledged.items()}
        lost = [id for id, position in acknowledged.items() if log.get(id) != position]
        assert not lost, f"seed {seed}: {len(lost)} of {len(acknowledged)} acknowledged appends are lost or moved"
        assert sorted(log.values()) == list(range(1, store.head() + 1)), f"seed {seed}: positions have gaps"
        while len(delivered) < store.head() and subscriber.is_alive():
            time.sleep(0.05)
        subscription.stop()
        assert delivered == list(range(1, store.head() + 1)), f"seed {seed}: the subscriber missed or repeated events"
        return f"{failovers} failovers, {len(acknowledged)} acknowledged appends, none lost"
