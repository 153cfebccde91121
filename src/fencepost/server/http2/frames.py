"""The frames of HTTP/2 (RFC 9113): written, read from the bytes of a connection, and what violates the protocol.

A frame is a head of 9 bytes (length, kind, flags, stream) and a payload. A violation concerns one stream, which is
reset, or the connection, which is closed after a GOAWAY that names the reason. The reader checks the greeting of the
client, cuts out frames, and joins headers that continue over several frames, so that the connection sees whole headers.
It limits the size of a frame, the size of headers, and the number of their frames.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Final, TypeAlias

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEAD: Final = Struct(">IBI")  # the length and the kind share the first number
HEAD_BYTES: Final = 9
MAX_FRAME_BYTES: Final = 16_384  # the largest payload that a peer may send unless it is told otherwise
MAX_WINDOW: Final = 2**31 - 1
FIRST_WINDOW: Final = 65_535
MAX_BLOCK_BYTES: Final = 32_768  # of headers, compressed
MAX_BLOCK_FRAMES: Final = 16

Taken: TypeAlias = tuple[int, int, int, bytes]  # kind, flags, stream, payload

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)

END_STREAM: Final = 0x1
ACK: Final = 0x1
END_HEADERS: Final = 0x4
PADDED: Final = 0x8
PRIORITIZED: Final = 0x20

# Settings.
HEADER_TABLE_SIZE, ENABLE_PUSH, MAX_CONCURRENT_STREAMS, INITIAL_WINDOW_SIZE, MAX_FRAME_SIZE, MAX_HEADER_LIST_SIZE = (
    range(1, 7)
)

# Reasons for the end of a stream or a connection.
NO_ERROR: Final = 0x0
PROTOCOL_ERROR: Final = 0x1
FLOW_CONTROL_ERROR: Final = 0x3
STREAM_CLOSED: Final = 0x5
FRAME_SIZE_ERROR: Final = 0x6
REFUSED_STREAM: Final = 0x7
CANCEL: Final = 0x8
COMPRESSION_ERROR: Final = 0x9
ENHANCE_YOUR_CALM: Final = 0xB

_number: Final = Struct(">I")
_setting: Final = Struct(">HI")


class Violation(Exception):
    """The peer broke the protocol. Without a stream, the whole connection ends."""

    def __init__(self, code: int, detail: str, stream: int = 0) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail
        self.stream = stream


def head_of(kind: int, flags: int, stream: int, length: int) -> bytes:
    return HEAD.pack(length << 8 | kind, flags, stream)


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """
    >>> frame(PING, ACK, 0, bytes(8)).hex()
    '0000080601000000000000000000000000'
    """
    return HEAD.pack(len(payload) << 8 | kind, flags, stream) + payload


def settings_frame(values: dict[int, int]) -> bytes:
    return frame(SETTINGS, 0, 0, b"".join(_setting.pack(name, value) for name, value in values.items()))


def window_update(stream: int, increment: int) -> bytes:
    return frame(WINDOW_UPDATE, 0, stream, _number.pack(increment))


def reset(stream: int, code: int) -> bytes:
    return frame(RST_STREAM, 0, stream, _number.pack(code))


def goaway(last_stream: int, code: int, detail: str = "") -> bytes:
    return frame(GOAWAY, 0, 0, _number.pack(last_stream) + _number.pack(code) + detail.encode()[:200])


def parsed_settings(payload: bytes) -> list[tuple[int, int]]:
    if len(payload) % _setting.size:
        raise Violation(FRAME_SIZE_ERROR, "SETTINGS: the length is not a multiple of 6")
    values = list(_setting.iter_unpack(payload))
    for name, value in values:
        if name == INITIAL_WINDOW_SIZE and value > MAX_WINDOW:
            raise Violation(FLOW_CONTROL_ERROR, "SETTINGS: the initial window is too large")
        if name == MAX_FRAME_SIZE and not MAX_FRAME_BYTES <= value < 2**24:
            raise Violation(PROTOCOL_ERROR, "SETTINGS: the largest frame is out of range")
        if name == ENABLE_PUSH and value > 1:
            raise Violation(PROTOCOL_ERROR, "SETTINGS: push is on or off")
    return values


def parsed_increment(payload: bytes, stream: int) -> int:
    if len(payload) != 4:
        raise Violation(FRAME_SIZE_ERROR, "WINDOW_UPDATE: 4 bytes are needed")
    increment: int = _number.unpack(payload)[0] & MAX_WINDOW
    if not increment:
        raise Violation(PROTOCOL_ERROR, "WINDOW_UPDATE: by nothing", stream)
    return increment


def without_padding(flags: int, payload: bytes) -> bytes:
    """The payload of DATA or HEADERS without its padding."""
    if not flags & PADDED:
        return payload
    if not payload or payload[0] >= len(payload):
        raise Violation(PROTOCOL_ERROR, "the padding is longer than the frame")
    return payload[1 : len(payload) - payload[0]]


class FrameReader:
    """Frames of a client, in order. Padding and priorities of headers are removed."""

    def __init__(self) -> None:
        self.greeted = False
        self._rest = b""  # of a frame that has not arrived whole
        self._configured = False  # whether the client's first SETTINGS have come
        self._block: tuple[int, int, bytearray, int] | None = None  # headers whose continuation has not come

    def feed(self, data: bytes) -> Iterator[Taken]:
        """The frames that are whole now. `Violation` if the connection cannot go on."""
        if self._rest:
            data = self._rest + data
        place, size = 0, len(data)
        if not self.greeted:
            if not data.startswith(PREFACE[:size]):
                raise Violation(PROTOCOL_ERROR, "this port speaks HTTP/2 only")
            if size < len(PREFACE):
                self._rest = data
                return
            self.greeted = True
            place = len(PREFACE)
        while size - place >= HEAD_BYTES:
            word, flags, id = HEAD.unpack_from(data, place)
            length = word >> 8
            if length > MAX_FRAME_BYTES:
                raise Violation(FRAME_SIZE_ERROR, f"a frame of {length} bytes")
            end = place + HEAD_BYTES + length
            if end > size:
                break
            payload = data[place + HEAD_BYTES : end]
            place = end
            taken = self._checked(word & 0xFF, flags, id & MAX_WINDOW, payload)
            if taken is not None:
                yield taken
        self._rest = data[place:]

    def _checked(self, kind: int, flags: int, id: int, payload: bytes) -> Taken | None:
        if self._block is not None:
            return self._continued(kind, flags, id, payload)
        if not self._configured:
            if kind != SETTINGS or flags & ACK:
                raise Violation(PROTOCOL_ERROR, "the first frame must be SETTINGS")
            self._configured = True
        if kind != HEADERS:
            return kind, flags, id, payload
        block = without_padding(flags, payload)
        if flags & PRIORITIZED:
            if len(block) < 5:
                raise Violation(FRAME_SIZE_ERROR, "HEADERS: too short for a priority")
            block = block[5:]
        if flags & END_HEADERS:
            return kind, flags, id, block
        self._block = id, flags, bytearray(block), 1
        return None

    def _continued(self, kind: int, flags: int, id: int, payload: bytes) -> Taken | None:
        assert self._block is not None
        first_id, first_flags, block, count = self._block
        if kind != CONTINUATION or id != first_id:
            raise Violation(PROTOCOL_ERROR, "headers were not continued")
        block += payload
        if len(block) > MAX_BLOCK_BYTES or count >= MAX_BLOCK_FRAMES:
            raise Violation(ENHANCE_YOUR_CALM, "the headers are too large")
        if not flags & END_HEADERS:
            self._block = id, first_flags, block, count + 1
            return None
        self._block = None
        return HEADERS, first_flags, id, bytes(block)
