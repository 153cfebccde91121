"""Requests to a server over pooled connections.

A request ends in one of three ways: with an answer, with `NotSent` (the server has not seen the request), or with
`Lost` (the server may have carried the request out). Only the engine knows whether a lost request can be repeated. A
thread has a connection to itself while its request is under way. A connection whose answer was not read to its end is
closed, never reused.

If the program uses OpenTelemetry, the headers carry the caller's trace, which the server continues: its spans of the
request and of the append become children of the caller's span (tests/server/test_observing.py). Appends of several
callers may travel in one request; then it is the trace of the caller that sends it.
"""

from __future__ import annotations

import select
import socket
import ssl
import threading
from collections.abc import Mapping
from contextlib import suppress
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from ipaddress import ip_address
from typing import Final, NamedTuple

from ...engine import Waiters, interruptibly
from ...errors import InvalidInput, StoreClosed, StoreUnavailable

try:
    from opentelemetry import propagate, trace
except ImportError:  # it is optional
    propagate = trace = None  # type: ignore[assignment]

CONNECT_TIMEOUT_S: Final = 5.0


class NotSent(StoreUnavailable):
    """The server was not reached, so it has done nothing."""


class Lost(StoreUnavailable):
    """The connection was lost before the answer was complete. The server may have carried the request out."""


class Answer(NamedTuple):
    status: int
    media_type: str
    body: bytes
    headers: Mapping[str, str]


class Transport:
    """The connections of one process to one server."""

    def __init__(
        self,
        host: str,
        port: int | None,
        *,
        tls: ssl.SSLContext | None,
        path: str,
        key: str | None,
        insecure: bool,
        most: int,
    ) -> None:
        if key is not None and not (tls or insecure or is_this_machine(host)):
            raise InvalidInput(
                "key",
                f"an API key is not sent to {host} without TLS: use https, or insecure=True if the network is safe",
            )
        self.server = f"{host}:{port or (443 if tls else 80)}"
        self._host, self._port, self._path = host, port, path
        self._headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        self._tls = tls
        self._lock = threading.Lock()
        self._idle: list[HTTPConnection] = []
        self._busy: set[HTTPConnection] = set()
        self._most = most
        self._waiters = Waiters()
        self._closed = False

    def request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        timeout_s: float,
        lane: set[HTTPConnection] | None = None,
    ) -> Answer:
        """Send the request and read the whole answer.

        `lane` is for requests that wait at the server: they have connections of their own, which are in the set while
        the request is under way, so that another thread can end the wait with `abort`.
        """
        connection = self._taken(timeout_s) if lane is None else self._made()
        done = False
        try:
            if lane is not None:
                lane.add(connection)
            _connect(connection, min(timeout_s, CONNECT_TIMEOUT_S), self.server)
            assert connection.sock is not None
            connection.sock.settimeout(timeout_s)
            sent = {**self._headers, **trace_headers(), **(headers or {})}
            answer = _exchanged(connection, method, self._path + path, body, sent)
            done = True
            return answer
        finally:
            if lane is None:
                self._given_back(connection, reusable=done)
            else:
                lane.discard(connection)
                connection.close()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()
        self._waiters.notify_all()

    def _taken(self, timeout_s: float) -> HTTPConnection:
        found: list[HTTPConnection] = []

        def take() -> bool:
            with self._lock:
                if self._closed:
                    raise StoreClosed("the store is closed")
                while self._idle:
                    connection = self._idle.pop()
                    if _is_usable(connection):
                        self._busy.add(connection)
                        found.append(connection)
                        return True
                    connection.close()
                if len(self._busy) >= self._most:
                    return False
                found.append(self._made())
                self._busy.add(found[0])
                return True

        if not take() and not self._waiters.wait_for(take, timeout_s):
            raise NotSent(f"all {self._most} connections to {self.server} were busy for {timeout_s:g} s")
        return found[0]

    def _given_back(self, connection: HTTPConnection, *, reusable: bool) -> None:
        with self._lock:
            self._busy.discard(connection)
            keep = reusable and not self._closed and connection.sock is not None
            if keep:
                self._idle.append(connection)
        if not keep:
            connection.close()
        self._waiters.notify_one()

    def _made(self) -> HTTPConnection:
        if self._tls is not None:
            return HTTPSConnection(self._host, self._port, context=self._tls)
        return HTTPConnection(self._host, self._port)


def abort(connection: HTTPConnection) -> None:
    """Make the thread that waits for an answer on this connection return with `Lost`."""
    sock = connection.sock
    if sock is not None:
        with suppress(OSError):  # the connection has ended already
            sock.shutdown(socket.SHUT_RDWR)


def is_this_machine(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _connect(connection: HTTPConnection, timeout_s: float, server: str) -> None:
    if connection.sock is not None:
        return
    connection.timeout = timeout_s
    try:
        interruptibly(connection.connect)
    except (OSError, HTTPException) as error:
        raise NotSent(f"cannot connect to the server at {server}: {error}") from error
    assert connection.sock is not None
    connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def _exchanged(
    connection: HTTPConnection, method: str, path: str, body: bytes | None, headers: Mapping[str, str]
) -> Answer:
    def exchange() -> Answer:
        connection.request(method, path, body, dict(headers))
        response = connection.getresponse()
        media_type = response.headers.get("Content-Type", "").partition(";")[0].strip()
        return Answer(response.status, media_type, response.read(), dict(response.headers))

    try:
        return interruptibly(exchange)
    except (OSError, HTTPException) as error:
        raise Lost(f"the server did not answer: {type(error).__name__}: {error}") from error


def _is_usable(connection: HTTPConnection) -> bool:
    """Whether the server has not closed the idle connection: then there is something to read, namely its end."""
    sock = connection.sock
    if sock is None:
        return False
    poller = select.poll()
    poller.register(sock, select.POLLIN)
    return not poller.poll(0)


def tls_context(ca_file: str | None, certificate: str | None, key: str | None) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=ca_file)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if certificate is not None:
            context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        raise InvalidInput("ca_file", f"the certificates cannot be loaded: {error}") from None
    return context


def trace_headers() -> dict[str, str]:
    """The headers that name the current span; none if there is no span."""
    if trace is None or not trace.get_current_span().get_span_context().is_valid:
        return {}
    headers: dict[str, str] = {}
    propagate.inject(headers)
    return headers
