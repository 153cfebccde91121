"""A process that runs librdkafka's mock cluster: it reports the address of its broker, and ends when its input ends."""

from __future__ import annotations

import sys

from confluent_kafka import Producer


def main() -> None:
    cluster = Producer({"bootstrap.servers": "unused", "test.mock.num.brokers": 1, "log_level": 0})
    brokers = cluster.list_topics(timeout=60).brokers
    print(",".join(f"{broker.host}:{broker.port}" for broker in brokers.values()), flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
