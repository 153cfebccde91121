"""One call: its request message, its answer, and its end.

The request is one message: a byte that says whether it is compressed, its length in 4 bytes, and its content. The
answer is headers, messages of the same form, and trailers with the status. A call without messages has only trailers.
A small answer is one write to the connection. A large message waits for the client's flow control, so a client that
does not read holds one message in memory.
"""

from __future__ import annotations

import asyncio
import zlib
from base64 import b64encode
from dataclasses import dataclass, field
from struct import Struct
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from .blocks import STATUS_200, Head, block_of
from .frames import DATA, END_HEADERS, END_STREAM, HEADERS, head_of
from .statuses import INTERNAL, OK, RESOURCE_EXHAUSTED, UNIMPLEMENTED, Failure

if TYPE_CHECKING:
    from .connection import Connection

PREFIX: Final = Struct(">BI")
GZIP: Final = "gzip"
LONGEST_MESSAGE: Final = 1_000  # characters of an error's text, since clients limit the size of trailers
PRINTABLE: Final = "".join(map(chr, range(0x20, 0x7F))).replace("%", "")
CONTENT_TYPE: Final = (b"content-type", b"application/grpc")
BEGIN: Final = STATUS_200 + block_of([CONTENT_TYPE, (b"grpc-accept-encoding", b"identity,gzip")])
TRAILERS_OK: Final = block_of([(b"grpc-status", b"0")])


@dataclass(slots=True, eq=False)
class Stream:
    """A call. The connection fills in the request; the service calls the methods to answer it."""

    _connection: Connection
    id: int
    head: Head
    window: int  # how much the client allows us to send
    _began: bool = False
    body: bytearray = field(default_factory=bytearray)
    received: int = 0  # bytes since the stream's window was last opened
    reserved: int = 0  # bytes of memory that the body takes
    task: asyncio.Task[None] | None = None
    late: asyncio.TimerHandle | None = None  # ends a request that does not arrive
    deadline: asyncio.TimerHandle | None = None  # of the client
    expired: bool = False
    follows: bool = False  # a call without an end of its own, which is ended when the server drains
    closed: bool = False

    def message(self, limit: int) -> bytes:
        """The request message. `Failure` if it is not whole, too large, or compressed in an unknown way."""
        body = self.body
        if len(body) < PREFIX.size:
            raise Failure(INTERNAL, "the call has no request message")
        compressed, length = PREFIX.unpack_from(body)
        if len(body) != PREFIX.size + length:
            raise Failure(INTERNAL, f"one request message of {length} bytes was announced, {len(body) - 5} have come")
        content = bytes(memoryview(body)[PREFIX.size :])
        if not compressed:
            return content
        if self.head.headers.get("grpc-encoding") != GZIP or compressed != 1:
            raise Failure(UNIMPLEMENTED, "the request message is compressed; this server understands gzip")
        try:
            opened = zlib.decompressobj(31)
            content = opened.decompress(content, limit + 1)
            complete = opened.eof
        except zlib.error:
            raise Failure(INTERNAL, "the request message is not valid gzip") from None
        if len(content) > limit:
            raise Failure(RESOURCE_EXHAUSTED, f"the request message has more than {limit} bytes, the limit")
        if not complete:
            raise Failure(INTERNAL, "the request message is cut off")
        return content

    def answer(self, message: bytes) -> bool:
        """Send the only message and the status OK, if that is possible without waiting."""
        size = PREFIX.size + len(message)
        if self.closed or size > self.window or not self._connection.reserve_window(size):
            return False
        self.window -= size
        self._connection.write(
            b"".join(
                (
                    head_of(HEADERS, END_HEADERS, self.id, len(BEGIN)),
                    BEGIN,
                    head_of(DATA, 0, self.id, size),
                    PREFIX.pack(0, len(message)),
                    message,
                    head_of(HEADERS, END_HEADERS | END_STREAM, self.id, len(TRAILERS_OK)),
                    TRAILERS_OK,
                )
            )
        )
        self._connection.end(self)
        return True

    async def send(self, message: bytes) -> None:
        """Send a message as fast as the client takes it."""
        if not self._began and not self.closed:
            self._began = True
            self._connection.write(head_of(HEADERS, END_HEADERS, self.id, len(BEGIN)) + BEGIN)
        await self._connection.send_data(self, PREFIX.pack(0, len(message)) + message)

    def finish(self, status: int = OK, message: str = "", details: bytes = b"") -> None:
        """Send the status, which ends the call. Nothing happens if it has ended already."""
        if self.closed:
            return
        fields = [(b"grpc-status", b"%d" % status)]
        if message:
            fields.append((b"grpc-message", percent_encoded(message[:LONGEST_MESSAGE])))
        if details:
            fields.append((b"grpc-status-details-bin", b64encode(details).rstrip(b"=")))
        block = TRAILERS_OK if status == OK else block_of(fields)
        if not self._began:
            block = BEGIN + block
        self._end(block)

    def refuse(self, status: bytes) -> None:
        """Answer a request that is not gRPC with an HTTP status."""
        self._end(block_of([(b":status", status)]))

    def _end(self, block: bytes) -> None:
        self._connection.write(head_of(HEADERS, END_HEADERS | END_STREAM, self.id, len(block)) + block)
        self._connection.end(self)


def percent_encoded(text: str) -> bytes:
    """The text as gRPC wants it in a header: printable ASCII as it is, other bytes as %XX.

    >>> percent_encoded("5 % é")
    b'5 %25 %C3%A9'
    """
    return quote(text, safe=PRINTABLE).encode()
