"""`RabbitPublisher`: messages to an exchange of RabbitMQ, each confirmed by the broker.

Messages are persistent and mandatory: the broker confirms a message when it is safe in every queue that it was routed
to, and returns one that no queue wants, which is an error here. `message_id` is the deduplication key. The messages of
a round are sent together, and the next round waits for their confirms.
tests/brokers/test_rabbitmq.py restarts a real broker in the middle.
"""

from __future__ import annotations

from typing import Any

from ...errors import InvalidInput
from .loops import AsyncioPublisher
from .messages import Message, Mode, packed
from .publisher import Address, MessageRefused, PublisherUnavailable, address_of, library


class RabbitPublisher(AsyncioPublisher):
    """Publishes to `exchange` with a routing key, by default the topic's name; a function gets the message.

    The exchange "" is RabbitMQ's default exchange, where the routing key is the name of a queue. In the mode "binary"
    the body is the event's data and the attributes are headers, otherwise the body is the envelope.
    """

    _broker = "RabbitMQ"

    def __init__(
        self,
        url: str,
        *,
        exchange: str = "",
        routing_key: Address | None = None,
        mode: Mode = "structured",
        timeout_s: float = 10.0,
        **options: Any,
    ) -> None:
        self._aio_pika: Any = library("aio_pika")
        if not isinstance(url, str):
            raise InvalidInput("url", "a URL such as amqps://user:password@host/vhost is needed")
        self._url = url
        self._exchange_name = exchange
        super().__init__(routing_key, mode, timeout_s, options, (self._aio_pika.exceptions.AMQPError, RuntimeError))

    def _is_connected(self) -> bool:
        return not self._connection.is_closed

    async def _connect(self) -> None:
        # Not the robust connection of aio-pika, which reconnects by itself: the outbox tries again, with a breaker.
        self._connection = await self._aio_pika.connect(self._url, timeout=self._timeout_s, **self._options)
        channel = await self._connection.channel(publisher_confirms=True, on_return_raises=True)
        if self._exchange_name:
            self._exchange = await channel.get_exchange(self._exchange_name, ensure=True)
        else:
            self._exchange = channel.default_exchange

    async def _send_one(self, message: Message) -> None:
        body, media_type, headers = packed(message, self._mode, "cloudEvents_")
        sent = self._aio_pika.Message(
            body,
            message_id=message.id if len(message.id.encode()) <= 255 else None,
            content_type=media_type,
            delivery_mode=self._aio_pika.DeliveryMode.PERSISTENT,
            headers=headers,
            type=message.event.type if len(message.event.type.encode()) <= 255 else None,
        )
        routing_key = address_of(self._address, message)
        if len(routing_key.encode()) > 255:
            raise MessageRefused(message, "RabbitMQ: the routing key has more than 255 bytes")
        exceptions = self._aio_pika.exceptions
        try:
            await self._exchange.publish(sent, routing_key, mandatory=True, timeout=self._timeout_s)
        except exceptions.PublishError as error:
            raise PublisherUnavailable(f"RabbitMQ: no queue takes the routing key {routing_key!r}") from error
        except exceptions.DeliveryError as error:
            raise PublisherUnavailable("RabbitMQ: a queue does not take the message: it may be full") from error
        except exceptions.ChannelPreconditionFailed as error:
            raise MessageRefused(message, f"RabbitMQ: {error}") from error

    def __repr__(self) -> str:
        return f"<RabbitMQ exchange {self._exchange_name!r}>"
