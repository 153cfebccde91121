"""How calls over gRPC are admitted, limited and ended. tests/server/test_umadb.py has what they answer."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from fencepost import StoreUnavailable
from fencepost.engine import open_engine
from fencepost.server.access import Right
from fencepost.server.keys import add_key, revoke_key
from fencepost.server.umadb import protobuf
from fencepost.testing.faults import FaultyEngine, raising

from .running import RunningServer, free_port

SOON_S = 20.0


class Running:
    """A server with keys, and a channel to it."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.keys = folder / "keys.json"
        self.secret = add_key(self.keys, "ada", rights=frozenset({Right.READ, Right.APPEND})).secret
        self.reader = add_key(self.keys, "bob", rights=frozenset({Right.READ})).secret
        port = free_port()
        self.server = RunningServer("memory:", keys=str(self.keys), grpc_port=port, **settings)
        self.channel = grpc.insecure_channel(
            f"127.0.0.1:{port}", options=[("grpc.max_send_message_length", -1), ("grpc.enable_retries", 0)]
        )

    def call(self, name: str, message: bytes = b"", key: str | None = None, **options: Any) -> bytes:
        made: bytes = self.channel.unary_unary(f"/umadb.v1.DCB/{name}")(
            message, metadata=[("authorization", f"Bearer {key or self.secret}")], timeout=SOON_S, **options
        )
        return made

    def stream(self, name: str, message: bytes = b"") -> Any:
        return self.channel.unary_stream(f"/umadb.v1.DCB/{name}")(
            message, metadata=[("authorization", f"Bearer {self.secret}")], timeout=SOON_S
        )

    def health(self) -> int:
        check = self.channel.unary_unary("/grpc.health.v1.Health/Check")
        status: int = protobuf.HealthCheckResponse.FromString(check(b"", timeout=SOON_S)).status
        return status


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    made = Running(tmp_path)
    yield made
    made.channel.close()
    made.server.stop()


def status_of(call: Any) -> grpc.StatusCode:
    with pytest.raises(grpc.RpcError) as refused:
        call()
    code: grpc.StatusCode = refused.value.code()
    return code


def an_append(size: int) -> bytes:
    made: bytes = protobuf.AppendRequest(
        events=[protobuf.Event(event_type="T", data=bytes(1_000_000)) for _ in range(size // 1_000_000)]
    ).SerializeToString()
    return made


def test_a_message_above_the_limit_is_refused_also_if_it_is_small_until_it_is_unpacked(running: Running) -> None:
    assert running.call("Append", an_append(3_000_000), compression=grpc.Compression.Gzip)
    large = an_append(50_000_000)
    for compression in (grpc.Compression.NoCompression, grpc.Compression.Gzip):
        refused = status_of(lambda how=compression: running.call("Append", large, compression=how))
        assert refused is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert running.server.engine.head() == 3


@pytest.mark.parametrize(("key", "status"), [("fp_wrong", "UNAUTHENTICATED"), (None, "INVALID_ARGUMENT")])
def test_the_caller_is_checked_before_the_message_is_decoded(running: Running, key: str | None, status: str) -> None:
    assert status_of(lambda: running.call("Append", b"\xff", key=key)).name == status


def test_a_message_that_does_not_arrive_ends_the_call(tmp_path: Path) -> None:
    running = Running(tmp_path, request_timeout_s=0.3)
    never = threading.Event()

    def requests() -> Iterator[bytes]:
        never.wait(SOON_S)
        yield b""

    call = running.channel.stream_unary("/umadb.v1.DCB/Append")
    headers = [("authorization", f"Bearer {running.secret}")]
    assert status_of(lambda: call(requests(), metadata=headers, timeout=SOON_S)) is grpc.StatusCode.DEADLINE_EXCEEDED
    never.set()
    running.channel.close()
    running.server.stop()


def test_a_subscription_ends_with_unavailable_when_the_server_drains(running: Running) -> None:
    following = running.stream("Subscribe")
    following.initial_metadata()
    running.server.stop_soon()
    assert status_of(lambda: next(following)) is grpc.StatusCode.UNAVAILABLE


def test_a_subscription_of_a_revoked_key_ends(running: Running) -> None:
    following = running.stream("Subscribe")
    following.initial_metadata()
    revoke_key(running.keys, "ada")
    assert status_of(lambda: next(following)) is grpc.StatusCode.UNAUTHENTICATED


def test_health_says_whether_appends_are_stored(tmp_path: Path) -> None:
    faulty = FaultyEngine(open_engine("memory:"))
    running = Running(tmp_path, engine=faulty)
    assert running.health() == 1
    faulty.before = raising(StoreUnavailable("no space left on device"))
    assert status_of(lambda: running.call("Append", an_append(1_000_000))) is grpc.StatusCode.INTERNAL
    wait_for_health(running, 2)
    faulty.before = lambda: None
    wait_for_health(running, 1)
    running.channel.close()
    running.server.stop()


def wait_for_health(running: Running, status: int) -> None:
    pause = threading.Event()
    for _ in range(200):
        if running.health() == status:
            return
        pause.wait(0.1)
    raise AssertionError(f"the health does not become {status}")


def test_a_watch_of_the_health_says_that_the_server_drains_and_then_ends(running: Running) -> None:
    watch = running.channel.unary_stream("/grpc.health.v1.Health/Watch")(b"", timeout=SOON_S)
    assert protobuf.HealthCheckResponse.FromString(next(watch)).status == 1
    running.server.stop_soon()
    assert protobuf.HealthCheckResponse.FromString(next(watch)).status == 2
    assert status_of(lambda: next(watch)) is grpc.StatusCode.UNAVAILABLE


def test_health_watches_take_no_room_from_requests(tmp_path: Path) -> None:
    running = Running(tmp_path, max_requests=2, max_subscriptions=1)
    watch = running.channel.unary_stream("/grpc.health.v1.Health/Watch")(b"", timeout=SOON_S)
    next(watch)
    assert running.call("Head") == b""
    following = running.stream("Subscribe")
    following.initial_metadata()
    assert status_of(lambda: next(running.stream("Subscribe"))) is grpc.StatusCode.RESOURCE_EXHAUSTED
    watch.cancel()
    running.channel.close()
    running.server.stop()


def test_a_call_is_in_the_access_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    running = Running(tmp_path, access_log=True)
    with caplog.at_level(logging.INFO, "fencepost.server.requests"):
        running.call("Head")
        running.channel.close()
        running.server.stop()
    (line,) = [record for record in caplog.records if record.name == "fencepost.server.requests"]
    fields = line.fields  # type: ignore[attr-defined]
    assert (fields["method"], fields["path"], fields["status"]) == ("gRPC", "umadb/Head", "OK")
    assert running.secret not in json.dumps(fields)
