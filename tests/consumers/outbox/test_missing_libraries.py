"""A publisher whose library is not installed says what to install, when it is created and not later."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest

from fencepost.consumers.outbox import KafkaPublisher, NatsPublisher, RabbitPublisher, RedisPublisher


@pytest.mark.parametrize(
    ("create", "name", "extra"),
    [
        (lambda: KafkaPublisher({"bootstrap.servers": "x"}), "confluent_kafka", "kafka"),
        (lambda: NatsPublisher("nats://x"), "nats", "nats"),
        (lambda: RabbitPublisher("amqp://x"), "aio_pika", "rabbitmq"),
        (lambda: RedisPublisher("redis://x"), "redis", "redis"),
    ],
)
def test_a_missing_library_is_named_with_its_extra(
    create: Callable[[], object], name: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match=rf"pip install 'fencepost\[{extra}\]'"):
        create()


def test_no_library_of_a_broker_is_imported_before_it_is_used() -> None:
    code = (
        "import sys, fencepost.consumers.outbox\n"
        "print(sorted({'confluent_kafka', 'nats', 'aio_pika', 'redis'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
