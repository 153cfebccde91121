"""`WebhookPublisher`: CloudEvents to an HTTP receiver, signed.

Messages are sent one after another over one connection, or a batch in one request with `batched`. A status of 2xx
accepts a message. The statuses 400, 409, 413 and 422 are about the message, so it is refused. Every other answer is
about the receiver or the configuration: no message is blamed for a wrong URL, an expired credential or an overloaded
receiver. Redirects are not followed, because a signed request must not go where the program did not send it.
tests/consumers/outbox/test_webhook.py has a real receiver.
"""

from __future__ import annotations

import http.client
import ssl
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Final
from urllib.parse import urlsplit

from ...errors import InvalidInput
from .messages import BATCHED, STRUCTURED, Message, batched
from .publisher import MessageRefused, OneAtATime, PublisherUnavailable, checked_timeout
from .signatures import HEADER, checked_secrets, sign

REFUSED: Final = {400, 409, 413, 422}
MOST_BYTES: Final = 65_536  # of an answer; a connection with a longer one is closed instead of read to its end
SHOWN: Final = 200  # characters of an answer in an error
RESERVED: Final = {"content-type", "content-length", "host", HEADER.lower(), "transfer-encoding", "connection"}


class WebhookPublisher(OneAtATime):
    """Posts each message to `url`. With `secrets`, every request is signed with each of them.

    `headers` are sent as they are, for example an API key. With `batched`, all messages of a batch are one request.
    """

    _kept_after = (Exception,)  # what breaks it has closed it already

    def __init__(
        self,
        url: str,
        *,
        secrets: Iterable[str | bytes] | None = None,
        headers: Mapping[str, str] | None = None,
        batched: bool = False,
        timeout_s: float = 10.0,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        super().__init__()
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InvalidInput("url", "a URL such as https://host/path is needed")
        if parts.username is not None or parts.password is not None:
            raise InvalidInput("url", "it contains a user name; pass credentials in headers")
        try:
            port = parts.port
        except ValueError:
            raise InvalidInput("url", "its port is not a number up to 65535") from None
        self._secure = parts.scheme == "https"
        self._host, self._port = parts.hostname, port
        self._path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self._shown = f"{parts.scheme}://{parts.netloc}{parts.path}"  # a query may contain a token
        if not all("!" <= each <= "~" for each in self._path):
            raise InvalidInput("url", "percent-encode spaces and characters that are not ASCII")
        self._secrets = () if secrets is None else checked_secrets(secrets)
        self._headers = dict(headers or {})
        for name in self._headers:
            if name.lower() in RESERVED:
                raise InvalidInput("headers", f"{name!r} is set by the publisher")
        self._batched = batched
        self._timeout_s = checked_timeout(timeout_s)
        self._tls = tls
        self._connection: http.client.HTTPConnection | None = None

    def _publish(self, messages: Sequence[Message]) -> None:
        if self._batched and messages:
            self._send(batched(messages), BATCHED, messages)
            return
        for message in messages:
            self._send(message.envelope, STRUCTURED, [message])

    def _send(self, body: bytes, media_type: str, messages: Sequence[Message]) -> None:
        status, answer, retry_after_s = self._post(body, media_type)
        if 200 <= status < 300:
            return
        shown = answer[:SHOWN].decode("utf-8", "replace")
        reason = f"{self._shown} answered {status}" + (f": {shown}" if shown else "")
        if status not in REFUSED:
            raise PublisherUnavailable(reason, retry_after_s=retry_after_s)
        if len(messages) == 1:
            raise MessageRefused(messages[0], reason)
        raise ValueError(reason)  # one of the messages is refused; the outbox finds out which

    def _post(self, body: bytes, media_type: str) -> tuple[int, bytes, float]:
        """Send the request; once more if a connection that was used before turns out to be closed."""
        used = self._connection is not None
        try:
            return self._request(body, media_type)
        except BaseException as error:
            self._close()
            if not (used and isinstance(error, (ConnectionError, http.client.CannotSendRequest))):
                raise
        return self._post(body, media_type)

    def _request(self, body: bytes, media_type: str) -> tuple[int, bytes, float]:
        headers = {"User-Agent": "fencepost", **self._headers, "Content-Type": media_type}
        if self._secrets:
            headers[HEADER] = sign(body, self._secrets, at_s=int(time.time()))
        if self._connection is None:
            self._connection = self._connect()
        try:
            self._connection.request("POST", self._path, body, headers)
            response = self._connection.getresponse()
            answer = response.read(MOST_BYTES)
        except (http.client.RemoteDisconnected, http.client.CannotSendRequest):
            raise
        except http.client.HTTPException as error:
            raise PublisherUnavailable(f"{self._shown} does not speak HTTP: {type(error).__name__}") from error
        if not response.isclosed():
            self._close()
        return response.status, answer, _seconds(response.headers.get("Retry-After"))

    def _connect(self) -> http.client.HTTPConnection:
        if not self._secure:
            return http.client.HTTPConnection(self._host, self._port, timeout=self._timeout_s)
        tls = ssl.create_default_context() if self._tls is None else self._tls
        return http.client.HTTPSConnection(self._host, self._port, timeout=self._timeout_s, context=tls)

    def _close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(OSError):
                connection.close()

    def __repr__(self) -> str:
        return f"<webhook {self._shown}>"


def _seconds(retry_after: str | None) -> float:
    """The header Retry-After if it is a number of seconds; 0 if it is a date or missing."""
    return float(retry_after) if retry_after is not None and retry_after.isascii() and retry_after.isdigit() else 0.0
