"""One connection: frames in and out, flow control, limits.

A call begins with its headers and starts to be answered when its request message is complete. What a client may make
the server hold is bounded: the bytes of requests by the memory for bodies, calls by `max_streams`, headers by their
size, answers by the client's windows, and what waits for the socket by `Output`. A client that resets calls as fast as
it begins them, or takes no byte for `stalled_client_s`, is disconnected.
tests/server/test_http2.py holds this with a client that speaks in frames.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from typing import TYPE_CHECKING, Final

from . import frames
from .blocks import Blocks
from .frames import FrameReader, Violation, frame, head_of
from .output import Output
from .statuses import DEADLINE_EXCEEDED, INTERNAL, RESOURCE_EXHAUSTED, UNAVAILABLE, timeout_s
from .streams import PREFIX, Stream

if TYPE_CHECKING:
    from .listening import Listener

log: Final = logging.getLogger("fencepost.server")

CONNECTION_WINDOW: Final = 16 * 2**20  # what a client may send before it hears from us
STREAM_WINDOW: Final = 2**20
MAX_RESETS_PER_S: Final = 1_000
BURST_BYTES: Final = 262_144  # of a message, in one write
# A client library reads ahead, so a stream whose window stays closed belongs to a slow program more often than to an
# attacker. It holds one message. So it may stay closed longer than the socket may stay full.
PATIENCE: Final = 10


class Connection(asyncio.Protocol):
    def __init__(self, host: Listener) -> None:
        self._host = host
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport
        self._output: Output
        self._blocks = Blocks()
        self._reader = FrameReader()
        self._last = 0  # the newest stream
        self._received = 0  # bytes since the connection's window was last opened
        self._window = frames.FIRST_WINDOW  # how much the client allows us to send, over all streams
        self._first_window = frames.FIRST_WINDOW  # of a new stream
        self._frame_bytes = frames.MAX_FRAME_BYTES  # what the client takes
        self._waiters: set[asyncio.Future[None]] = set()
        self._incomplete: set[Stream] = set()  # whose requests are arriving
        self._timer: asyncio.TimerHandle | None = None  # until the greeting
        self._resets: tuple[int, int] = (0, 0)  # the second, and how many calls were reset in it
        self._draining = False
        self.streams: dict[int, Stream] = {}

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        limits = self._host.settings
        self._transport = transport
        self._output = Output(transport, limits.stalled_client_s, self._host.count_reaped)
        self._host.connections.add(self)
        if len(self._host.connections) > limits.max_connections:
            self._host.count_refused("max_connections")
            self._close(frames.ENHANCE_YOUR_CALM, "too many connections")
            return
        opened = transport.get_extra_info("socket")
        if opened is not None:
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        settings = {
            frames.MAX_CONCURRENT_STREAMS: self._host.max_streams,
            frames.INITIAL_WINDOW_SIZE: STREAM_WINDOW,
            frames.MAX_HEADER_LIST_SIZE: 16_384,
        }
        opening = frames.window_update(0, CONNECTION_WINDOW - frames.FIRST_WINDOW)
        self.write(frames.settings_frame(settings) + opening)
        self._timer = self._loop.call_later(limits.request_timeout_s, self._output.reap)

    def connection_lost(self, exc: Exception | None) -> None:
        self._host.connections.discard(self)
        if self._timer is not None:
            self._timer.cancel()
        self._output.stop_watching()
        for stream in list(self.streams.values()):
            self._drop(stream)
        self._wake()

    def data_received(self, data: bytes) -> None:
        if self._transport.is_closing():
            return
        try:
            for kind, flags, id, payload in self._reader.feed(data):
                try:
                    self._take(kind, flags, id, payload)
                except Violation as violation:
                    if not violation.stream:
                        raise
                    if (broken := self.streams.get(violation.stream)) is not None:
                        self.reset(broken, violation.code)
                if self._transport.is_closing():
                    return
        except Violation as violation:
            self._close(violation.code, violation.detail)
            return
        if self._timer is not None and self._reader.greeted:
            self._timer.cancel()
            self._timer = None
        for stream in self._incomplete:
            if stream.late is None:
                stream.late = self._loop.call_later(self._host.settings.request_timeout_s, self._expire_request, stream)

    def pause_writing(self) -> None:
        self._output.pause()

    def resume_writing(self) -> None:
        self._output.resume()
        self._wake()

    def write(self, data: bytes) -> None:
        self._output.write(data)

    def reserve_window(self, size: int) -> bool:
        """Whether `size` bytes can be sent in one frame now. The connection's window is smaller afterwards."""
        if size > self._window or size > self._frame_bytes or self._output.paused:
            return False
        self._window -= size
        return True

    async def send_data(self, stream: Stream, data: bytes) -> None:
        """Send as fast as the windows and the socket allow."""
        left = memoryview(data)
        while left:
            if stream.closed:
                await asyncio.sleep(0)  # the task has been cancelled
                return
            room = min(self._window, stream.window, BURST_BYTES, len(left))
            if room <= 0 or self._output.paused:
                await self._wait_for_room(stream)
                continue
            self._window -= room
            stream.window -= room
            for start in range(0, room, self._frame_bytes):
                piece = left[start : min(start + self._frame_bytes, room)]
                self._output.write(head_of(frames.DATA, 0, stream.id, len(piece)))
                self._output.write(piece)
            if room >= self._frame_bytes:
                self._output.flush()  # so that the socket can say that it is full
            left = left[room:]

    def end(self, stream: Stream) -> None:
        """Forget a call whose end has been sent."""
        if stream.task is None and stream.id in self.streams:
            self.write(frames.reset(stream.id, frames.NO_ERROR))  # the rest of its request is not wanted
        self._forget(stream)

    def reset(self, stream: Stream, code: int) -> None:
        self.write(frames.reset(stream.id, code))
        self._drop(stream)

    def drain(self) -> None:
        """Take no more calls, end those that would not end, and close the connection after the last one."""
        if not self._draining and not self._transport.is_closing():
            self._draining = True
            self.write(frames.goaway(self._last, frames.NO_ERROR))
            for stream in list(self.streams.values()):
                if stream.follows and stream.task is not None:
                    stream.task.cancel()
            self._close_if_drained()

    def close(self) -> None:
        """Cancel the calls and disconnect the client."""
        for stream in list(self.streams.values()):
            self._drop(stream)
        self._output.close()

    def _take(self, kind: int, flags: int, id: int, payload: bytes) -> None:
        take = self._TAKES.get(kind)
        if take is not None:
            take(self, flags, id, payload)
        elif kind in (frames.PUSH_PROMISE, frames.CONTINUATION):
            raise Violation(frames.PROTOCOL_ERROR, "a frame that a client cannot send here")
        # Frames of unknown kinds, and priorities, are ignored. So is GOAWAY: the calls that are open go on.

    def _take_headers(self, flags: int, id: int, block: bytes) -> None:
        """A new call, or the trailers of a request."""
        if id % 2 == 0:
            raise Violation(frames.PROTOCOL_ERROR, f"HEADERS on stream {id}, which a client cannot open")
        head = self._blocks.decode(block)  # always, because it may change the table for later blocks
        stream = self.streams.get(id)
        if stream is not None:
            if not flags & frames.END_STREAM or stream.task is not None:
                raise Violation(frames.PROTOCOL_ERROR, "headers in the middle of a request", id)
            self._start(stream)
            return
        if id <= self._last:
            return  # of a call that has ended
        self._last = id
        if self._draining or len(self.streams) >= self._host.max_streams:
            self.write(frames.reset(id, frames.REFUSED_STREAM))
            return
        stream = self.streams[id] = Stream(self, id, head, self._first_window)
        if head.method != "POST":
            stream.refuse(b"405")
        elif not head.headers.get("content-type", "").startswith("application/grpc"):
            stream.refuse(b"415")
        elif flags & frames.END_STREAM:
            self._start(stream)
        else:
            self._incomplete.add(stream)

    def _take_data(self, flags: int, id: int, payload: bytes) -> None:
        size = len(payload)
        self._received += size
        # Windows are opened again as data arrives, because the memory for bodies is what limits requests.
        if self._received >= CONNECTION_WINDOW // 2:
            self.write(frames.window_update(0, self._received))
            self._received = 0
        stream = self.streams.get(id)
        if stream is None:
            if id > self._last or not id:
                raise Violation(frames.PROTOCOL_ERROR, "DATA before HEADERS")
            return  # of a call that has ended
        if stream.task is not None:
            raise Violation(frames.STREAM_CLOSED, "DATA after the end of the request", id)
        stream.received += size
        self._store(stream, frames.without_padding(flags, payload))
        if stream.closed:
            return
        if flags & frames.END_STREAM:
            self._start(stream)
        elif stream.received >= STREAM_WINDOW // 2:
            self.write(frames.window_update(id, stream.received))
            stream.received = 0

    def _store(self, stream: Stream, data: bytes) -> None:
        """Add to the request, unless that is too much."""
        limit = self._host.settings.max_body_bytes
        if len(stream.body) + len(data) > limit + PREFIX.size:
            self._host.count_refused("max_body_bytes")
            stream.finish(RESOURCE_EXHAUSTED, f"the request has more than {limit} bytes, which is the limit")
        elif not self._host.bodies.take(len(data)):
            self._host.count_refused("max_body_memory_bytes")
            stream.finish(RESOURCE_EXHAUSTED, "the requests in flight take all the memory for bodies")
        else:
            stream.reserved += len(data)
            stream.body += data

    def _start(self, stream: Stream) -> None:
        """Answer the call, whose request is complete."""
        self._incomplete.discard(stream)
        if stream.late is not None:
            stream.late.cancel()
        stream.task = self._loop.create_task(self._run(stream))
        text = stream.head.headers.get("grpc-timeout")
        limit_s = None if text is None else timeout_s(text)
        if limit_s is not None:
            stream.deadline = self._loop.call_later(limit_s, self._expire_call, stream)

    async def _run(self, stream: Stream) -> None:
        try:
            await self._host.serve(stream)
        except asyncio.CancelledError:
            if stream.expired:
                stream.finish(DEADLINE_EXCEEDED, "the deadline of the call has passed")
            else:
                stream.finish(UNAVAILABLE, "the server is draining")
        except Exception:
            log.exception("gRPC: %s failed", stream.head.path[:80])
            stream.finish(INTERNAL, "the server failed; its log has the cause")

    def _take_reset(self, flags: int, id: int, payload: bytes) -> None:
        if len(payload) != 4:
            raise Violation(frames.FRAME_SIZE_ERROR, "RST_STREAM: 4 bytes are needed")
        if not id or id > self._last:
            raise Violation(frames.PROTOCOL_ERROR, "RST_STREAM before HEADERS")
        second = int(self._loop.time())
        self._resets = second, self._resets[1] + 1 if self._resets[0] == second else 1
        if self._resets[1] > MAX_RESETS_PER_S:
            raise Violation(frames.ENHANCE_YOUR_CALM, "too many calls are reset")
        stream = self.streams.get(id)
        if stream is not None:
            self._drop(stream)

    def _take_settings(self, flags: int, id: int, payload: bytes) -> None:
        if id:
            raise Violation(frames.PROTOCOL_ERROR, "SETTINGS belong to the connection")
        if flags & frames.ACK:
            return
        for name, value in frames.parsed_settings(payload):
            if name == frames.INITIAL_WINDOW_SIZE:
                for stream in self.streams.values():
                    stream.window += value - self._first_window
                self._first_window = value
            elif name == frames.MAX_FRAME_SIZE:
                self._frame_bytes = value
        self.write(frame(frames.SETTINGS, frames.ACK, 0))
        self._wake()

    def _take_ping(self, flags: int, id: int, payload: bytes) -> None:
        if len(payload) != 8 or id:
            raise Violation(frames.FRAME_SIZE_ERROR, "PING: 8 bytes are needed, for the connection")
        if not flags & frames.ACK:
            self.write(frame(frames.PING, frames.ACK, 0, payload))

    def _take_window_update(self, flags: int, id: int, payload: bytes) -> None:
        increment = frames.parsed_increment(payload, id)
        if not id:
            self._window += increment
            if self._window > frames.MAX_WINDOW:
                raise Violation(frames.FLOW_CONTROL_ERROR, "the window of the connection is too large")
        elif (stream := self.streams.get(id)) is not None:
            stream.window += increment
            if stream.window > frames.MAX_WINDOW:
                raise Violation(frames.FLOW_CONTROL_ERROR, "the window of the stream is too large", id)
        elif id > self._last:
            raise Violation(frames.PROTOCOL_ERROR, "WINDOW_UPDATE before HEADERS")
        self._wake()

    _TAKES: Final = {
        frames.DATA: _take_data,
        frames.HEADERS: _take_headers,
        frames.RST_STREAM: _take_reset,
        frames.SETTINGS: _take_settings,
        frames.PING: _take_ping,
        frames.WINDOW_UPDATE: _take_window_update,
    }

    async def _wait_for_room(self, stream: Stream) -> None:
        waiter = self._loop.create_future()
        self._waiters.add(waiter)
        try:
            async with asyncio.timeout(PATIENCE * self._host.settings.stalled_client_s):
                await waiter
        except TimeoutError:
            self._host.count_reaped()
            self.reset(stream, frames.CANCEL)
        finally:
            self._waiters.discard(waiter)

    def _wake(self) -> None:
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    def _drop(self, stream: Stream) -> None:
        """End a call whose client does not wait for it any more."""
        self._forget(stream)
        if stream.task is not None:
            stream.task.cancel()

    def _forget(self, stream: Stream) -> None:
        if stream.closed:
            return
        stream.closed = True
        self.streams.pop(stream.id, None)
        self._incomplete.discard(stream)
        self._host.bodies.give_back(stream.reserved)
        for timer in (stream.late, stream.deadline):
            if timer is not None:
                timer.cancel()
        self._close_if_drained()

    def _expire_call(self, stream: Stream) -> None:
        stream.expired = True
        if stream.task is not None:
            stream.task.cancel()

    def _expire_request(self, stream: Stream) -> None:
        if not stream.closed:
            self._host.count_reaped()
            self.reset(stream, frames.CANCEL)

    def _close_if_drained(self) -> None:
        if self._draining and not self.streams:
            self._output.close()

    def _close(self, code: int, detail: str) -> None:
        self.write(frames.goaway(self._last, code, detail))
        self._output.close()
