"""`RabbitPublisher`: messages to an exchange of RabbitMQ, each confirmed by the broker.

Messages are persistent and mandatory: the broker confirms a message when it is safe in every queue that it was routed
to, and returns one that no queue wants, which is an error here. `message_id` is the deduplication key. The messages of
a round are sent together, and the next round waits for their confirms.
tests/brokers/test_rabbitmq.py restarts a real broker in the middle.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from threading import Lock
from typing import Any, Final, Literal

from ...errors import InvalidInput
from . import envelopes
from .loops import LoopThread
from .messages import Message
from .publishing import Address, MessageRefused, PublisherUnavailable, address_of, checked_timeout, library, rounds

TOGETHER: Final = 64  # unconfirmed messages at once


class RabbitPublisher:
    """Publishes to `exchange` with a routing key, by default the topic's name; a function gets the message.

    The exchange "" is RabbitMQ's default exchange, where the routing key is the name of a queue. In the mode "binary"
    the body is the event's data and the attributes are headers, otherwise the body is the envelope.
    """

    def __init__(
        self,
        url: str,
        *,
        exchange: str = "",
        routing_key: Address | None = None,
        mode: Literal["structured", "binary"] = "structured",
        timeout_s: float = 10.0,
        **options: Any,
    ) -> None:
        self._aio_pika: Any = library("aio_pika")
        if not isinstance(url, str):
            raise InvalidInput("url", "a URL such as amqps://user:password@host/vhost is needed")
        self._url = url
        self._exchange_name = exchange
        self._routing_key = routing_key
        self._mode = mode
        self._timeout_s = checked_timeout(timeout_s)
        self._options = options
        self._lock = Lock()
        self._thread: LoopThread | None = None
        self._connection: Any = None
        self._exchange: Any = None

    def publish(self, messages: Sequence[Message]) -> None:
        with self._lock:
            if self._thread is None:
                self._thread = LoopThread("fencepost-outbox-rabbitmq")
            try:
                if self._connection is None or self._connection.is_closed:
                    self._thread.call(self._connect(), self._timeout_s)
                for each in rounds(messages):
                    for at in range(0, len(each), TOGETHER):
                        self._thread.call(self._send(each[at : at + TOGETHER]), self._timeout_s)
            except (self._aio_pika.exceptions.AMQPError, RuntimeError) as error:
                self._close()
                raise PublisherUnavailable(f"RabbitMQ: {type(error).__name__}: {error}") from error
            except BaseException:
                self._close()
                raise

    def close(self) -> None:
        with self._lock:
            self._close()

    async def _connect(self) -> None:
        # Not the robust connection of aio-pika, which reconnects by itself: the outbox tries again, with a breaker.
        self._connection = await self._aio_pika.connect(self._url, timeout=self._timeout_s, **self._options)
        channel = await self._connection.channel(publisher_confirms=True, on_return_raises=True)
        if self._exchange_name:
            self._exchange = await channel.get_exchange(self._exchange_name, ensure=True)
        else:
            self._exchange = channel.default_exchange

    async def _send(self, messages: Sequence[Message]) -> None:
        sent = await asyncio.gather(*(self._send_one(each) for each in messages), return_exceptions=True)
        for error in sent:
            if isinstance(error, BaseException):
                raise error

    async def _send_one(self, message: Message) -> None:
        headers: dict[str, Any] = {}
        body, media_type = message.envelope, envelopes.STRUCTURED
        if self._mode == "binary":
            headers = dict(envelopes.headers(message, "cloudEvents_"))
            body, media_type = message.event.data, envelopes.content_type(message) or ""
        packed = self._aio_pika.Message(
            body,
            message_id=message.id if len(message.id.encode()) <= 255 else None,
            content_type=media_type or None,
            delivery_mode=self._aio_pika.DeliveryMode.PERSISTENT,
            headers=headers,
            type=message.event.type if len(message.event.type.encode()) <= 255 else None,
        )
        routing_key = address_of(self._routing_key, message)
        if len(routing_key.encode()) > 255:
            raise MessageRefused(message, "RabbitMQ: the routing key has more than 255 bytes")
        exceptions = self._aio_pika.exceptions
        try:
            await self._exchange.publish(packed, routing_key, mandatory=True, timeout=self._timeout_s)
        except exceptions.PublishError as error:
            raise PublisherUnavailable(f"RabbitMQ: no queue takes the routing key {routing_key!r}") from error
        except exceptions.DeliveryError as error:
            raise PublisherUnavailable("RabbitMQ: a queue does not take the message: it may be full") from error
        except exceptions.ChannelPreconditionFailed as error:
            raise MessageRefused(message, f"RabbitMQ: {error}") from error

    def _close(self) -> None:
        thread, connection = self._thread, self._connection
        self._thread = self._connection = self._exchange = None
        if thread is not None:
            if connection is not None:
                with suppress(Exception):  # it may be broken already
                    thread.call(connection.close(), self._timeout_s)
            thread.close()

    def __repr__(self) -> str:
        return f"<RabbitMQ exchange {self._exchange_name!r}>"
