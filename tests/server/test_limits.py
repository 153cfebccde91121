"""Limits and slow clients: each limit has an answer and a count, and memory stays bounded whatever clients do."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest
import umadb

import fencepost
from fencepost.server.access import Right
from fencepost.server.keys import add_key
from fencepost.server.umadb import protobuf as messages

from .running import RunningServer, ServerProcess, free_port
from .test_tls import Certificates, certificates, serving_tls  # noqa: F401 - a fixture

SOON_S = 20.0


@contextmanager
def running(folder: Path, **settings: Any) -> Iterator[RunningServer]:
    with RunningServer(str(folder / "wallet.db"), **settings) as server:
        yield server


def connect(server: RunningServer, sent: bytes = b"") -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", server.port), timeout=SOON_S)
    connection.sendall(sent)
    return connection


def answered(connection: socket.socket) -> tuple[int, dict[str, Any]]:
    """The status and the body of an answer after which the server closes the connection."""
    received = b""
    while part := connection.recv(65_536):
        received += part
    head, _, body = received.partition(b"\r\n\r\n")
    assert b"application/problem+json" in head
    return int(head.split()[1]), json.loads(body)


def counted(server: RunningServer, line: str) -> float:
    """The value of a metric, read without a request."""
    assert server.app is not None
    values = dict(each.rsplit(" ", 1) for each in server.app.metrics.text().decode().splitlines() if each[0] != "#")
    return float(values.get(line, 0))


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SOON_S
    while not condition():
        assert time.monotonic() < deadline, "it does not happen"
        time.sleep(0.02)


@pytest.mark.parametrize("part", [b"GET /v1/he", b"GET /v1/head HTTP/1.1\r\nHost: localhost\r\nAccept: "])
def test_a_client_that_does_not_finish_its_headers_is_answered_with_408(tmp_path: Path, part: bytes) -> None:
    with running(tmp_path, request_timeout_s=0.3) as server:
        status, problem = answered(connect(server, part))
        assert (status, problem["type"]) == (408, "urn:fencepost:request-timeout")
        assert counted(server, "fencepost_reaped_total") == 1


def test_a_client_that_sends_a_header_byte_by_byte_does_not_gain_time(tmp_path: Path) -> None:
    with running(tmp_path, request_timeout_s=0.5) as server:
        connection = connect(server, b"GET /v1/head HTTP/1.1\r\nX-Slow: ")

        def trickle() -> bool:
            try:
                connection.sendall(b"x")
            except OSError:
                return True
            return False

        wait_until(trickle)


def test_a_client_that_sends_nothing_is_disconnected(tmp_path: Path) -> None:
    with running(tmp_path, request_timeout_s=0.3) as server:
        assert connect(server).recv(1) == b""
        assert counted(server, "fencepost_reaped_total") == 1


def test_a_client_that_does_not_finish_its_body_is_answered_with_408(tmp_path: Path) -> None:
    head = b"POST /v1/append HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{"
    with running(tmp_path, request_timeout_s=0.3) as server:
        status, problem = answered(connect(server, head))
        assert (status, problem["type"]) == (408, "urn:fencepost:request-timeout")
        assert counted(server, "fencepost_reaped_total") == 1
        assert httpx.get(f"{server.url}/v1/head").json() == {"head": 0}


def test_endless_headers_are_answered_with_431(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        connection = connect(server, b"GET /v1/head HTTP/1.1\r\n")

        def send() -> None:
            try:
                for number in range(2_000):
                    connection.sendall(b"X-%d: %b\r\n" % (number, b"x" * 1_000))
            except OSError:
                return

        sending = threading.Thread(target=send)
        sending.start()
        sending.join(SOON_S)
        assert not sending.is_alive()
        assert counted(server, 'fencepost_refused_total{limit="head_bytes"}') == 1


def test_what_is_not_http_is_answered_with_a_problem(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        status, problem = answered(connect(server, b"\x16\x03\x01 hello\r\n\r\n"))
        assert (status, problem["type"]) == (400, "urn:fencepost:bad-request")


@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_above_the_limit_is_answered_with_413(tmp_path: Path, chunked: bool) -> None:
    with running(tmp_path, max_body_bytes=10_000) as server:
        body = b"x" * 10_001
        refused = httpx.post(f"{server.url}/v1/append", content=iter([body]) if chunked else body)
        assert refused.status_code == 413
        assert (refused.json()["field"], refused.json()["limit"]) == ("body", 10_000)
        assert counted(server, 'fencepost_refused_total{limit="max_body_bytes"}') == 1


def test_connections_above_the_limit_are_refused_and_the_others_are_not_disturbed(tmp_path: Path) -> None:
    with running(tmp_path, max_connections=3) as server, ExitStack() as opened:
        first = opened.enter_context(httpx.Client(base_url=server.url))
        assert first.get("/v1/head").status_code == 200
        for _ in range(2):
            opened.enter_context(connect(server))
        refused = httpx.get(f"{server.url}/v1/head")
        assert (refused.status_code, refused.json()["type"]) == (503, "urn:fencepost:busy")
        assert (refused.headers["retry-after"], refused.headers["connection"]) == ("1", "close")
        assert first.get("/v1/head").status_code == 200
        assert counted(server, 'fencepost_refused_total{limit="max_connections"}') == 1


def test_requests_above_the_limit_are_refused(tmp_path: Path) -> None:
    head = b"POST /v1/append HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{"
    with running(tmp_path, max_requests=2) as server, ExitStack() as opened:
        for _ in range(2):
            opened.enter_context(connect(server, head))
        wait_until(lambda: counted(server, "fencepost_requests_in_flight") == 2)
        refused = httpx.get(f"{server.url}/v1/head")
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
        assert httpx.get(f"{server.url}/healthz").status_code == 200
        assert counted(server, 'fencepost_refused_total{limit="max_requests"}') == 1


def test_subscriptions_above_the_limit_are_refused_and_one_that_ends_makes_room(tmp_path: Path) -> None:
    with running(tmp_path, max_subscriptions=2, heartbeat_s=600) as server, ExitStack() as opened:
        for _ in range(2):
            subscription = httpx.stream("GET", f"{server.url}/v1/subscribe")
            opened.enter_context(subscription)
        refused = httpx.get(f"{server.url}/v1/subscribe")
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
        assert httpx.get(f"{server.url}/v1/head?after=9&wait_s=1").status_code == 503
        assert counted(server, 'fencepost_refused_total{limit="max_subscriptions"}') == 2
        opened.close()
        wait_until(lambda: counted(server, "fencepost_subscriptions") == 0)


def test_a_client_that_stops_waiting_for_a_head_makes_room(tmp_path: Path) -> None:
    with running(tmp_path, max_wait_s=600) as server:
        connection = connect(server, b"GET /v1/head?after=9&wait_s=600 HTTP/1.1\r\nHost: localhost\r\n\r\n")
        wait_until(lambda: counted(server, "fencepost_subscriptions") == 1)
        connection.close()
        wait_until(lambda: counted(server, "fencepost_subscriptions") == 0)
        wait_until(lambda: counted(server, 'fencepost_requests_total{path="/v1/head",status="499"}') == 1)


def test_the_rate_of_a_key_is_limited_over_both_interfaces(tmp_path: Path) -> None:
    key = add_key(tmp_path / "keys.json", "ada", rights=frozenset(Right)).secret
    other = add_key(tmp_path / "keys.json", "bob", rights=frozenset(Right)).secret
    port = free_port()
    with running(tmp_path, keys=str(tmp_path / "keys.json"), requests_per_second=20, grpc_port=port) as server:
        with httpx.Client(base_url=server.url, headers={"Authorization": f"Bearer {key}"}) as http:
            wait_until(lambda: http.get("/v1/head").status_code == 429)
            while (refused := http.get("/v1/head")).status_code != 429:
                pass
        assert (refused.json()["type"], refused.headers["retry-after"]) == ("urn:fencepost:rate-limited", "1")
        assert httpx.get(f"{server.url}/v1/head", headers={"Authorization": f"Bearer {other}"}).status_code == 200
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            call = channel.unary_unary(
                "/umadb.v1.DCB/Head", lambda message: message.SerializeToString(), messages.HeadResponse.FromString
            )

            def refused_by_grpc() -> bool:
                try:
                    call(messages.HeadRequest(), metadata=[("authorization", f"Bearer {key}")])
                except grpc.RpcError as error:
                    return bool(error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED)
                return False

            while not refused_by_grpc():
                pass
        assert counted(server, 'fencepost_refused_total{limit="requests_per_second"}') >= 3


def test_bodies_in_flight_take_no_more_memory_than_the_limit(tmp_path: Path) -> None:
    head = b"POST /v1/append HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n"
    with running(tmp_path, max_body_memory_bytes=2_500_000) as server, ExitStack() as opened:
        for _ in range(2):
            opened.enter_context(connect(server, head + b" " * 999_999))
        wait_until(lambda: counted(server, "fencepost_requests_in_flight") == 2)
        refused = httpx.post(f"{server.url}/v1/append", content=b" " * 1_000_000)
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
        assert httpx.post(f"{server.url}/v1/append", json={"events": [{"type": "T"}]}).status_code == 200
        assert counted(server, 'fencepost_refused_total{limit="max_body_memory_bytes"}') == 1


def test_a_client_that_does_not_read_its_answer_is_disconnected(tmp_path: Path) -> None:
    with running(tmp_path, stalled_client_s=0.5) as server:
        events = [{"type": "T", "data": "x" * 500_000} for _ in range(20)]
        assert httpx.post(f"{server.url}/v1/append", json={"events": events}, timeout=SOON_S).status_code == 200
        for path in ("/v1/events", "/v1/subscribe"):
            reaped = counted(server, "fencepost_reaped_total")
            with connect(server) as connection:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
                connection.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
                wait_until(lambda before=reaped: counted(server, "fencepost_reaped_total") == before + 1)  # type: ignore[misc]
        wait_until(lambda: counted(server, "fencepost_requests_in_flight") == 0)


def test_a_slow_reader_that_goes_on_reading_is_not_disconnected(tmp_path: Path) -> None:
    with running(tmp_path, stalled_client_s=1.0) as server:
        events = [{"type": "T", "data": "x" * 500_000} for _ in range(15)]
        assert httpx.post(f"{server.url}/v1/append", json={"events": events}, timeout=SOON_S).status_code == 200
        received = 0
        with connect(server) as connection:
            connection.sendall(b"GET /v1/events HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            while part := connection.recv(400_000):
                received += len(part)
                time.sleep(0.05)
        assert received > 15 * 500_000
        assert counted(server, "fencepost_reaped_total") == 0


def test_memory_is_bounded_while_many_clients_send_large_bodies(tmp_path: Path) -> None:
    """64 clients send 8 MB each to a server that may hold 40 MB of bodies: each is stored or told to come again."""
    store = tmp_path / "wallet.db"
    body = json.dumps({"events": [{"type": "T", "data": "x" * 900_000} for _ in range(9)]}).encode()
    statuses: list[int] = []
    fencepost.open(store, create=True).close()
    with ServerProcess(store, "--max-body-memory-bytes", "40000000") as server:

        def send() -> None:
            statuses.append(httpx.post(f"{server.url}/v1/append", content=body, timeout=60).status_code)

        httpx.post(f"{server.url}/v1/append", content=body, timeout=60)
        clients = [threading.Thread(target=send) for _ in range(64)]
        for client in clients:
            client.start()
        for client in clients:
            client.join(120)
        peak_kb = next(
            int(line.split()[1])
            for line in Path(f"/proc/{server.process.pid}/status").read_text().splitlines()
            if line.startswith("VmHWM")
        )
        stored = httpx.get(f"{server.url}/v1/head").json()["head"]
    assert len(statuses) == 64
    assert set(statuses) <= {200, 503}
    assert stored == 9 * (1 + statuses.count(200))
    assert peak_kb < 600_000


def test_calls_over_grpc_are_counted(tmp_path: Path) -> None:
    port = free_port()
    with running(tmp_path, grpc_port=port) as server, umadb.Client(f"http://127.0.0.1:{port}") as client:
        event = umadb.Event(event_type="Opened", data=b"{}", tags=["wallet:w1"])
        condition = umadb.AppendCondition(fail_if_events_match=umadb.Query(items=[umadb.QueryItem(types=["Opened"])]))
        client.append([event], condition)
        with pytest.raises(umadb.IntegrityError):
            client.append([event], condition)
        assert len(list(client.read())) == 1
        assert counted(server, 'fencepost_requests_total{path="umadb/Append",status="OK"}') == 1
        assert counted(server, 'fencepost_requests_total{path="umadb/Append",status="FAILED_PRECONDITION"}') == 1
        assert counted(server, 'fencepost_conflicts_total{boundary="1 item: types"}') == 1
        assert counted(server, "fencepost_events_appended_total") == 1
        assert counted(server, "fencepost_events_read_total") == 1


def test_the_size_of_the_store_is_measured(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        assert counted(server, "fencepost_store_bytes") >= (tmp_path / "wallet.db").stat().st_size > 0


def keyed(folder: Path, *names: str) -> dict[str, dict[str, str]]:
    """A file of keys with these names, and the headers for each."""
    made = {name: add_key(folder / "keys.json", name, rights=frozenset(Right)).secret for name in names}
    return {name: {"Authorization": f"Bearer {secret}"} for name, secret in made.items()}


def test_slow_uploads_of_one_key_do_not_refuse_requests_of_another(tmp_path: Path) -> None:
    """What is announced takes no memory until it arrives, and one key takes at most its share of what there is."""
    headers = keyed(tmp_path, "slow", "other")
    head = (
        "POST /v1/append HTTP/1.1\r\nHost: localhost\r\nContent-Length: 90000000\r\n"
        f"Authorization: {headers['slow']['Authorization']}\r\n\r\n"
    ).encode()
    with (
        running(tmp_path, keys=str(tmp_path / "keys.json"), max_body_memory_bytes=2_000_000, max_requests=8) as server,
        ExitStack() as opened,
    ):
        for _ in range(4):
            opened.enter_context(connect(server, head + b" " * 1_000))
        wait_until(lambda: counted(server, "fencepost_requests_in_flight") == 4)
        body = json.dumps({"events": [{"type": "T", "data": "x" * 900_000}]})
        assert httpx.post(f"{server.url}/v1/append", content=body, headers=headers["other"]).status_code == 200
        assert httpx.get(f"{server.url}/v1/head", headers=headers["slow"]).status_code == 503
        assert counted(server, 'fencepost_refused_total{limit="max_requests"}') == 1


def test_clients_that_do_not_read_their_answers_hold_no_more_memory_than_the_limit(tmp_path: Path) -> None:
    with (
        running(tmp_path, max_body_memory_bytes=20_000_000, max_body_bytes=20_000_000) as server,
        ExitStack() as opened,
    ):
        events = [{"type": "T", "data": "x" * 500_000} for _ in range(16)]
        assert httpx.post(f"{server.url}/v1/append", json={"events": events}, timeout=SOON_S).status_code == 200
        for _ in range(4):
            connection = opened.enter_context(connect(server))
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            connection.sendall(b"GET /v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        wait_until(lambda: counted(server, 'fencepost_refused_total{limit="max_body_memory_bytes"}') >= 1)
        assert httpx.get(f"{server.url}/v1/head").status_code == 200


def test_an_address_has_its_share_of_the_connections(tmp_path: Path) -> None:
    headers = keyed(tmp_path, "ada")
    with running(tmp_path, keys=str(tmp_path / "keys.json"), max_connections=4) as server, ExitStack() as opened:
        for _ in range(2):
            opened.enter_context(connect(server))
        wait_until(lambda: counted(server, "fencepost_connections") == 2)
        assert httpx.get(f"{server.url}/v1/head", headers=headers["ada"]).status_code == 503


def test_the_request_line_and_the_headers_may_have_64_kib_and_no_more(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        for size, status in ((60_000, 200), (66_000, 431)):
            sent = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nX: %b\r\n\r\n" % (b"x" * size)
            connection = connect(server, sent)
            assert int(connection.recv(65_536).split()[1]) == status


def test_a_tls_handshake_that_is_not_finished_ends_and_is_limited(
    tmp_path: Path,
    certificates: Certificates,  # noqa: F811
) -> None:
    with (
        serving_tls(tmp_path, certificates, request_timeout_s=0.5, max_connections=2) as server,
        ExitStack() as opened,
    ):
        silent = [opened.enter_context(connect(server)) for _ in range(8)]
        for connection in silent:
            assert connection.recv(1) == b""
        assert counted(server, 'fencepost_refused_total{limit="max_connections"}') == 4
        # The connection is closed a moment before the server counts it.
        wait_until(lambda: counted(server, "fencepost_reaped_total") == 4)
        with httpx.Client(verify=False) as http:
            assert http.get(f"{server.url}/healthz").status_code == 200
