"""A client that speaks HTTP/2 in frames, so that a test can break every rule of the protocol."""

from __future__ import annotations

import socket
from collections.abc import Iterable
from struct import pack, unpack
from typing import Any, NamedTuple

from hpack import Decoder, Encoder

from fencepost.server.http2 import frames
from fencepost.server.umadb import messages

ANSWERS_S = 20.0
PIECE_BYTES = 16_384
READ = "/umadb.v1.DCB/Read"
APPEND = "/umadb.v1.DCB/Append"
HEAD = "/umadb.v1.DCB/Head"
SUBSCRIBE = "/umadb.v1.DCB/Subscribe"


class Frame(NamedTuple):
    kind: int
    flags: int
    stream: int
    payload: bytes


class Answer(NamedTuple):
    headers: dict[str, str]
    data: bytes
    reset: int | None  # the code, if the call was reset

    @property
    def status(self) -> int:
        return int(self.headers["grpc-status"])


def prefixed(content: bytes, *, compressed: bool = False) -> bytes:
    return pack(">BI", compressed, len(content)) + content


def append_request(data: bytes = b"d") -> bytes:
    return prefixed(messages.AppendRequest(events=[messages.Event(event_type="T", data=data)]).SerializeToString())


class FrameClient:
    """One connection. Frames are sent as they are given, right or wrong."""

    def __init__(self, port: int, *, greet: bool = True, settings: dict[int, int] | None = None) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=ANSWERS_S)
        self.encoder, self._decoder = Encoder(), Decoder()
        self._rest = b""
        self.seen: list[Frame] = []
        self._next = 1
        if greet:
            self.send(frames.PREFACE + frames.settings_frame(settings or {}))

    def send(self, content: bytes) -> None:
        self.socket.sendall(content)

    def block(self, path: str, more: Iterable[tuple[str, str]] = (), **changed: str) -> bytes:
        fields = {":method": "POST", ":scheme": "http", ":path": path, "content-type": "application/grpc"}
        fields |= {name.replace("_", "-"): value for name, value in changed.items()}
        return bytes(self.encoder.encode([*fields.items(), *more]))

    def call_bytes(self, path: str, body: bytes, more: Iterable[tuple[str, str]] = (), **changed: str) -> bytes:
        id = self.next_id()
        headers = frames.frame(frames.HEADERS, frames.END_HEADERS, id, self.block(path, more, **changed))
        pieces = [body[start : start + PIECE_BYTES] for start in range(0, len(body), PIECE_BYTES)] or [b""]
        sent = [frames.frame(frames.DATA, 0, id, piece) for piece in pieces[:-1]]
        return b"".join([headers, *sent, frames.frame(frames.DATA, frames.END_STREAM, id, pieces[-1])])

    def call(self, path: str, body: bytes, more: Iterable[tuple[str, str]] = (), **changed: str) -> Answer:
        self.send(self.call_bytes(path, body, more, **changed))
        return self.answer(self.last_id)

    def next_id(self) -> int:
        id, self._next = self._next, self._next + 2
        return id

    @property
    def last_id(self) -> int:
        return self._next - 2

    def frame(self) -> Frame | None:
        """The next frame; None when the server has closed the connection."""
        while True:
            if len(self._rest) >= 9:
                word, flags, id = frames.HEAD.unpack_from(self._rest)
                end = 9 + (word >> 8)
                if len(self._rest) >= end:
                    found = Frame(word & 0xFF, flags, id, self._rest[9:end])
                    self._rest = self._rest[end:]
                    self.seen.append(found)
                    return found
            try:
                received = self.socket.recv(65_536)
            except ConnectionError:
                received = b""
            if not received:
                return None
            self._rest += received

    def answer(self, id: int) -> Answer:
        """The frames of the call until its end; windows are opened for what arrives."""
        headers: dict[str, str] = {}
        data = b""
        while True:
            found = self.frame()
            assert found is not None, f"the connection was closed: {self.seen[-3:]}"
            if found.kind == frames.HEADERS:
                decoded: list[Any] = list(self._decoder.decode(found.payload))
                if found.stream == id:
                    headers |= {str(name): str(value) for name, value in decoded}
            elif found.kind == frames.DATA and found.stream == id:
                data += found.payload
                opened = frames.window_update(0, len(found.payload)) + frames.window_update(id, len(found.payload))
                self.send(opened if found.payload else b"")
            elif found.kind == frames.RST_STREAM and found.stream == id:
                return Answer(headers, data, int(unpack(">I", found.payload)[0]))
            elif found.kind == frames.GOAWAY and unpack(">II", found.payload[:8])[1]:
                raise AssertionError(f"the connection ends: {found.payload!r}")
            if found.stream == id and found.flags & frames.END_STREAM and found.kind in (frames.HEADERS, frames.DATA):
                return Answer(headers, data, None)

    def wait_for(self, kind: int, stream: int = 0) -> Frame:
        while (found := self.frame()) is not None:
            if found.kind == kind and found.stream == stream:
                return found
        raise AssertionError(f"the connection was closed, no frame of kind {kind} came: {self.seen[-3:]}")

    def goaway(self) -> int:
        """The code with which the server ends the connection."""
        found = self.wait_for(frames.GOAWAY)
        return int(unpack(">II", found.payload[:8])[1])

    def is_closed(self) -> bool:
        """Waits for the server to close the connection."""
        while self.frame() is not None:
            pass
        return True

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> FrameClient:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
