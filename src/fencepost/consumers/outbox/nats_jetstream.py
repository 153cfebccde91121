"""`NatsPublisher`: messages to a stream of NATS JetStream, each acknowledged by the stream.

The header `Nats-Msg-Id` is the deduplication key, so the stream itself drops what is sent again within its
duplicate window (2 minutes unless configured otherwise). It contains the subject, since an event may be in several
topics of one stream. The messages of a round are sent together, and the next round waits for their acknowledgements.
tests/brokers/test_nats.py restarts a real server in the middle.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from threading import Lock
from typing import Any, Final, Literal

from . import envelopes
from .loops import LoopThread
from .messages import Message
from .publishing import Address, MessageRefused, PublisherUnavailable, address_of, checked_timeout, library, rounds

TOGETHER: Final = 64  # unacknowledged messages at once
log: Final = logging.getLogger("fencepost.consumers.outbox")


class NatsPublisher:
    """Publishes to the subject `subject`, by default the topic's name; a function gets the message.

    A stream must listen to the subject. In the mode "binary" the body is the event's data and the attributes are
    headers, otherwise the body is the envelope. `options` go to `nats.connect`, for example `user_credentials`.
    """

    def __init__(
        self,
        servers: str | list[str],
        *,
        subject: Address | None = None,
        mode: Literal["structured", "binary"] = "structured",
        timeout_s: float = 10.0,
        **options: Any,
    ) -> None:
        self._nats: Any = library("nats")
        self._js_errors: Any = library("nats.js.errors")
        self._servers = servers
        self._subject = subject
        self._mode = mode
        self._timeout_s = checked_timeout(timeout_s)
        self._options = options
        self._lock = Lock()
        self._thread: LoopThread | None = None
        self._connection: Any = None

    def publish(self, messages: Sequence[Message]) -> None:
        with self._lock:
            if self._thread is None:
                self._thread = LoopThread("fencepost-outbox-nats")
            try:
                if self._connection is None or not self._connection.is_connected:
                    self._connection = self._thread.call(self._connect(), self._timeout_s)
                for each in rounds(messages):
                    for at in range(0, len(each), TOGETHER):
                        self._thread.call(self._send(each[at : at + TOGETHER]), self._timeout_s)
            except MessageRefused:
                raise
            except (self._nats.errors.Error, self._js_errors.Error, EOFError) as error:
                self._close()
                raise PublisherUnavailable(f"NATS: {type(error).__name__}: {error}") from error
            except BaseException:
                self._close()
                raise

    def close(self) -> None:
        with self._lock:
            self._close()

    async def _connect(self) -> Any:
        # The outbox itself tries again, with a circuit breaker, and must know at once when the connection is lost.
        return await self._nats.connect(
            self._servers, allow_reconnect=False, error_cb=_log, connect_timeout=self._timeout_s, **self._options
        )

    async def _send(self, messages: Sequence[Message]) -> None:
        stream = self._connection.jetstream(timeout=self._timeout_s)
        sent = await asyncio.gather(*(self._send_one(stream, each) for each in messages), return_exceptions=True)
        for error in sent:
            if isinstance(error, BaseException):
                raise error

    async def _send_one(self, stream: Any, message: Message) -> None:
        subject = address_of(self._subject, message)
        headers = {"Nats-Msg-Id": f"{subject}/{message.id}"}
        body, media_type = message.envelope, envelopes.STRUCTURED
        if self._mode == "binary":
            headers |= envelopes.headers(message, "ce-")
            body, media_type = message.event.data, envelopes.content_type(message) or ""
        if media_type:
            headers["Content-Type"] = media_type
        try:
            await stream.publish(subject, body, headers=headers)
        except (self._nats.errors.MaxPayloadError, self._nats.errors.BadSubjectError) as error:
            raise MessageRefused(message, f"NATS: {type(error).__name__}: {error}") from error
        except self._js_errors.NoStreamResponseError as error:
            raise PublisherUnavailable(f"NATS: no stream listens to the subject {subject!r}") from error

    def _close(self) -> None:
        thread, connection = self._thread, self._connection
        self._thread = self._connection = None
        if thread is not None:
            if connection is not None:
                with suppress(Exception):  # it may be broken already
                    thread.call(connection.close(), self._timeout_s)
            thread.close()

    def __repr__(self) -> str:
        return "<NATS>"


async def _log(error: Exception) -> None:
    log.info("NATS: %s: %s", type(error).__name__, error)
