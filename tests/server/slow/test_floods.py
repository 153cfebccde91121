"""Floods by clients without a key, and by one with a key: another client goes on, and memory stays bounded.

Each flood runs for some seconds against a server of its own process while another client asks for the head again and
again. A machine that is busy with other work makes it wait as well, so of some rounds the best one counts: a server
that a flood can stop is stopped in each of them.
"""

from __future__ import annotations

import json
import socket
import struct
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import grpc
import httpx
import pytest

import fencepost
from fencepost.server.access import Right
from fencepost.server.keys import add_key

from ..running import ServerProcess, free_port

FLOOD_S = 2.0
LONGEST_WAIT_S = 0.25
ROUNDS = 5
MEMORY_KB = 700_000  # max_body_memory_bytes, and what the process needs without requests
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


def frame(kind: int, flags: int = 0, stream: int = 0, payload: bytes = b"") -> bytes:
    return struct.pack(">I", len(payload))[1:] + bytes((kind, flags)) + struct.pack(">I", stream) + payload


# HPACK: the pseudo headers of a call, as literals without indexing.
def header(name: bytes, value: bytes) -> bytes:
    return b"\x00" + bytes((len(name),)) + name + bytes((len(value),)) + value


CALL = b"".join(
    [
        header(b":method", b"POST"),
        header(b":scheme", b"http"),
        header(b":path", b"/umadb.v1.DCB/Head"),
        header(b":authority", b"x"),
        header(b"content-type", b"application/grpc"),
        header(b"te", b"trailers"),
    ]
)


class Target:
    """The server, its ports, and a key."""

    def __init__(self, port: int, grpc_port: int, key: str) -> None:
        self.port, self.grpc_port, self.key = port, grpc_port, key


def sends(target: Target, port: int, parts: Callable[[int], bytes], stop: threading.Event, first: bytes = b"") -> None:
    """Send parts one after another, on a new connection whenever the server closes one. Nothing is read."""
    number = 0
    while not stop.is_set():
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1) as connection:
            connection.sendall(first)
            while not stop.is_set():
                connection.sendall(parts(number))
                number += 1


def http2(parts: Callable[[int], bytes]) -> Callable[[Target, threading.Event], None]:
    return lambda target, stop: sends(target, target.grpc_port, parts, stop, PREFACE + frame(4))


def opened_and_reset(number: int) -> bytes:
    stream = 2 * number + 1
    return frame(1, 4, stream, CALL) + frame(3, 0, stream, struct.pack(">I", 8))


def bombs(target: Target, stop: threading.Event) -> None:
    message = bytes(50_000_000)
    with grpc.insecure_channel(
        f"127.0.0.1:{target.grpc_port}", options=[("grpc.max_send_message_length", -1)]
    ) as channel:
        call = channel.unary_unary("/umadb.v1.DCB/Append")
        while not stop.is_set():
            for metadata in ([], [("authorization", f"Bearer {target.key}")]):
                with suppress(grpc.RpcError):
                    call(message, metadata=metadata, compression=grpc.Compression.Gzip, timeout=FLOOD_S)


def unread_answers(target: Target, stop: threading.Event) -> None:
    asked = f"GET /v1/events HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {target.key}\r\n\r\n".encode()
    opened: list[socket.socket] = []
    while not stop.is_set():
        with suppress(OSError):
            connection = socket.create_connection(("127.0.0.1", target.port), timeout=1)
            connection.sendall(asked)
            opened.append(connection)
        if len(opened) > 300:
            opened.pop(0).close()
    for connection in opened:
        connection.close()


def large_bodies(target: Target, stop: threading.Event) -> None:
    body = json.dumps({"events": [{"type": "T", "data": "x" * 900_000}] * 30}).encode()
    head = (
        f"POST /v1/append HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {target.key}\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    while not stop.is_set():
        with suppress(OSError), socket.create_connection(("127.0.0.1", target.port), timeout=5) as connection:
            connection.sendall(head.encode() + body[:-1])


def http1(parts: Callable[[int], bytes]) -> Callable[[Target, threading.Event], None]:
    return lambda target, stop: sends(target, target.port, parts, stop)


FLOODS: dict[str, Callable[[Target, threading.Event], None]] = {
    "ping": http2(lambda _: 100 * frame(6, 0, 0, bytes(8))),
    "settings": http2(lambda _: 100 * frame(4)),
    "priority": http2(lambda number: 100 * frame(2, 0, 2 * number + 1, bytes(5))),
    "window updates": http2(lambda _: 100 * frame(8, 0, 0, struct.pack(">I", 1))),
    "resets": http2(opened_and_reset),
    "calls without a key": http2(lambda number: frame(1, 5, 2 * number + 1, CALL)),
    "empty data": http2(lambda number: frame(1, 4, 2 * number + 1, CALL) + 100 * frame(0, 0, 2 * number + 1)),
    "bombs": bombs,
    "requests without a key": http1(lambda _: 10 * b"GET /v1/head HTTP/1.1\r\nHost: localhost\r\n\r\n"),
    "offers of another protocol": http1(
        lambda _: (
            10
            * b"POST /v1/read HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: h2c\r\nContent-Length: 2\r\n\r\n{}"
        )
    ),
    "connections": lambda target, stop: sends(target, target.port, lambda _: b"", stop),
    "half heads": http1(lambda _: b"X: " + b"x" * 1_000 + b"\r\n"),
    "unread answers": unread_answers,
    "large bodies": large_bodies,
}


def longest_wait_s(http: httpx.Client, seconds: float) -> float:
    longest, end = 0.0, time.monotonic() + seconds
    while time.monotonic() < end:
        began = time.monotonic()
        assert http.get("/v1/head").status_code == 200
        longest = max(longest, time.monotonic() - began)
    return longest


@pytest.mark.parametrize("name", FLOODS)
def test_another_client_goes_on_and_memory_stays_bounded(tmp_path: Path, name: str) -> None:
    store, keys, grpc_port = tmp_path / "wallet.db", tmp_path / "keys.json", free_port()
    with fencepost.open(store, create=True) as opened:
        opened.append([fencepost.Event("T", data=b"x" * 200_000) for _ in range(40)])
    attacker = add_key(keys, "attacker", rights=frozenset({Right.READ, Right.APPEND})).secret
    other = add_key(keys, "other", rights=frozenset({Right.READ})).secret
    with ServerProcess(store, "--keys", str(keys), "--grpc-port", str(grpc_port)) as server:
        target = Target(server.port, grpc_port, attacker)
        with httpx.Client(base_url=server.url, headers={"Authorization": f"Bearer {other}"}, timeout=30) as http:
            waits_s = []
            for _ in range(ROUNDS):
                waits_s.append(flooded_wait_s(http, FLOODS[name], target))
                if waits_s[-1] <= LONGEST_WAIT_S:
                    break
        status = Path(f"/proc/{server.process.pid}/status").read_text()
        peak_kb = int(status.partition("VmHWM:")[2].split()[0])
    print(f"{name}: {[round(1_000 * each) for each in waits_s]} ms, {peak_kb // 1_000} MB")
    assert min(waits_s) <= LONGEST_WAIT_S
    assert peak_kb < MEMORY_KB


def flooded_wait_s(http: httpx.Client, flood: Callable[[Target, threading.Event], None], target: Target) -> float:
    stop = threading.Event()
    thread = threading.Thread(target=flood, args=(target, stop))
    thread.start()
    try:
        return longest_wait_s(http, FLOOD_S)
    finally:
        stop.set()
        thread.join(30)
