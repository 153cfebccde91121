"""The Kafka publisher on the mock cluster of librdkafka, in a process of its own. No real Kafka was tested."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition
from tests.support.processes import same_path

from fencepost import Event, InvalidInput
from fencepost.consumers.outbox import KafkaPublisher, MessageRefused, PublisherUnavailable

from . import mock_kafka
from .scenario import check_delivery, log, messages, publish_through_an_outage
from .servers import PATIENCE_S


class Cluster:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        self.process = process
        self.settings = {"bootstrap.servers": process.stdout.readline().strip()}

    def suspend(self) -> None:
        os.kill(self.process.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        os.kill(self.process.pid, signal.SIGCONT)

    def records(self, topic: str) -> list[Any]:
        """Everything in the topic, partition after partition."""
        consumer = Consumer({**self.settings, "group.id": "test", "enable.partition.eof": True})
        found: list[Any] = []
        partitions = [*consumer.list_topics(topic, timeout=60).topics[topic].partitions]
        consumer.assign([TopicPartition(topic, each, OFFSET_BEGINNING) for each in partitions])
        deadline, ended = monotonic() + PATIENCE_S, set()
        while len(ended) < len(partitions):
            assert monotonic() < deadline
            record = consumer.poll(1)
            if record is not None and record.error() is None:
                found.append(record)
            elif record is not None:
                ended.add(record.partition())
        consumer.close()
        return found


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    command = [sys.executable, mock_kafka.__file__]
    with subprocess.Popen(command, env=same_path(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as made:
        try:
            yield Cluster(made)
        finally:
            made.kill()


def test_every_event_arrives_in_order_although_the_mock_cluster_is_suspended(cluster: Cluster, tmp_path: Path) -> None:
    with log(tmp_path) as store:
        publisher = KafkaPublisher(cluster.settings, timeout_s=2)
        publish_through_an_outage(store, "restart", publisher, cluster.suspend, cluster.go_on)
        received = [
            (dict(each.headers())["ce_id"].decode(), each.key().decode()) for each in cluster.records("restart")
        ]
        check_delivery(store, received)


def test_the_mock_cluster_has_the_envelope_or_the_data_with_headers(cluster: Cluster, tmp_path: Path) -> None:
    with log(tmp_path) as store:
        sent = messages(store, "modes", Event("Other", data=b"\xff", tags={"key:x"}))
        for mode in ("structured", "binary"):
            publisher = KafkaPublisher(cluster.settings, topic=f"mode-{mode}", mode=mode)  # type: ignore[arg-type]
            publisher.publish(sent)
            publisher.close()
    (structured,), (binary,) = cluster.records("mode-structured"), cluster.records("mode-binary")
    assert (structured.value(), structured.key()) == (sent[0].envelope, b"x")
    assert binary.value() == b"\xff"
    headers = dict(binary.headers())
    assert (headers["ce_type"], headers["content-type"]) == (b"Other", b"application/octet-stream")


def test_a_record_that_is_too_large_is_refused_and_those_before_it_are_in_the_mock_cluster(
    cluster: Cluster, tmp_path: Path
) -> None:
    with log(tmp_path) as store:
        large = Event("Other", data=b"x" * 200_000)
        sent = messages(store, "large", Event("Other"), large, Event("Other"))
        publisher = KafkaPublisher({**cluster.settings, "message.max.bytes": 100_000})
        with pytest.raises(MessageRefused) as refused:
            publisher.publish(sent)
        assert refused.value.message is sent[1]
        publisher.close()
    assert [each.value() for each in cluster.records("large")] == [sent[0].envelope]


def test_a_cluster_that_does_not_answer_blames_no_message(tmp_path: Path) -> None:
    with log(tmp_path) as store, pytest.raises(PublisherUnavailable, match="not acknowledged"):
        KafkaPublisher({"bootstrap.servers": "127.0.0.1:1"}, timeout_s=0.2).publish(
            messages(store, "t", Event("Other"))
        )


@pytest.mark.parametrize(
    "settings", [{}, {"bootstrap.servers": "x", "acks": 1}, {"bootstrap.servers": "x", "enable.idempotence": False}]
)
def test_settings_that_lose_events_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match="settings"):
        KafkaPublisher(settings)
