"""`NatsPublisher`: messages to a stream of NATS JetStream, each acknowledged by the stream.

The header `Nats-Msg-Id` is the deduplication key, so the stream itself drops what is sent again within its
duplicate window (2 minutes unless configured otherwise). It contains the subject, since an event may be in several
topics of one stream. The messages of a round are sent together, and the next round waits for their acknowledgements.
tests/brokers/test_nats.py restarts a real server in the middle.
"""

from __future__ import annotations

from typing import Any

from .loops import AsyncioPublisher
from .messages import Message, Mode, packed
from .publisher import Address, MessageRefused, PublisherUnavailable, address_of, library, log


class NatsPublisher(AsyncioPublisher):
    """Publishes to the subject `subject`, by default the topic's name; a function gets the message.

    A stream must listen to the subject. In the mode "binary" the body is the event's data and the attributes are
    headers, otherwise the body is the envelope. `options` go to `nats.connect`, for example `user_credentials`.
    """

    _broker = "NATS"
    _kept_after = (MessageRefused,)

    def __init__(
        self,
        servers: str | list[str],
        *,
        subject: Address | None = None,
        mode: Mode = "structured",
        timeout_s: float = 10.0,
        **options: Any,
    ) -> None:
        self._nats: Any = library("nats")
        self._js_errors: Any = library("nats.js.errors")
        self._servers = servers
        super().__init__(subject, mode, timeout_s, options, (self._nats.errors.Error, self._js_errors.Error, EOFError))

    def _is_connected(self) -> bool:
        return bool(self._connection.is_connected)

    async def _connect(self) -> None:
        # The outbox itself tries again, with a circuit breaker, and must know at once when the connection is lost.
        self._connection = await self._nats.connect(
            self._servers, allow_reconnect=False, error_cb=_log, connect_timeout=self._timeout_s, **self._options
        )
        self._stream = self._connection.jetstream(timeout=self._timeout_s)

    async def _send_one(self, message: Message) -> None:
        subject = address_of(self._address, message)
        body, media_type, named = packed(message, self._mode, "ce-")
        headers = {"Nats-Msg-Id": f"{subject}/{message.id}", **named}
        if media_type is not None:
            headers["Content-Type"] = media_type
        try:
            await self._stream.publish(subject, body, headers=headers)
        except (self._nats.errors.MaxPayloadError, self._nats.errors.BadSubjectError) as error:
            raise MessageRefused(message, f"NATS: {type(error).__name__}: {error}") from error
        except self._js_errors.NoStreamResponseError as error:
            raise PublisherUnavailable(f"NATS: no stream listens to the subject {subject!r}") from error

    def __repr__(self) -> str:
        return "<NATS>"


async def _log(error: Exception) -> None:
    log.info("NATS: %s: %s", type(error).__name__, error)
