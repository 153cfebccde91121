"""The RabbitMQ publisher on a real broker."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aio_pika
import pytest

from fencepost import Event
from fencepost.consumers.outbox import PublisherUnavailable, RabbitPublisher

from .scenario import check_delivery, log, messages, publish_through_an_outage
from .servers import Broker, rabbitmq_server

logging.getLogger("aiormq").setLevel(logging.CRITICAL)  # it reports each attempt to connect to a broker that starts


class Server:
    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.url = f"amqp://guest:guest@127.0.0.1:{broker.port}/"

    def start(self) -> None:
        self.broker.start(lambda: self.ask(_nothing))

    def ask(self, question: Any, *arguments: Any) -> Any:
        async def asked() -> Any:
            connection = await aio_pika.connect(self.url, timeout=10)
            async with connection:
                return await question(await connection.channel(), *arguments)

        return asyncio.run(asked())


async def _nothing(channel: Any) -> None:
    """Nothing: there is a channel."""


async def _declare(channel: Any, name: str, **arguments: Any) -> None:
    await channel.declare_queue(name, durable=True, arguments=arguments)


async def _bind(channel: Any, exchange: str, queue: str, routing_key: str) -> None:
    made = await channel.declare_exchange(exchange, aio_pika.ExchangeType.TOPIC, durable=True)
    await (await channel.declare_queue(queue, durable=True)).bind(made, routing_key)


async def _drain(channel: Any, name: str) -> list[Any]:
    queue = await channel.get_queue(name)
    found = []
    while (message := await queue.get(no_ack=True, fail=False)) is not None:
        found.append(message)
    return found


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with rabbitmq_server(tmp_path_factory.mktemp("rabbitmq")) as broker:
        server = Server(broker)
        server.start()
        yield server


def test_every_event_arrives_in_order_although_the_broker_is_killed(server: Server, tmp_path: Path) -> None:
    server.ask(_declare, "restart")
    with log(tmp_path) as store:
        publisher = RabbitPublisher(server.url, timeout_s=5)
        publish_through_an_outage(store, "restart", publisher, server.broker.kill, server.start)
        received = server.ask(_drain, "restart")
        keys = {f"/tests#{event.position}": min(event.tags).partition(":")[2] for event in store.read() if event.tags}
        check_delivery(store, [(each.message_id, keys[each.message_id]) for each in received])


def test_messages_are_routed_by_an_exchange_and_are_persistent(server: Server, tmp_path: Path) -> None:
    server.ask(_bind, "events", "routed", "courses.*")
    with log(tmp_path) as store:
        sent = messages(store, "t", Event("Other", data=b"\xff", tags={"key:x"}))
        routing: Any = lambda message: f"courses.{message.key}"  # noqa: E731
        for mode in ("structured", "binary"):
            publisher = RabbitPublisher(server.url, exchange="events", routing_key=routing, mode=mode)  # type: ignore[arg-type]
            publisher.publish(sent)
            publisher.close()
    structured, binary = server.ask(_drain, "routed")
    assert (structured.body, structured.message_id, structured.type) == (sent[0].envelope, "/tests#1", "Other")
    assert structured.delivery_mode == aio_pika.DeliveryMode.PERSISTENT
    assert (binary.body, binary.content_type) == (b"\xff", "application/octet-stream")
    assert binary.headers["cloudEvents_partitionkey"] == "x"


def test_a_message_that_no_queue_wants_blames_no_message(server: Server, tmp_path: Path) -> None:
    with log(tmp_path) as store:
        sent = messages(store, "nowhere", Event("Other"))
        publisher = RabbitPublisher(server.url)
        with pytest.raises(PublisherUnavailable, match="no queue takes the routing key 'nowhere'"):
            publisher.publish(sent)
        server.ask(_declare, "nowhere")
        publisher.publish(sent)
        publisher.close()
    assert len(server.ask(_drain, "nowhere")) == 1


def test_a_full_queue_and_a_missing_exchange_blame_no_message(server: Server, tmp_path: Path) -> None:
    server.ask(lambda channel: _declare(channel, "full", **{"x-max-length": 1, "x-overflow": "reject-publish"}))
    with log(tmp_path) as store:
        sent = messages(store, "full", Event("Other"), Event("Other"), Event("Other"))
        publisher = RabbitPublisher(server.url)
        with pytest.raises(PublisherUnavailable, match="full"):
            publisher.publish(sent)
        publisher.close()
        with pytest.raises(PublisherUnavailable, match="missing"):
            RabbitPublisher(server.url, exchange="missing").publish(sent)
