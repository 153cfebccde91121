"""The NATS publisher on a real server with JetStream."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import nats
import pytest
from tests.consumers.places import eventually

from fencepost import Event
from fencepost.consumers import start
from fencepost.consumers.outbox import MessageRefused, NatsPublisher, Outbox, PublisherUnavailable

from .scenario import add, check_delivery, last, log, messages, publish_through_an_outage, topic
from .servers import Broker, nats_server


class Server:
    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.url = f"nats://127.0.0.1:{broker.port}"

    def start(self) -> None:
        self.broker.start(lambda: self.ask(_account))

    def ask(self, question: Any, *arguments: Any) -> Any:
        async def asked() -> Any:
            connection = await nats.connect(self.url, allow_reconnect=False, connect_timeout=2, error_cb=_quiet)
            try:
                return await question(connection.jetstream(), *arguments)
            finally:
                await connection.close()

        return asyncio.run(asked())

    def entries(self, stream: str) -> list[Any]:
        found: list[Any] = self.ask(_entries, stream)
        return found


async def _quiet(error: Exception) -> None:
    """Nothing: the test looks again."""


def _account(stream: Any) -> Coroutine[Any, Any, Any]:
    return stream.account_info()  # type: ignore[no-any-return]


async def _entries(stream: Any, name: str) -> list[Any]:
    state = (await stream.stream_info(name)).state
    return [await stream.get_msg(name, number) for number in range(state.first_seq, state.last_seq + 1)]


async def _create(stream: Any, name: str) -> None:
    await stream.add_stream(name=name, subjects=[name])


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with nats_server(tmp_path_factory.mktemp("nats")) as broker:
        server = Server(broker)
        server.start()
        yield server


def test_every_event_arrives_once_and_in_order_although_the_server_is_restarted(server: Server, tmp_path: Path) -> None:
    server.ask(_create, "restart")
    with log(tmp_path) as store:
        publisher = NatsPublisher(server.url, timeout_s=5)
        # Not killed: NATS acknowledges before it has written to its file.
        publish_through_an_outage(store, "restart", publisher, server.broker.terminate, server.start)
        bodies = [json.loads(each.data) for each in server.entries("restart")]
        twice = check_delivery(store, [(each["id"], each["partitionkey"]) for each in bodies])
    assert twice == 0  # the stream has dropped what was sent again


def test_what_is_published_again_is_dropped_by_the_stream(server: Server, tmp_path: Path) -> None:
    server.ask(_create, "again")
    with log(tmp_path) as store:
        add(store, 20)
        for name in ("again", "again-2"):
            publisher = NatsPublisher(server.url, subject="again")
            with start(store, Outbox(name, topic("again"), publisher, lease_s=5)):
                eventually(lambda name=name: store.checkpoint(name) >= last(store))  # type: ignore[misc]
    assert len(server.entries("again")) == 20


def test_in_binary_mode_the_body_is_the_data_and_the_attributes_are_headers(server: Server, tmp_path: Path) -> None:
    server.ask(_create, "binary")
    with log(tmp_path) as store:
        publisher = NatsPublisher(server.url, mode="binary")
        publisher.publish(messages(store, "binary", Event("Other", data=b"\xff", tags={"key:ü"}), Event("Other")))
        publisher.close()
    first, second = server.entries("binary")
    assert first.data == b"\xff"
    assert first.headers["ce-id"] == "/tests#1"
    assert first.headers["ce-partitionkey"] == "%C3%BC"
    assert first.headers["Content-Type"] == "application/octet-stream"
    assert first.headers["Nats-Msg-Id"] == "binary//tests#1"
    assert "Content-Type" not in second.headers


def test_a_message_that_is_too_large_is_refused_and_the_next_is_taken(server: Server, tmp_path: Path) -> None:
    server.ask(_create, "large")
    with log(tmp_path) as store:
        sent = messages(store, "large", Event("Other", data=b"x" * 1_000_000), Event("Other"))
        publisher = NatsPublisher(server.url)
        with pytest.raises(MessageRefused, match="MaxPayload") as refused:
            publisher.publish(sent[:1])
        assert refused.value.message is sent[0]
        publisher.publish(sent[1:])
        publisher.close()
    assert len(server.entries("large")) == 1


def test_a_subject_without_a_stream_blames_no_message(server: Server, tmp_path: Path) -> None:
    with log(tmp_path) as store:
        publisher = NatsPublisher(server.url)
        with pytest.raises(PublisherUnavailable, match="no stream listens to the subject 'nowhere'"):
            publisher.publish(messages(store, "nowhere", Event("Other")))
        publisher.close()
