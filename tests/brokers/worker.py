"""A process that publishes one topic to Redis and to NATS, until a file tells it to stop or it is killed."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from time import sleep

from tests.brokers.scenario import topic
from tests.support.reporting import report

import fencepost
from fencepost.consumers import start
from fencepost.consumers.outbox import Breaker, NatsPublisher, Outbox, RedisPublisher

LEASE_S = 1.0
BREAKER = Breaker(failures=2, base_s=0.1, cap_s=0.5)


def main(reports: str, address: str, redis_url: str, nats_url: str, stop: str) -> None:
    logging.basicConfig(filename=f"{reports}.log", level=logging.INFO, format="%(asctime)s %(process)d %(message)s")
    outboxes = [
        Outbox(
            "to-redis",
            topic("soak"),
            RedisPublisher(redis_url, timeout_s=2),
            batch=13,
            lease_s=LEASE_S,
            breaker=BREAKER,
        ),
        Outbox(
            "to-nats",
            topic("soak"),
            lambda: NatsPublisher(nats_url, timeout_s=2),
            batch=13,
            lease_s=LEASE_S,
            breaker=BREAKER,
            partitions=2,
        ),
    ]
    with fencepost.open(address) as store, start(store, *outboxes) as runner:
        report(reports, "started")
        while not Path(stop).exists():
            sleep(0.01)
        runner.check()


if __name__ == "__main__":
    main(*sys.argv[1:])
