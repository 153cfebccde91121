"""The HTTP/2 connections of the gRPC interface: what a client may do, and what it may not."""

from __future__ import annotations

import gzip
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from struct import pack
from typing import Any

import pytest
from hpack import Decoder, Encoder
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import fencepost
from fencepost import Event
from fencepost.server.http2 import frames
from fencepost.server.http2.blocks import Blocks, block_of
from fencepost.server.http2.connection import MAX_RESETS_PER_S, STREAM_WINDOW
from fencepost.server.http2.frames import END_HEADERS, END_STREAM, PADDED, PRIORITIZED, Violation, frame
from fencepost.server.http2.statuses import DEADLINE_EXCEEDED, INTERNAL, OK, RESOURCE_EXHAUSTED, UNAVAILABLE
from fencepost.server.umadb import messages

from .http2_client import ANSWERS_S, APPEND, HEAD, READ, SUBSCRIBE, FrameClient, append_request, prefixed
from .running import RunningServer, ServerProcess, free_port

NOTHING = prefixed(b"")
MAX_BODY = 50_000


def running(**changed: Any) -> RunningServer:
    return RunningServer("memory:", **{"grpc_port": free_port(), "max_body_bytes": MAX_BODY, **changed})


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with running() as started:
        yield started


@pytest.fixture
def client(server: RunningServer) -> Iterator[FrameClient]:
    with FrameClient(server.settings.grpc_port) as connected:
        yield connected


def eventually(holds: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + ANSWERS_S
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def still_answers(server: RunningServer) -> bool:
    with FrameClient(server.settings.grpc_port) as other:
        return other.call(HEAD, NOTHING).status == OK


def test_a_call_is_answered_with_headers_a_message_and_a_status(client: FrameClient) -> None:
    answer = client.call(APPEND, append_request())
    assert answer.headers[":status"] == "200"
    assert answer.headers["content-type"] == "application/grpc"
    assert answer.status == OK
    assert messages.AppendResponse.FromString(answer.data[5:]).position > 0


def test_calls_are_answered_whatever_pieces_their_bytes_arrive_in(server: RunningServer) -> None:
    for size in (1, 2, 7, 30):
        with FrameClient(server.settings.grpc_port, greet=False) as client:
            whole = frames.PREFACE + frames.settings_frame({}) + client.call_bytes(APPEND, append_request())
            for start in range(0, len(whole), size):
                client.send(whole[start : start + size])
            assert client.answer(1).status == OK


def test_several_calls_of_one_connection_are_answered_independently(client: FrameClient) -> None:
    client.send(b"".join(client.call_bytes(APPEND, append_request()) for _ in range(20)))
    ended = set()
    while len(ended) < 20:
        found = client.frame()
        assert found is not None
        if found.kind == frames.HEADERS and found.flags & END_STREAM:
            ended.add(found.stream)
    assert ended == set(range(1, 41, 2))


def test_headers_may_be_padded_prioritized_and_continued(client: FrameClient) -> None:
    block = client.block(HEAD)
    id = client.next_id()
    first = bytes((3,)) + bytes(5) + block[:10] + b"pad"
    client.send(
        frame(frames.HEADERS, PADDED | PRIORITIZED, id, first)
        + frame(frames.CONTINUATION, 0, id, block[10:20])
        + frame(frames.CONTINUATION, END_HEADERS, id, block[20:])
        + frame(frames.DATA, PADDED | END_STREAM, id, bytes((2,)) + NOTHING + b"xx")
    )
    assert client.answer(id).status == OK


def test_a_request_may_end_with_trailers(client: FrameClient) -> None:
    id = client.next_id()
    client.send(
        frame(frames.HEADERS, END_HEADERS, id, client.block(HEAD))
        + frame(frames.DATA, 0, id, NOTHING)
        + frame(frames.HEADERS, END_HEADERS | END_STREAM, id, bytes(client.encoder.encode([("checksum", "1")])))
    )
    assert client.answer(id).status == OK


def test_a_request_may_be_compressed_with_gzip(client: FrameClient) -> None:
    content = messages.AppendRequest(events=[messages.Event(event_type="T")]).SerializeToString()
    packed = prefixed(gzip.compress(content), compressed=True)
    assert client.call(APPEND, packed, grpc_encoding="gzip").status == OK
    assert client.call(APPEND, packed, grpc_encoding="snappy").headers["grpc-status"] == "12"
    broken = prefixed(b"not gzip", compressed=True)
    assert client.call(APPEND, broken, grpc_encoding="gzip").status == INTERNAL
    cut = prefixed(gzip.compress(content)[:-4], compressed=True)
    assert client.call(APPEND, cut, grpc_encoding="gzip").status == INTERNAL
    bomb = prefixed(gzip.compress(bytes(MAX_BODY + 1)), compressed=True)
    assert client.call(APPEND, bomb, grpc_encoding="gzip").status == RESOURCE_EXHAUSTED


@pytest.mark.parametrize("body", [b"", b"\0\0", prefixed(b"x")[:-1], prefixed(b"") + b"more"])
def test_a_request_that_is_not_one_message_is_refused(client: FrameClient, body: bytes) -> None:
    assert client.call(HEAD, body).status == INTERNAL


def test_a_message_that_cannot_be_decoded_is_refused(client: FrameClient) -> None:
    answer = client.call(APPEND, prefixed(b"\xff\xff"))
    assert answer.headers["grpc-status"] == "3"


def test_a_call_that_does_not_exist_is_unimplemented(client: FrameClient) -> None:
    assert client.call("/umadb.v1.DCB/Destroy", NOTHING).headers["grpc-status"] == "12"


def test_requests_that_are_not_grpc_get_an_http_status(client: FrameClient) -> None:
    client.send(
        frame(frames.HEADERS, END_HEADERS | END_STREAM, client.next_id(), client.block("/", **{":method": "GET"}))
    )
    assert client.answer(client.last_id).headers[":status"] == "405"
    assert client.call(HEAD, NOTHING, content_type="application/json").headers[":status"] == "415"


def test_a_ping_is_answered_and_settings_are_acknowledged(client: FrameClient) -> None:
    assert client.wait_for(frames.SETTINGS).flags == 0
    assert client.wait_for(frames.SETTINGS).flags == frames.ACK
    client.send(frame(frames.PING, 0, 0, b"12345678"))
    found = client.wait_for(frames.PING)
    assert (found.flags, found.payload) == (frames.ACK, b"12345678")


def test_frames_of_unknown_kinds_and_priorities_are_ignored(client: FrameClient) -> None:
    client.send(frame(0xEE, 0xFF, 1, b"?") + frame(frames.PRIORITY, 0, 1, bytes(5)))
    client.send(frame(frames.GOAWAY, 0, 0, bytes(8)))
    assert client.call(HEAD, NOTHING).status == OK


def test_no_more_is_sent_than_the_windows_allow() -> None:
    with (
        running() as server,
        FrameClient(server.settings.grpc_port, settings={frames.INITIAL_WINDOW_SIZE: 10}) as client,
    ):
        engine_events = [Event("T", data=bytes([number]) * 30) for number in range(40)]
        for event in engine_events:
            assert client.call(APPEND, append_request(event.data)).status == OK
        client.send(client.call_bytes(READ, NOTHING))
        id, window, data = client.last_id, 10, b""
        while True:
            found = client.frame()
            assert found is not None
            if found.stream == id and found.kind == frames.DATA:
                window -= len(found.payload)
                data += found.payload
                assert window >= 0
                if window == 0:
                    client.send(frames.window_update(id, 7))
                    window = 7
            elif found.stream == id and found.flags & END_STREAM:
                break
        response = messages.ReadResponse.FromString(data[5:])
        assert [each.event.data for each in response.events] == [event.data for event in engine_events]


def test_a_larger_first_window_opens_the_calls_that_wait(server: RunningServer) -> None:
    with FrameClient(server.settings.grpc_port, settings={frames.INITIAL_WINDOW_SIZE: 0}) as client:
        client.send(client.call_bytes(APPEND, append_request()))
        client.wait_for(frames.HEADERS, client.last_id)
        client.send(frames.settings_frame({frames.INITIAL_WINDOW_SIZE: 1_000}))
        assert client.wait_for(frames.DATA, client.last_id).payload


def test_a_large_request_arrives_while_its_windows_are_opened() -> None:
    with running(max_body_bytes=3 * STREAM_WINDOW) as server, FrameClient(server.settings.grpc_port) as client:
        large = bytes(900_000)
        body = prefixed(
            messages.AppendRequest(
                events=[messages.Event(event_type="T", data=large), messages.Event(event_type="T", data=large)]
            ).SerializeToString()
        )
        id = client.next_id()
        client.send(frame(frames.HEADERS, END_HEADERS, id, client.block(APPEND)))
        sent, allowed = 0, STREAM_WINDOW
        while sent < len(body):
            size = min(16_384, allowed - sent, len(body) - sent)
            if size == 0:
                update = client.wait_for(frames.WINDOW_UPDATE, id)
                allowed += int.from_bytes(update.payload)
                continue
            last = sent + size == len(body)
            client.send(frame(frames.DATA, END_STREAM if last else 0, id, body[sent : sent + size]))
            sent += size
        assert client.answer(id).status == OK


LARGE_FRAME = frames.head_of(frames.DATA, 0, 1, 16_385) + bytes(16_385)


@pytest.mark.parametrize(
    ("broken", "code"),
    [
        (frame(frames.HEADERS, END_HEADERS, 2, b""), frames.PROTOCOL_ERROR),
        (frame(frames.HEADERS, END_HEADERS, 0, b""), frames.PROTOCOL_ERROR),
        (frame(frames.HEADERS, END_HEADERS, 1, b"\xff\xff\xff\xff\xff\xff"), frames.COMPRESSION_ERROR),
        (frame(frames.HEADERS, END_HEADERS, 1, b"\xbe"), frames.COMPRESSION_ERROR),
        (frame(frames.HEADERS, END_HEADERS, 1, b"\x40\x85"), frames.COMPRESSION_ERROR),
        (frame(frames.HEADERS, END_HEADERS | PRIORITIZED, 1, b"123"), frames.FRAME_SIZE_ERROR),
        (frame(frames.HEADERS, END_HEADERS | PADDED, 1, b"\x09123"), frames.PROTOCOL_ERROR),
        (frame(frames.HEADERS, END_HEADERS | PADDED, 1, b""), frames.PROTOCOL_ERROR),
        (frame(frames.HEADERS, 0, 1, b"") + frame(frames.PING, 0, 0, bytes(8)), frames.PROTOCOL_ERROR),
        (frame(frames.HEADERS, 0, 1, b"") + frame(frames.CONTINUATION, 0, 3, b""), frames.PROTOCOL_ERROR),
        (frame(frames.HEADERS, 0, 1, b"") + 20 * frame(frames.CONTINUATION, 0, 1, b""), frames.ENHANCE_YOUR_CALM),
        (
            frame(frames.HEADERS, 0, 1, b"") + 3 * frame(frames.CONTINUATION, 0, 1, bytes(16_000)),
            frames.ENHANCE_YOUR_CALM,
        ),
        (frame(frames.CONTINUATION, 0, 1, b""), frames.PROTOCOL_ERROR),
        (frame(frames.PUSH_PROMISE, 0, 1, b""), frames.PROTOCOL_ERROR),
        (frame(frames.DATA, 0, 1, b""), frames.PROTOCOL_ERROR),
        (frame(frames.DATA, 0, 0, b""), frames.PROTOCOL_ERROR),
        (LARGE_FRAME, frames.FRAME_SIZE_ERROR),
        (frame(frames.RST_STREAM, 0, 1, bytes(4)), frames.PROTOCOL_ERROR),
        (frame(frames.RST_STREAM, 0, 1, bytes(3)), frames.FRAME_SIZE_ERROR),
        (frame(frames.PING, 0, 0, bytes(7)), frames.FRAME_SIZE_ERROR),
        (frame(frames.SETTINGS, 0, 0, bytes(5)), frames.FRAME_SIZE_ERROR),
        (frame(frames.SETTINGS, 0, 1, b""), frames.PROTOCOL_ERROR),
        (frames.settings_frame({frames.INITIAL_WINDOW_SIZE: 2**31}), frames.FLOW_CONTROL_ERROR),
        (frames.settings_frame({frames.MAX_FRAME_SIZE: 1}), frames.PROTOCOL_ERROR),
        (frames.settings_frame({frames.ENABLE_PUSH: 2}), frames.PROTOCOL_ERROR),
        (frames.window_update(0, 0), frames.PROTOCOL_ERROR),
        (frames.window_update(1, 1), frames.PROTOCOL_ERROR),
        (frames.window_update(0, 2**31 - 1), frames.FLOW_CONTROL_ERROR),
        (frame(frames.WINDOW_UPDATE, 0, 0, b"1"), frames.FRAME_SIZE_ERROR),
    ],
)
def test_a_violation_ends_the_connection_with_its_reason_and_no_other(
    server: RunningServer, client: FrameClient, broken: bytes, code: int
) -> None:
    client.send(broken)
    assert client.goaway() == code
    assert client.is_closed()
    assert still_answers(server)


@pytest.mark.parametrize(
    "greeting", [b"GET / HTTP/1.1\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nXX", frames.PREFACE + bytes(9)]
)
def test_a_client_that_does_not_speak_http2_is_disconnected(server: RunningServer, greeting: bytes) -> None:
    with FrameClient(server.settings.grpc_port, greet=False) as client:
        client.send(greeting)
        assert client.goaway() == frames.PROTOCOL_ERROR
        assert client.is_closed()
    assert still_answers(server)


@pytest.mark.parametrize(
    ("broken", "code"),
    [
        (lambda id: frames.window_update(id, 2**31 - 1), frames.FLOW_CONTROL_ERROR),
        (lambda id: frames.window_update(id, 0), frames.PROTOCOL_ERROR),
        (lambda id: frame(frames.DATA, 0, id, b"more"), frames.STREAM_CLOSED),
    ],
)
def test_a_violation_of_one_call_resets_that_call_alone(
    client: FrameClient, broken: Callable[[int], bytes], code: int
) -> None:
    client.send(client.call_bytes(SUBSCRIBE, prefixed(messages.SubscribeRequest(after=2**40).SerializeToString())))
    id = client.last_id
    client.send(broken(id))
    assert client.wait_for(frames.RST_STREAM, id).payload == pack(">I", code)
    assert client.call(HEAD, NOTHING).status == OK


def test_a_request_that_is_too_large_is_refused_before_it_has_arrived(client: FrameClient) -> None:
    id = client.next_id()
    client.send(frame(frames.HEADERS, END_HEADERS, id, client.block(APPEND)))
    client.send(4 * frame(frames.DATA, 0, id, bytes(16_000)))
    assert client.answer(id).status == RESOURCE_EXHAUSTED
    assert client.call(HEAD, NOTHING).status == OK


def test_memory_for_bodies_is_given_back_however_a_call_ends() -> None:
    with running(max_body_memory_bytes=40_000) as server:
        for _ in range(3):
            with FrameClient(server.settings.grpc_port) as client:
                id = client.next_id()
                client.send(frame(frames.HEADERS, END_HEADERS, id, client.block(APPEND)))
                client.send(2 * frame(frames.DATA, 0, id, bytes(14_000)))
                assert client.call(APPEND, append_request(bytes(14_000))).status == RESOURCE_EXHAUSTED
                client.send(frames.reset(id, frames.CANCEL))
                assert client.call(APPEND, append_request(bytes(14_000))).status == OK
                hanging = client.next_id()
                client.send(frame(frames.HEADERS, END_HEADERS, hanging, client.block(APPEND)))
                client.send(2 * frame(frames.DATA, 0, hanging, bytes(14_000)))
                assert client.call(HEAD, NOTHING).status == OK
        with FrameClient(server.settings.grpc_port) as client:  # the connections were closed with a request half sent
            assert eventually(lambda: client.call(APPEND, append_request(bytes(14_000))).status == OK)


def test_requests_that_do_not_arrive_are_reaped() -> None:
    with running(request_timeout_s=0.3) as server:
        with FrameClient(server.settings.grpc_port, greet=False) as silent:
            assert silent.is_closed()
        with FrameClient(server.settings.grpc_port) as client:
            id = client.next_id()
            client.send(frame(frames.HEADERS, END_HEADERS, id, client.block(APPEND)))
            assert client.answer(id).reset == frames.CANCEL
            assert client.call(HEAD, NOTHING).status == OK


def test_a_connection_above_the_limit_is_refused() -> None:
    with running(max_connections=1) as server, FrameClient(server.settings.grpc_port) as first:
        assert first.call(HEAD, NOTHING).status == OK
        with FrameClient(server.settings.grpc_port) as second:
            assert second.goaway() == frames.ENHANCE_YOUR_CALM
        assert first.call(HEAD, NOTHING).status == OK
        first.close()
        assert eventually(lambda: not server.app or still_connects(server))


def still_connects(server: RunningServer) -> bool:
    with FrameClient(server.settings.grpc_port) as client:
        client.send(client.call_bytes(HEAD, NOTHING))
        while (found := client.frame()) is not None:
            if found.kind == frames.HEADERS:
                return True
        return False


def test_a_call_above_the_limit_of_calls_is_refused_and_can_be_repeated() -> None:
    with running(max_requests=1, max_subscriptions=1) as server, FrameClient(server.settings.grpc_port) as client:
        for _ in range(2):
            client.send(frame(frames.HEADERS, END_HEADERS, client.next_id(), client.block(APPEND)))
        client.send(client.call_bytes(HEAD, NOTHING))
        assert client.answer(client.last_id).reset == frames.REFUSED_STREAM
        client.send(frames.reset(1, frames.CANCEL))
        assert client.call(HEAD, NOTHING).status == OK


def test_a_client_that_resets_calls_as_fast_as_it_begins_them_is_disconnected(client: FrameClient) -> None:
    for _ in range(3):  # the count begins again with each second
        calls = [
            client.call_bytes(HEAD, NOTHING) + frames.reset(client.last_id, frames.CANCEL)
            for _ in range(MAX_RESETS_PER_S + 1)
        ]
        try:
            client.send(b"".join(calls))
        except ConnectionError:
            break
    assert client.goaway() == frames.ENHANCE_YOUR_CALM


def test_a_client_that_does_not_read_is_disconnected() -> None:
    with running(stalled_client_s=0.2, max_body_bytes=1_000_000) as server:
        settings = {frames.INITIAL_WINDOW_SIZE: 2**31 - 1}
        with FrameClient(server.settings.grpc_port, settings=settings) as client:
            client.send(frames.window_update(0, 2**30))
            for _ in range(20):
                assert client.call(APPEND, append_request(bytes(800_000))).status == OK
            client.send(client.call_bytes(READ, NOTHING))
            assert server.app is not None
            assert eventually(lambda: b"fencepost_reaped_total 1" in server.app.metrics.text())


def test_a_deadline_ends_a_call(client: FrameClient) -> None:
    request = prefixed(messages.SubscribeRequest(after=2**40).SerializeToString())
    assert client.call(SUBSCRIBE, request, grpc_timeout="50m").status == DEADLINE_EXCEEDED
    assert client.call(HEAD, NOTHING, grpc_timeout="20S").status == OK


def test_a_subscription_ends_when_its_client_resets_it_or_goes(server: RunningServer) -> None:
    app = server.app
    assert app is not None
    with FrameClient(server.settings.grpc_port) as client:
        for _ in range(2):
            client.send(
                client.call_bytes(SUBSCRIBE, prefixed(messages.SubscribeRequest(after=2**40).SerializeToString()))
            )
        assert eventually(lambda: app.streams.count == 2)
        client.send(frames.reset(client.last_id, frames.CANCEL))
        assert eventually(lambda: app.streams.count == 1)
    assert eventually(lambda: app.streams.count == 0)


def test_a_server_that_stops_ends_subscriptions_and_says_that_it_goes() -> None:
    server = running()
    with FrameClient(server.settings.grpc_port) as client:
        client.send(client.call_bytes(SUBSCRIBE, prefixed(messages.SubscribeRequest(after=2**40).SerializeToString())))
        assert server.app is not None
        assert eventually(lambda: server.app is not None and server.app.streams.count == 1)
        id = client.last_id
        server.stop()
        assert client.answer(id).status == UNAVAILABLE
        assert any(found.kind == frames.GOAWAY for found in client.seen)
        assert client.is_closed()


names = st.sampled_from(["a", "b", "authorization", "x" * 40])
fields = st.lists(st.tuples(names, st.sampled_from(["", "1", "2", "y" * 60])), max_size=5)


@given(st.lists(st.tuples(fields, st.sampled_from([None, 0, 64, 200, 4_096])), max_size=12))
def test_remembered_headers_are_those_that_a_decoder_finds(
    sent: list[tuple[list[tuple[str, str]], int | None]],
) -> None:
    encoder, plain, blocks = Encoder(), Decoder(), Blocks()
    for given_fields, size in sent:
        if size is not None:
            encoder.header_table_size = size
        block = bytes(encoder.encode(given_fields))
        assert blocks.decode(block).headers == dict(plain.decode(block))


def test_a_table_that_was_emptied_makes_remembered_headers_unknown() -> None:
    encoder, blocks = Encoder(), Blocks()
    blocks.decode(bytes(encoder.encode([("a", "1")])))
    by_number = bytes(encoder.encode([("a", "1")]))
    assert blocks.decode(by_number) is blocks.decode(by_number)
    blocks.decode(b"\x20\x3f\xe1\x1f")  # the size 0, then 4,096 again
    with pytest.raises(Violation):
        blocks.decode(by_number)


@given(st.lists(st.tuples(st.binary(min_size=1, max_size=300), st.binary(max_size=300)), max_size=3))
def test_headers_are_encoded_as_a_decoder_expects(fields: list[tuple[bytes, bytes]]) -> None:
    assert [tuple(field) for field in Decoder().decode(block_of(fields), raw=True)] == fields


some_frames = st.lists(
    st.builds(
        frame,
        st.integers(0, 10),
        st.integers(0, 255),
        st.integers(0, 6),
        st.one_of(
            st.binary(max_size=20), st.sampled_from([NOTHING, append_request(), bytes(4), bytes(8), b"\x83\x86"])
        ),
    ),
    max_size=8,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60)
@given(before=st.sampled_from(["nothing", "greeting", "call"]), sent=some_frames, junk=st.binary(max_size=30))
def test_no_bytes_harm_the_server(
    server: RunningServer, caplog: pytest.LogCaptureFixture, before: str, sent: list[bytes], junk: bytes
) -> None:
    with FrameClient(server.settings.grpc_port, greet=before != "nothing") as client:
        if before == "call":
            client.send(frame(frames.HEADERS, END_HEADERS, client.next_id(), client.block(APPEND)))
        client.send(b"".join(sent) + junk)
        client.socket.shutdown(1)
        assert client.is_closed()
    assert still_answers(server)
    assert [record for record in caplog.records if record.levelname in ("ERROR", "CRITICAL")] == []


def test_uvloop_serves_the_same_calls(tmp_path: Path) -> None:
    fencepost.open(tmp_path / "log.db").close()
    port = free_port()
    with ServerProcess(tmp_path / "log.db", "--grpc-port", str(port)), FrameClient(port) as client:
        for number in range(1, 4):
            answer = client.call(APPEND, append_request())
            assert messages.AppendResponse.FromString(answer.data[5:]).position == number
        assert len(messages.ReadResponse.FromString(client.call(READ, NOTHING).data[5:]).events) == 3
