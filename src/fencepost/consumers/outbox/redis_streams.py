"""`RedisPublisher`: messages as entries of a Redis stream.

Each entry has the fields `id` (the deduplication key), `key` and `event` (the envelope). A batch is one transaction of
Redis, so it is in the stream as a whole or not at all. Redis acknowledges before its disk does, unless it runs with
`appendfsync always`: what it loses in a crash was published and is not sent again.
tests/brokers/test_redis.py restarts a real server in the middle.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...errors import InvalidInput
from .messages import Message
from .publisher import Address, OneAtATime, PublisherUnavailable, address_of, checked_timeout, library


class RedisPublisher(OneAtATime):
    """Adds to the stream `stream`, by default named as the topic; a function gets the message.

    With `max_length`, Redis drops the oldest entries of a stream that is longer, in whole pieces. `options` go to
    `redis.Redis.from_url`.
    """

    _kept_after = (Exception,)  # the client connects again by itself

    def __init__(
        self,
        url: str,
        *,
        stream: Address | None = None,
        max_length: int | None = None,
        timeout_s: float = 10.0,
        **options: Any,
    ) -> None:
        super().__init__()
        self._redis: Any = library("redis")
        if max_length is not None and max_length < 1:
            raise InvalidInput("max_length", f"at least 1 is needed, not {max_length}")
        self._stream = stream
        self._max_length = max_length
        timeout_s = checked_timeout(timeout_s)
        defaults = {"socket_timeout": timeout_s, "socket_connect_timeout": timeout_s}
        self._client: Any = self._redis.Redis.from_url(url, **{**defaults, **options})

    def _publish(self, messages: Sequence[Message]) -> None:
        try:
            with self._client.pipeline(transaction=True) as pipeline:
                for message in messages:
                    fields: dict[str, bytes] = {"id": message.id.encode(), "event": message.envelope}
                    if message.key is not None:
                        fields["key"] = message.key.encode()
                    stream = address_of(self._stream, message)
                    pipeline.xadd(stream, fields, maxlen=self._max_length, approximate=True)
                pipeline.execute()
        except self._redis.exceptions.RedisError as error:
            # Redis has no opinion about single messages: a full memory or a wrong type concerns every message.
            raise PublisherUnavailable(f"Redis: {type(error).__name__}: {error}") from error

    def _close(self) -> None:
        self._client.close()

    def __repr__(self) -> str:
        return "<Redis>"
