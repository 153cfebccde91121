"""Long answers: readings as NDJSON, and subscriptions as server-sent events or NDJSON.

A stream holds one page of a reading, or the buffer of a subscription, whatever its client does: the next piece is
made when the connection has taken the last one. A subscription without new events sends a sign of life, so that
proxies and clients can tell silence from a lost connection. When the server drains, subscriptions end; a client goes
on from the last position that it has seen.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from ..aio import AsyncEventStore, AsyncSubscription
from ..errors import FencepostError
from ..model import Query, SequencedEvent
from ..wire.documents import document_of
from ..wire.positions import to_wire
from ..wire.problems import BUSY, problem_of
from . import metrics
from .heads import Heads
from .messages import EVENT_STREAM, NDJSON, Refused, Stream, encode_json
from .metrics import Metrics
from .settings import Settings

if TYPE_CHECKING:
    from .handlers import Reading

PIECE_BYTES: Final = 65_536  # events are sent together up to this size


class Streams:
    def __init__(self, store: AsyncEventStore, heads: Heads, settings: Settings, measured: Metrics) -> None:
        self._store = store
        self._heads = heads
        self._settings = settings
        self._metrics = measured
        self._positions: dict[object, int] = {}
        self._subscriptions: dict[object, AsyncSubscription] = {}  # they know their position between events
        self.draining = False
        measured.compute(metrics.SUBSCRIPTIONS, lambda: len(self._positions))
        measured.compute(metrics.LAG, lambda: max(0, self._heads.head - self._furthest()))
        measured.compute(metrics.LAG_SECONDS, lambda: self._heads.age_s(self._furthest()))

    @property
    def count(self) -> int:
        """Requests that follow or wait."""
        return len(self._positions)

    def drain(self) -> None:
        """End the subscriptions and answer the requests that wait."""
        self.draining = True
        self._heads.stop()

    async def reading(self, wanted: Reading) -> AsyncGenerator[bytes, None]:
        """Each event in a line, then a line with the head. An error after the first line is a line as well."""
        reach = 0
        try:
            if wanted.query is not None:
                reading = await self._store.read(**wanted._asdict())
                piece = bytearray()
                async for event in reading:
                    piece += line(event)
                    self._metrics.add(metrics.READ)
                    if len(piece) >= PIECE_BYTES:
                        yield bytes(piece)
                        piece.clear()
                reach = reading.head
                yield bytes(piece)
            yield encode_json({"head": to_wire(reach)}) + b"\n"
        except FencepostError as error:
            yield encode_json({"error": problem_of(error)}) + b"\n"

    def subscription(self, query: Query | None, after: int, *, as_lines: bool) -> Stream:
        self.check_room()  # now, while a refusal can still be the answer
        pieces = self._followed(query, after, as_lines)
        return Stream(pieces, NDJSON if as_lines else EVENT_STREAM, headers={"x-accel-buffering": "no"})

    async def _followed(self, query: Query | None, after: int, as_lines: bool) -> AsyncGenerator[bytes, None]:
        with self.counted(after) as token:
            yield b"" if as_lines else b"retry: 1000\n\n"
            if query is None:  # nothing can match, so there is only to show that the connection lives
                while not self.draining:
                    await self._heads.above(2**96, self._settings.heartbeat_s)
                    yield heartbeat(as_lines, self._positions[token])
                return
            async with self._store.subscribe(query, after=after, timeout=self._settings.heartbeat_s) as subscription:
                ending = asyncio.ensure_future(self._end_of_service(subscription.stop))
                self._subscriptions[token] = subscription
                try:
                    while not self.draining:
                        async for event in subscription:
                            self._positions[token] = event.position
                            self._metrics.add(metrics.READ)
                            yield line(event) if as_lines else message(event)
                        self._positions[token] = subscription.position
                        yield heartbeat(as_lines, self._positions[token])
                finally:
                    del self._subscriptions[token]
                    ending.cancel()

    async def _end_of_service(self, stop: Callable[[], None]) -> None:
        while not self.draining:
            await self._heads.above(2**96, 3_600)
        stop()

    @contextmanager
    def counted(self, after: int) -> Iterator[object]:
        """Count what the block does as a subscription; `moved` tells its position. `check_room` is called before."""
        token = object()
        self._positions[token] = after
        try:
            yield token
        finally:
            del self._positions[token]

    def moved(self, token: object, position: int) -> None:
        self._positions[token] = position

    def check_room(self) -> None:
        if len(self._positions) >= self._settings.max_subscriptions:
            self._metrics.add(metrics.REFUSED, "max_subscriptions")
            raise Refused(
                BUSY, f"{self._settings.max_subscriptions} subscriptions are open, which is the limit", retry_after_s=5
            )

    def _furthest(self) -> int:
        """The position of the subscription that is furthest behind; the head if there is none."""
        for token, subscription in self._subscriptions.items():
            self._positions[token] = max(self._positions[token], subscription.position)
        return min(self._positions.values(), default=self._heads.head)


def line(event: SequencedEvent) -> bytes:
    return encode_json(document_of(event)) + b"\n"


def message(event: SequencedEvent) -> bytes:
    """A server-sent event; its id is the position, which a client sends back as Last-Event-ID."""
    return b"id: %d\ndata: %b\n\n" % (event.position, encode_json(document_of(event)))


def heartbeat(as_lines: bool, position: int) -> bytes:
    """A sign of life that says up to where the subscription has looked."""
    return encode_json({"head": to_wire(position)}) + b"\n" if as_lines else b": up to %d\n\n" % position
