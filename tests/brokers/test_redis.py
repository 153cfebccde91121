"""The Redis publisher on a real server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from fencepost import Event
from fencepost.consumers.outbox import PublisherUnavailable, RedisPublisher

from .scenario import check_delivery, log, messages, publish_through_an_outage
from .servers import Broker, redis_server


class Server:
    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.url = f"redis://127.0.0.1:{broker.port}"
        self.client = redis.Redis.from_url(self.url)

    def start(self) -> None:
        self.broker.start(self.client.ping)

    def entries(self, stream: str) -> list[dict[bytes, bytes]]:
        return [fields for _, fields in self.client.xrange(stream)]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with redis_server(tmp_path_factory.mktemp("redis")) as broker:
        server = Server(broker)
        server.start()
        yield server


def test_every_event_arrives_in_order_although_the_server_is_killed(server: Server, tmp_path: Path) -> None:
    with log(tmp_path) as store:
        publisher = RedisPublisher(server.url, timeout_s=5)
        publish_through_an_outage(store, "restart", publisher, server.broker.kill, server.start)
        received = [(each[b"id"].decode(), each[b"key"].decode()) for each in server.entries("restart")]
        check_delivery(store, received)


def test_an_entry_has_the_id_the_key_and_the_envelope(server: Server, tmp_path: Path) -> None:
    with log(tmp_path) as store:
        sent = messages(store, "entry", Event("Other", data=b"\x00", tags={"key:x"}), Event("Other", data=b"[1]"))
        publisher = RedisPublisher(server.url, stream=lambda message: f"{message.topic}-{message.event.type}")
        publisher.publish(sent)
        publisher.close()
    first, second = server.entries("entry-Other")
    assert (first[b"id"], first[b"key"], first[b"event"]) == (b"/tests#1", b"x", sent[0].envelope)
    assert b"key" not in second
    assert json.loads(second[b"event"])["data"] == [1]


def test_a_stream_can_be_kept_short(server: Server, tmp_path: Path) -> None:
    with log(tmp_path) as store:
        sent = messages(store, "short", *(Event("Other") for _ in range(1000)))
        RedisPublisher(server.url, max_length=10).publish(sent)
    assert len(server.entries("short")) < 1000


def test_a_name_that_is_not_a_stream_blames_no_message(server: Server, tmp_path: Path) -> None:
    server.client.set("taken", "x")
    with log(tmp_path) as store, pytest.raises(PublisherUnavailable, match="WRONGTYPE"):
        RedisPublisher(server.url).publish(messages(store, "taken", Event("Other")))
