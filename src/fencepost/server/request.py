"""Requests and answers over ASGI, with limits on size and time.

A body is read only as far as the limits allow, and takes memory of the quota as its bytes arrive; a client that sends
it too slowly is answered with 408. A stream is sent piece by piece: the next piece is made when the client's connection
has taken the last one, so a slow client holds one piece in memory. When the client closes its connection, the stream
ends at once. tests/server/test_limits.py checks this.
"""

from __future__ import annotations

import asyncio
import re
import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias
from urllib.parse import parse_qs

import msgspec

from ..engine import checked_position
from ..errors import InvalidInput
from ..tools import from_wire
from .admission import Refused, Room
from .observer import request_id
from .settings import Settings
from .wire.problems import MEDIA_TYPE as PROBLEM
from .wire.problems import TIMED_OUT, TOO_LARGE, Problem

Scope: TypeAlias = Mapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Mapping[str, Any]]]
Send: TypeAlias = Callable[[dict[str, Any]], Awaitable[None]]

JSON: Final = "application/json"
NDJSON: Final = "application/x-ndjson"
EVENT_STREAM: Final = "text/event-stream"
SMALLEST_TO_COMPRESS: Final = 1_024
PIECE_BYTES: Final = 262_144  # of an answer, in one message to the connection

encode_json = msgspec.json.Encoder().encode


class Request:
    """What a handler needs of an HTTP request. `room` is what it takes of the limits, once it is admitted."""

    room: Room

    def __init__(self, scope: Scope, receive: Receive, settings: Settings) -> None:
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self.raw_path: bytes = scope.get("raw_path") or self.path.encode()
        self.headers: dict[str, str] = {
            name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]
        }
        self.id = request_id(self.headers)
        self.address: str = (scope.get("client") or ("", 0))[0]
        self.port: int | None = (scope.get("server") or (None, None))[1]  # on which it arrived
        self.places: dict[str, str] = {}  # what stands in the places of the route's template
        self._query_string: bytes = scope["query_string"]
        self._receive = receive
        self._settings = settings

    @property
    def query(self) -> dict[str, list[str]]:
        """The parameters; `InvalidInput` if they are not UTF-8."""
        if not self._query_string:
            return {}
        try:
            return parse_qs(self._query_string.decode("ascii"), keep_blank_values=True, errors="strict")
        except (UnicodeError, ValueError):
            raise InvalidInput("query string", "not valid: percent-encoded UTF-8 is needed") from None

    def accepts(self, media_type: str) -> bool:
        return is_accepted(self.headers.get("accept", ""), media_type)

    @property
    def media_type(self) -> str:
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    @property
    def content_length(self) -> int | None:
        text = self.headers.get("content-length", "")
        return int(text) if text.isdigit() else None

    @property
    def announces_body(self) -> bool:
        return bool(self.content_length) or "transfer-encoding" in self.headers

    async def optional_body(self) -> bytes:
        """The body, or an empty JSON object if the client announced none. An announced body is never left out."""
        return await self.body() if self.announces_body else b"{}"

    async def body(self) -> bytes:
        limit, timeout_s = self._settings.max_body_bytes, self._settings.request_timeout_s
        length = self.content_length
        if length is not None and length > limit:
            raise too_large(length, limit)
        parts: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    message = await self._receive()
                    if message["type"] == "http.disconnect":
                        raise Disconnected
                    parts.append(message.get("body", b""))
                    size += len(parts[-1])
                    if size > limit:
                        raise too_large(size, limit)
                    self.room.reserve(len(parts[-1]))
                    if not message.get("more_body", False):
                        break
        except TimeoutError:
            raise Refused(TIMED_OUT, f"the body did not arrive within {timeout_s:g} s", close=True) from None
        if length is not None and size != length:
            raise Disconnected
        return parts[0] if len(parts) == 1 else b"".join(parts)

    @asynccontextmanager
    async def while_connected(self) -> AsyncIterator[None]:
        """End the block with `Disconnected` when the client goes. To be used after the body has been read."""
        loop = asyncio.get_running_loop()
        gone = loop.create_task(self._disconnection())
        try:
            async with asyncio.timeout(None) as limit:
                end = lambda _: limit.reschedule(loop.time())  # noqa: E731
                gone.add_done_callback(end)
                try:
                    yield
                finally:
                    gone.remove_done_callback(end)
        except TimeoutError:
            if limit.expired():
                raise Disconnected from None
            raise
        finally:
            gone.cancel()

    async def _disconnection(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass


class Disconnected(Exception):
    """The client closed its connection, so no answer is sent."""


@dataclass
class Answer:
    status: int
    body: bytes = b""
    media_type: str = JSON
    headers: dict[str, str] = field(default_factory=dict)

    async def send(self, request: Request, send: Send) -> None:
        headers = dict(self.headers)
        body = self.body
        if len(body) >= SMALLEST_TO_COMPRESS:
            headers["vary"] = "accept, accept-encoding"
            if takes_gzip(request):
                body = await asyncio.to_thread(packed, body) if len(body) > PIECE_BYTES else packed(body)
                headers["content-encoding"] = "gzip"
        headers["content-length"] = str(len(body))
        if body or self.status not in (204, 304):
            headers["content-type"] = self.media_type
        headers["x-request-id"] = request.id
        await send(start_of(self.status, headers))
        if request.method == "HEAD":
            body = b""
        # Piece by piece: a large answer counts as a request in flight until the client has taken it.
        view, place = memoryview(body), 0
        while len(body) - place > PIECE_BYTES:
            await send({"type": "http.response.body", "body": view[place : place + PIECE_BYTES], "more_body": True})
            place += PIECE_BYTES
        await send({"type": "http.response.body", "body": view[place:]})


@dataclass
class Stream:
    """An answer whose pieces are made one after another."""

    pieces: AsyncGenerator[bytes, None]
    media_type: str
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)

    async def send(self, request: Request, send: Send) -> None:
        packer = gzip_packer() if takes_gzip(request) else None
        headers = {"content-type": self.media_type, "cache-control": "no-store", **self.headers}
        headers["vary"] = "accept, accept-encoding"
        headers["x-request-id"] = request.id
        if packer is not None:
            headers["content-encoding"] = "gzip"
        await send(start_of(self.status, headers))
        if request.method == "HEAD":
            await self.pieces.aclose()
            await send({"type": "http.response.body", "body": b""})
            return
        async with request.while_connected(), aclosing(self.pieces):
            async for piece in self.pieces:
                if packer is not None:
                    piece = packer.compress(piece) + packer.flush(zlib.Z_SYNC_FLUSH)
                await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b"" if packer is None else packer.flush()})


def start_of(status: int, headers: Mapping[str, str]) -> dict[str, Any]:
    return {
        "type": "http.response.start",
        "status": status,
        "headers": [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()],
    }


def answer_json(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Answer:
    return Answer(status, encode_json(value), JSON, headers or {})


def answer_problem(given: Problem, *, retry_after_s: int | None = None) -> Answer:
    headers = {} if retry_after_s is None else {"retry-after": str(retry_after_s)}
    return Answer(given.status, encode_json(given), PROBLEM, headers)


def answer_refused(refused: Refused) -> Answer:
    made = answer_problem(refused.problem, retry_after_s=refused.retry_after_s)
    if refused.close:
        made.headers["connection"] = "close"
    made.headers.update(refused.headers)
    return made


def too_large(size: int, limit: int) -> Refused:
    refused = Refused(TOO_LARGE, f"body: {size} bytes, the limit is {limit}")
    refused.problem.field, refused.problem.limit = "body", limit
    return refused


def takes_gzip(request: Request) -> bool:
    return is_accepted(request.headers.get("accept-encoding", ""), "gzip")


def is_accepted(header: str, wanted: str) -> bool:
    """Whether a list such as `text/html, gzip;q=0.5` names what is wanted, and not with `q=0`.

    >>> is_accepted("br, gzip;q=0.5", "gzip"), is_accepted("gzip;q=0", "gzip"), is_accepted("gzipped", "gzip")
    (True, False, False)
    """
    for each in header.split(","):
        name, *options = [part.strip().lower() for part in each.split(";")]
        if name == wanted:
            return not any(re.fullmatch(r"q=0(\.0*)?", option) for option in options)
    return False


def is_tagged(header: str, tag: str) -> bool:
    """Whether `If-None-Match` names the tag, or any.

    >>> is_tagged('W/"6", "7"', '"7"'), is_tagged("*", '"7"'), is_tagged('"77"', '"7"')
    (True, True, False)
    """
    return header.strip() == "*" or tag in [each.strip().removeprefix("W/") for each in header.split(",")]


def packed(body: bytes) -> bytes:
    packer = gzip_packer()
    return bytes(packer.compress(body) + packer.flush())


def gzip_packer() -> Any:
    return zlib.compressobj(1, zlib.DEFLATED, 31)


def position_parameter(request: Request, name: str) -> int | None:
    texts = request.query.get(name)
    if not texts:
        return None
    if len(texts) > 1:
        raise InvalidInput(name, f"given {len(texts)} times, once is allowed")
    return checked_position(from_wire(texts[0], name), name)


def number_parameter(request: Request, name: str, default: float) -> float:
    texts = request.query.get(name)
    if not texts:
        return default
    try:
        number = float(texts[0])
    except ValueError:
        raise InvalidInput(name, f"a number is needed, not {texts[0]!r:.80}") from None
    if not 0 <= number < float("inf"):
        raise InvalidInput(name, f"a number of at least 0 is needed, not {texts[0]!r:.80}")
    return number
