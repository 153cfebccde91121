"""One HTTP connection, with limits on time and memory that uvicorn does not have.

A client has `request_timeout_s` from the connection, or from the first byte of a request, to its last byte; then it is
answered with 408 and disconnected. A client that takes no byte of its answer for `stalled_client_s` is disconnected, so
an answer does not stay in memory for a client that does not read. The request line and the headers may have
`MAX_HEAD_BYTES`. A connection above `max_connections` is answered with 503 once and closed, and above twice as many it
is closed at once; connections that are open already are not disturbed. tests/server/test_limits.py holds all of this.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from ..wire.problems import BUSY, Kind, problem
from . import metrics
from .messages import TIMED_OUT, Receive, Request, Scope, Send, answer_problem, encode_json

if TYPE_CHECKING:
    from .app import App

MAX_HEAD_BYTES: Final = 65_536
# The framing of a chunked body is at most this many times as long as the body, for chunks of one byte.
CHUNK_OVERHEAD: Final = 16
SURPLUS: Final = 2  # times max_connections: beyond, a connection gets no answer
BAD_REQUEST: Final = Kind("bad-request", "This is not a valid HTTP request", 400)
HEAD_TOO_LARGE: Final = Kind("head-too-large", "The request line and the headers are too large", 431)
REASONS: Final = {400: b"Bad Request", 408: b"Request Timeout", 431: b"Request Header Fields Too Large"}


class Connection(HttpToolsProtocol):
    """uvicorn makes one for each connection."""

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        application: App = self.config.app  # type: ignore[assignment]
        self._settings = application.settings
        self._metrics = application.metrics
        self._deadline: asyncio.TimerHandle | None = None
        self._stall: asyncio.TimerHandle | None = None
        self._unsent = 0
        self._received = 0  # bytes of the request that is arriving
        self._body_bytes = 0
        self._in_head = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._metrics.add(metrics.CONNECTIONS)
        most = self._settings.max_connections
        if len(self.connections) > most:
            self._metrics.add(metrics.REFUSED, "max_connections")
            if len(self.connections) > SURPLUS * most:
                transport.abort()
                return
            self.app = self._refuse
        self._await_request()

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel_deadline()
        self._cancel_stall()
        self._metrics.add(metrics.CONNECTIONS, amount=-1)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._received += len(data)
        super().data_received(data)
        if self._deadline is not None and self._received - CHUNK_OVERHEAD * self._body_bytes > MAX_HEAD_BYTES:
            self._metrics.add(metrics.REFUSED, "head_bytes")
            self._reject(HEAD_TOO_LARGE, f"more than {MAX_HEAD_BYTES} bytes without a body")

    def on_message_begin(self) -> None:
        self._received = self._body_bytes = 0
        self._in_head = True
        if self._deadline is None:
            self._await_request()
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._in_head = False
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._body_bytes += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._cancel_deadline()
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        self._reject(BAD_REQUEST, msg)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch_reader()

    def resume_writing(self) -> None:
        self._cancel_stall()
        super().resume_writing()

    def _await_request(self) -> None:
        self._deadline = self.loop.call_later(self._settings.request_timeout_s, self._request_is_late)

    def _request_is_late(self) -> None:
        self._deadline = None
        if self.transport.is_closing():
            return
        if self.cycle is not None and not self.cycle.response_complete:
            self._await_request()  # the handler that reads the body answers, and the rest must still arrive in time
            return
        self._metrics.add(metrics.REAPED)
        if not self._in_head:
            self.transport.abort()  # there is no request to answer: it was answered, or never begun
        else:
            limit_s = self._settings.request_timeout_s
            self._reject(TIMED_OUT, f"the request line and the headers did not arrive within {limit_s:g} s")

    def _cancel_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _watch_reader(self) -> None:
        self._cancel_stall()
        self._unsent = self.transport.get_write_buffer_size()
        self._stall = self.loop.call_later(self._settings.stalled_client_s, self._look_at_reader)

    def _look_at_reader(self) -> None:
        if self.transport.get_write_buffer_size() < self._unsent:
            self._watch_reader()
        else:
            self._metrics.add(metrics.REAPED)
            self.transport.abort()

    def _cancel_stall(self) -> None:
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None

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
        self._metrics.add(metrics.REQUESTS, "other", str(kind.status))

    async def _refuse(self, scope: Scope, receive: Receive, send: Send) -> None:
        detail = f"{self._settings.max_connections} connections are open, which is the limit"
        answer = answer_problem(problem(BUSY, detail), retry_after_s=1)
        answer.headers["connection"] = "close"
        await answer.send(Request(scope, receive, self._settings), send)
