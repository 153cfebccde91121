"""Frames from the bytes of a connection.

The reader checks the greeting of the client, cuts out frames, and joins headers that continue over several frames, so
that the connection sees whole headers. It limits the size of a frame, the size of headers, and the number of their
frames.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, TypeAlias

from . import frames
from .frames import Violation

MAX_BLOCK_BYTES: Final = 32_768  # of headers, compressed
MAX_BLOCK_FRAMES: Final = 16

Taken: TypeAlias = tuple[int, int, int, bytes]  # kind, flags, stream, payload


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
            if not data.startswith(frames.PREFACE[:size]):
                raise Violation(frames.PROTOCOL_ERROR, "this port speaks HTTP/2 only")
            if size < len(frames.PREFACE):
                self._rest = data
                return
            self.greeted = True
            place = len(frames.PREFACE)
        while size - place >= frames.HEAD_BYTES:
            word, flags, id = frames.HEAD.unpack_from(data, place)
            length = word >> 8
            if length > frames.MAX_FRAME_BYTES:
                raise Violation(frames.FRAME_SIZE_ERROR, f"a frame of {length} bytes")
            end = place + frames.HEAD_BYTES + length
            if end > size:
                break
            payload = data[place + frames.HEAD_BYTES : end]
            place = end
            taken = self._checked(word & 0xFF, flags, id & frames.MAX_WINDOW, payload)
            if taken is not None:
                yield taken
        self._rest = data[place:]

    def _checked(self, kind: int, flags: int, id: int, payload: bytes) -> Taken | None:
        if self._block is not None:
            return self._continued(kind, flags, id, payload)
        if not self._configured:
            if kind != frames.SETTINGS or flags & frames.ACK:
                raise Violation(frames.PROTOCOL_ERROR, "the first frame must be SETTINGS")
            self._configured = True
        if kind != frames.HEADERS:
            return kind, flags, id, payload
        block = frames.without_padding(flags, payload)
        if flags & frames.PRIORITIZED:
            if len(block) < 5:
                raise Violation(frames.FRAME_SIZE_ERROR, "HEADERS: too short for a priority")
            block = block[5:]
        if flags & frames.END_HEADERS:
            return kind, flags, id, block
        self._block = id, flags, bytearray(block), 1
        return None

    def _continued(self, kind: int, flags: int, id: int, payload: bytes) -> Taken | None:
        assert self._block is not None
        first_id, first_flags, block, count = self._block
        if kind != frames.CONTINUATION or id != first_id:
            raise Violation(frames.PROTOCOL_ERROR, "headers were not continued")
        block += payload
        if len(block) > MAX_BLOCK_BYTES or count >= MAX_BLOCK_FRAMES:
            raise Violation(frames.ENHANCE_YOUR_CALM, "the headers are too large")
        if not flags & frames.END_HEADERS:
            self._block = id, first_flags, block, count + 1
            return None
        self._block = None
        return frames.HEADERS, first_flags, id, bytes(block)
