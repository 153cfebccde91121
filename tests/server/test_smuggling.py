"""What one client sends is one request: nothing of its body is taken for another one, and no body is left out."""

from __future__ import annotations

import json
import socket
from typing import Any

import httpx
import pytest

from .running import RunningServer

SOON_S = 20.0
OFFERS = [
    b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n",
    b"Connection: keep-alive, upgrade\r\nUpgrade: websocket\r\n",
    b"Upgrade: TLS/1.0\r\nConnection: Upgrade\r\n",
]


def exchanged(server: RunningServer, sent: bytes, *, ends: bool = False) -> list[tuple[int, Any]]:
    """The status and the JSON of each answer until the server closes the connection."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=SOON_S) as connection:
        connection.sendall(sent)
        if ends:
            connection.shutdown(socket.SHUT_WR)
        received = b""
        while part := connection.recv(65_536):
            received += part
    answers = []
    while received:
        head, _, rest = received.partition(b"\r\n\r\n")
        fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:])
        size = int(fields[b"content-length"])
        answers.append((int(head.split()[1]), json.loads(rest[:size]) if size else None))
        received = rest[size:]
    return answers


def post(path: bytes, body: bytes, headers: bytes = b"") -> bytes:
    head = b"POST %b HTTP/1.1\r\nHost: localhost\r\n%bContent-Length: %d\r\n\r\n" % (path, headers, len(body))
    return head + body


LAST = b"GET /v1/head HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


@pytest.mark.parametrize("offer", OFFERS)
def test_a_request_that_offers_another_protocol_is_answered_with_its_body(server: RunningServer, offer: bytes) -> None:
    stored = post(b"/v1/append", b'{"events": [{"type": "A"}, {"type": "B"}]}', offer)
    read = post(b"/v1/read", b'{"query": {"items": [{"types": ["B"]}]}}', offer)
    answers = exchanged(server, stored + read + LAST)
    assert [status for status, _ in answers] == [200, 200, 200]
    assert [event["type"] for event in answers[1][1]["events"]] == ["B"]
    assert answers[2][1] == {"head": 2}


@pytest.mark.parametrize("offer", OFFERS)
def test_a_body_behind_such_an_offer_is_not_a_request(server: RunningServer, offer: bytes) -> None:
    hidden = post(b"/v1/append", b'{"events": [{"type": "Hidden"}]}')
    chunked = b"POST /v1/read HTTP/1.1\r\nHost: localhost\r\n%bTransfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n"
    for sent in (post(b"/v1/read", hidden, offer), chunked % (offer, len(hidden), hidden)):
        answers = exchanged(server, sent + LAST)
        assert [status for status, _ in answers] == [422, 200]
        assert answers[-1][1] == {"head": 0}


def test_many_offers_in_one_connection_are_each_answered(server: RunningServer) -> None:
    one = post(b"/v1/read", b"{}", OFFERS[0])
    assert len(exchanged(server, 300 * one + LAST)) == 301


@pytest.mark.parametrize(
    "sent",
    [
        b"POST /v1/read HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        b"POST /v1/read HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 0\r\n\r\n",
        b"POST /v1/read HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    ],
)
def test_a_reading_without_a_body_is_not_a_reading_of_everything(server: RunningServer, sent: bytes) -> None:
    httpx.post(f"{server.url}/v1/append", json={"events": [{"type": "A"}]})
    ((status, problem),) = exchanged(server, sent)
    assert (status, problem["field"]) == (422, "body")


@pytest.mark.parametrize("path", [b"/v1/read", b"/v1/append", b"/v1/consumers/c/pause"])
def test_a_body_that_ends_early_is_not_answered(server: RunningServer, path: bytes) -> None:
    head = b"POST %b HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{}" % path
    assert exchanged(server, head, ends=True) == []


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Host": "localhost:1234"}, 200),
        ({"Host": "[::1]:8765"}, 200),
        ({"Host": "evil.example"}, 403),
        ({"Host": "127.0.0.1.evil.example:8765"}, 403),
        ({"Host": "127.0.0.1:8765", "Origin": "http://127.0.0.1:8765"}, 200),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Host": "[::1"}, 403),
        ({"Origin": "http://["}, 403),
        ({"Host": "localhost:8765", "Origin": "http://localhost:9999"}, 403),
    ],
)
def test_without_keys_no_web_page_of_another_site_is_served(
    server: RunningServer, headers: dict[str, str], status: int
) -> None:
    answer = httpx.post(f"{server.url}/v1/append", content=b'{"events": [{"type": "A"}]}', headers=headers)
    assert answer.status_code == status
    assert httpx.get(f"{server.url}/v1/head").json()["head"] == (1 if status == 200 else 0)
