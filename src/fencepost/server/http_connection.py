"""One HTTP connection, with limits on time and memory that uvicorn does not have.

A client has `request_timeout_s` for the TLS handshake, and from the connection, or from the first byte of a request, to
its last byte; then it is answered with 408 and disconnected. A client that takes no byte of its answer for
`stalled_client_s` is disconnected. The request line and the headers may have `MAX_HEAD_BYTES`. A connection above
`max_connections`, or above the part of it that one address may have, is answered with 503 once and closed; above twice
as many it is closed at once. An offer to change the protocol (`Upgrade`) is ignored: the body is read as always.

uvicorn's class is private to it. tests/server/test_uvicorn.py checks what this module relies on;
tests/server/test_limits.py and tests/server/test_floods.py check the rest.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from . import metrics
from .admission import Refused
from .request import Receive, Request, Scope, Send, answer_problem, encode_json
from .wire.problems import BAD_REQUEST, BUSY, HEAD_TOO_LARGE, TIMED_OUT, Kind, problem

if TYPE_CHECKING:
    from .app import App

MAX_HEAD_BYTES: Final = 65_536
# The framing of a chunked body is at most this many times as long as the body, for chunks of one byte.
CHUNK_OVERHEAD: Final = 16
SLICE_BYTES: Final = 4_096
SURPLUS: Final = 2  # times max_connections: beyond, a connection gets no answer
REASONS: Final = {400: b"Bad Request", 408: b"Request Timeout", 431: b"Request Header Fields Too Large"}
# A request that offers another protocol is parsed again without these.
OFFERS: Final = (b"upgrade", b"http2-settings", b"connection")


def make_connection(**given: Any) -> asyncio.Protocol:
    """What uvicorn calls for each connection."""
    connection = HttpConnection(**given)
    certificate = connection.application.certificate
    return connection if certificate is None else TlsEntrance(connection, certificate.context)


class HttpConnection(HttpToolsProtocol):
    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.application: App = self.config.app  # type: ignore[assignment]
        self.settings = self.application.settings
        self.metrics = self.application.metrics
        self._quota = self.application.admission.connections
        self._address: str | None = None  # that the connection is counted for
        self._unparsed: deque[memoryview] = deque()
        self._early: list[bytes] = []  # arrived with the end of the TLS handshake
        self._deadline: asyncio.TimerHandle | None = None
        self._stall: asyncio.TimerHandle | None = None
        self._unsent = 0
        self._received = 0  # bytes of the request that is arriving
        self._head_bytes = self._body_bytes = 0
        self._in_head = False
        self._is_ignored = False  # the request that is being parsed was refused, or is parsed again

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.metrics.add(metrics.CONNECTIONS)
        address = self.client[0] if self.client else ""
        try:
            self._quota.take(address)
            self._address = address
        except Refused as refused:
            if len(self.connections) > SURPLUS * self.settings.max_connections:
                transport.abort()
                return
            detail = str(refused)
            self.app = lambda scope, receive, send: self._refuse(detail, scope, receive, send)
        self._await_request()
        for data in self._early:
            self.data_received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel_deadline()
        self._cancel_stall()
        if self._address is not None:
            self._quota.give_back(self._address)
            self._address = None
        self.metrics.add(metrics.CONNECTIONS, amount=-1)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport is None:
            self._early.append(data)
            return
        self._unset_keepalive_if_required()
        self._unparsed.append(memoryview(data))
        self._parse()

    def _parse(self) -> None:
        """Parse what has arrived, as far as the requests in it can be answered one after another."""
        while self._unparsed and not self.pipeline and not self.transport.is_closing():
            part = self._unparsed.popleft()
            if len(part) > SLICE_BYTES and (self.cycle is None or self.cycle.response_complete):
                # Small requests that were sent together are not parsed together: other connections have their turn.
                self._unparsed.appendleft(part[SLICE_BYTES:])
                part = part[:SLICE_BYTES]
            self._received += len(part)
            try:
                self.parser.feed_data(part)
            except httptools.HttpParserUpgrade as offer:
                if self.parser.get_method() == b"CONNECT":
                    self._reject(BAD_REQUEST, "CONNECT is not supported")
                    return
                head = self._head_without_offer()
                self.parser = httptools.HttpRequestParser(self)
                self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
                self._unparsed.extendleft([part[offer.args[0] :], memoryview(head)])
            except httptools.HttpParserError:
                self._reject(BAD_REQUEST, "Invalid HTTP request received.")
                return
            if self._deadline is not None and self._received - CHUNK_OVERHEAD * self._body_bytes > MAX_HEAD_BYTES:
                self._reject_head()
        if self._unparsed:
            self.flow.pause_reading()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._unparsed and not self.transport.is_closing():
            self.flow.pause_reading()
            self.loop.call_soon(self._parse_rest)

    def _parse_rest(self) -> None:
        self._parse()
        if not self._unparsed and not self.pipeline and not self.transport.is_closing():
            self.flow.resume_reading()

    def _head_without_offer(self) -> bytes:
        """The request line and the headers again, without the offer of another protocol."""
        lines = [b"%b %b HTTP/%b" % (self.parser.get_method(), self.url, self.parser.get_http_version().encode())]
        lines += [b"%b: %b" % header for header in self.headers if header[0] not in OFFERS]
        if any(name == b"connection" and b"close" in value.lower() for name, value in self.headers):
            lines.append(b"connection: close")
        return b"\r\n".join(lines) + b"\r\n\r\n"

    def on_message_begin(self) -> None:
        self._received = self._head_bytes = self._body_bytes = 0
        self._in_head, self._is_ignored = True, False
        if self._deadline is None:
            self._await_request()
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        self._head_bytes += len(name) + len(value) + 4  # with ": " and the end of the line
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._in_head = False
        if self.parser.should_upgrade():
            self._is_ignored = True
        elif self._head_bytes + len(self.url) > MAX_HEAD_BYTES:
            self._is_ignored = True
            self._reject_head()
        else:
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._body_bytes += len(body)
        if not self._is_ignored:
            super().on_body(body)

    def on_message_complete(self) -> None:
        if not self._is_ignored:
            self._cancel_deadline()
            super().on_message_complete()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch_reader()

    def resume_writing(self) -> None:
        self._cancel_stall()
        super().resume_writing()

    def _await_request(self) -> None:
        self._deadline = self.loop.call_later(self.settings.request_timeout_s, self._request_is_late)

    def _request_is_late(self) -> None:
        self._deadline = None
        if self.transport.is_closing():
            return
        if self.cycle is not None and not self.cycle.response_complete:
            self._await_request()  # the handler that reads the body answers, and the rest must still arrive in time
            return
        self.metrics.add(metrics.REAPED)
        if not self._in_head:
            self.transport.abort()  # there is no request to answer: it was answered, or never begun
        else:
            limit_s = self.settings.request_timeout_s
            self._reject(TIMED_OUT, f"the request line and the headers did not arrive within {limit_s:g} s")

    def _cancel_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _watch_reader(self) -> None:
        self._cancel_stall()
        self._unsent = self.transport.get_write_buffer_size()
        self._stall = self.loop.call_later(self.settings.stalled_client_s, self._look_at_reader)

    def _look_at_reader(self) -> None:
        if self.transport.get_write_buffer_size() < self._unsent:
            self._watch_reader()
        else:
            self.metrics.add(metrics.REAPED)
            self.transport.abort()

    def _cancel_stall(self) -> None:
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None

    def _reject_head(self) -> None:
        self.metrics.add(metrics.REFUSED, "head_bytes")
        self._reject(HEAD_TOO_LARGE, f"the request line and the headers may have {MAX_HEAD_BYTES} bytes")

    def _reject(self, kind: Kind, detail: str) -> None:
        """Answer without the application, and close. A request that is being answered gets no second answer."""
        self._cancel_deadline()
        if self.transport.is_closing():
            return
        if self.cycle is not None and not self.cycle.response_complete:
            self.transport.abort()
            return
        body = encode_json(problem(kind, detail))
        head = b"HTTP/1.1 %d %b\r\ncontent-type: application/problem+json\r\n" % (kind.status, REASONS[kind.status])
        self.transport.write(head + b"content-length: %d\r\nconnection: close\r\n\r\n%b" % (len(body), body))
        self.transport.close()
        self.metrics.add(metrics.REQUESTS, "other", str(kind.status))

    async def _refuse(self, detail: str, scope: Scope, receive: Receive, send: Send) -> None:
        answer = answer_problem(problem(BUSY, detail), retry_after_s=1)
        answer.headers["connection"] = "close"
        await answer.send(Request(scope, receive, self.settings), send)


class TlsEntrance(asyncio.Protocol):
    """The TLS handshake of a connection, inside the limits, before it is an `HttpConnection`."""

    handshakes = 0  # under way in this process

    def __init__(self, connection: HttpConnection, context: Any) -> None:
        self._connection = connection
        self._context = context
        self._task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        connection = self._connection
        if TlsEntrance.handshakes + len(connection.connections) >= SURPLUS * connection.settings.max_connections:
            connection.metrics.add(metrics.REFUSED, "max_connections")
            transport.abort()
            return
        TlsEntrance.handshakes += 1
        transport.pause_reading()
        self._task = asyncio.get_running_loop().create_task(self._shake_hands(transport))

    async def _shake_hands(self, transport: asyncio.Transport) -> None:
        connection = self._connection
        try:
            secure = await asyncio.get_running_loop().start_tls(
                transport,
                connection,
                self._context,
                server_side=True,
                ssl_handshake_timeout=connection.settings.request_timeout_s,
            )
        except (OSError, TimeoutError):  # which the errors of ssl are, too
            connection.metrics.add(metrics.REAPED)
            with suppress(OSError):
                transport.abort()
            return
        finally:
            TlsEntrance.handshakes -= 1
        assert secure is not None
        connection.connection_made(secure)
