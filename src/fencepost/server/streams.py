"""Long answers: readings as NDJSON, and subscriptions as server-sent events or NDJSON.

A stream holds one page of a reading, or the buffer of a subscription, whatever its client does: the next piece is
made when the connection has taken the last one. A subscription without new events sends a sign of life, so that
proxies and clients can tell silence from a lost connection. Subscriptions end when the server drains, and within a
second after the key of their caller is revoked; a client goes on from the last position that it has seen.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from .. import Query, SequencedEvent
from ..aio import AsyncSubscription
from ..errors import FencepostError, StoreError
from ..tools import event_to_json, to_wire
from . import metrics
from .access import Access
from .admission import Admission, Refused
from .request import EVENT_STREAM, NDJSON, Request, Stream, encode_json
from .wire.problems import UNAUTHENTICATED, UNAVAILABLE, Problem, problem, problem_of

log: Final = logging.getLogger("fencepost.server")

END: Final = b"event: end\ndata: %b\n\n"  # the last server-sent event: the problem that ends the stream
PIECE_BYTES: Final = 65_536  # events are sent together up to this size
FIRST_EVENTS: Final = 256  # in the first page of a reading
MOST_EVENTS: Final = 1_024  # in a page
PAGE_BYTES: Final = 2_000_000  # of data in a page that waits for a slow reader; at least one event is in it
LOOK_S: Final = 0.5  # how often the keys of open streams are looked at


class Reading(NamedTuple):
    """The arguments of `read`, already narrowed to the caller's scope. Without a query, nothing can match."""

    query: Query | None
    after: int
    up_to: int | None
    limit: int | None
    backwards: bool


@dataclass(eq=False)
class OpenStream:
    """A subscription, or a request that waits for a new head: its caller, how far it is, and why it must end."""

    access: Access
    position: int
    subscription: AsyncSubscription | None = None
    reason: Problem | None = None  # why it must end
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    def end(self, reason: Problem) -> None:
        self.reason = reason
        self.ended.set()
        if self.subscription is not None:
            self.subscription.stop()


class Streams:
    def __init__(self, admission: Admission) -> None:
        self._admission = admission
        self._store = admission.store
        self._metrics = admission.metrics
        self._open: set[OpenStream] = set()
        self._fetches = asyncio.Semaphore(4)
        self._look: asyncio.TimerHandle | None = None
        admission.on_drain(self._end_all)
        measured = admission.metrics
        measured.compute(metrics.SUBSCRIPTIONS, lambda: len(self._open))
        measured.compute(metrics.LAG, lambda: max(0, admission.heads.head - self._furthest()))
        measured.compute(metrics.LAG_SECONDS, lambda: admission.heads.age_s(self._furthest()))

    async def pages(self, wanted: Reading, access: Access) -> AsyncIterator[tuple[int, Sequence[SequencedEvent]]]:
        """Pages of about PAGE_BYTES, each with the position that the reading reaches, and at least one, maybe empty.

        Every page is a reading of its own that ends at the head of the first one, so nothing is held for a reader that
        is slow.
        """
        if wanted.query is None:
            yield 0, ()
            return
        after, up_to, left = wanted.after, wanted.up_to, wanted.limit
        most, reach = FIRST_EVENTS, None
        while True:
            limit = most if left is None else min(most, left)
            async with self._fetches:
                reading = await self._store.read(
                    wanted.query, after=after, up_to=up_to, limit=limit, backwards=wanted.backwards
                )
                events = [event async for page in reading.pages() for event in page]
            if reach is None:
                reach = up_to = reading.up_to
            is_last = len(events) < limit
            page, size = trimmed(events)
            if len(page) < len(events):
                is_last, most = False, max(1, min(most, most * PAGE_BYTES // (2 * size)))
            elif size < PAGE_BYTES // 4:
                most = min(MOST_EVENTS, 4 * most)
            if left is not None:
                left -= len(page)
            self._metrics.add(metrics.READ, amount=len(page))
            del events, reading  # the part that was trimmed is not held while the reader takes its time
            yield reach, [access.scope.shown(event) for event in page] if access.scope.is_limited else page
            if is_last or left == 0:
                return
            if wanted.backwards:
                up_to = page[-1].position - 1
            else:
                after = page[-1].position

    async def reading(self, wanted: Reading, access: Access) -> AsyncGenerator[bytes, None]:
        """Each event in a line, then a line with the head. An error after the first line is a line as well."""
        try:
            reach = count = 0
            last = wanted.after
            async for reach, page in self.pages(wanted, access):  # noqa: B007
                piece = bytearray()
                for event in page:
                    piece += line(event)
                    if len(piece) >= PIECE_BYTES:
                        yield bytes(piece)
                        piece.clear()
                yield bytes(piece)
                count += len(page)
                last = page[-1].position if page else last
                if not self._admission.is_valid(access):
                    raise Refused(UNAUTHENTICATED, "the API key was revoked or has expired")
            if wanted.limit is not None and count == wanted.limit and not wanted.backwards:
                reach = last
            elif access.scope.is_limited:
                reach = await self._admission.head_of(access, reach)
            yield encode_json({"head": to_wire(reach)}) + b"\n"
        except FencepostError as error:
            yield encode_json({"error": end_of(error)}) + b"\n"

    def subscription(
        self, request: Request, access: Access, query: Query | None, after: int, *, as_lines: bool
    ) -> Stream:
        request.room.enter(self._admission.subscriptions)  # now, while a refusal can still be the answer
        pieces = self._follow(access, query, after, as_lines)
        return Stream(pieces, NDJSON if as_lines else EVENT_STREAM, headers={"x-accel-buffering": "no"})

    async def _follow(
        self, access: Access, query: Query | None, after: int, as_lines: bool
    ) -> AsyncGenerator[bytes, None]:
        with self.opened(access, after) as stream:
            yield b"" if as_lines else b"retry: 1000\n\n"
            try:
                async for batch in self.batches(stream, query, after, 1, self._admission.settings.heartbeat_s):
                    for event in batch:
                        yield line(event) if as_lines else message(event)
                    if not batch:
                        yield heartbeat(as_lines, stream.position)
            except FencepostError as error:
                given = end_of(error)
                yield encode_json({"error": given}) + b"\n" if as_lines else END % encode_json(given)

    async def batches(
        self, stream: OpenStream, query: Query | None, after: int, most: int, heartbeat_s: float
    ) -> AsyncIterator[Sequence[SequencedEvent]]:
        """The events of a subscription in batches; an empty one after each `heartbeat_s` without an event.

        Ends with `Refused` when the server drains or the key is revoked.
        """
        scope = stream.access.scope
        if query is None:  # nothing can match, so there is only to show that the connection lives
            while stream.reason is None:
                try:
                    await asyncio.wait_for(stream.ended.wait(), heartbeat_s)
                except TimeoutError:
                    yield ()
        else:
            async for _, page in self.pages(Reading(query, after, None, None, False), stream.access):
                if page:
                    stream.position = after = page[-1].position
                    yield page
                if stream.reason is not None:
                    break
            async with self._store.subscribe(query, after=after, timeout_s=heartbeat_s) as subscription:
                stream.subscription = subscription
                while stream.reason is None:
                    async for event in subscription:
                        found = [event, *subscription.ready(most - 1)]
                        self._metrics.add(metrics.READ, amount=len(found))
                        stream.position = found[-1].position
                        yield [scope.shown(each) for each in found]
                    if stream.reason is None:
                        if not scope.is_limited:
                            stream.position = max(stream.position, subscription.position)
                        yield ()
        assert stream.reason is not None
        refused = Refused(UNAVAILABLE, stream.reason.detail)
        refused.problem = stream.reason
        raise refused

    @contextmanager
    def opened(self, access: Access, after: int) -> Iterator[OpenStream]:
        """A stream that ends when the server drains or the caller's key is revoked. It has its room already."""
        stream = OpenStream(access, after)
        self._open.add(stream)
        if self._admission.draining:
            self._end_all()
        elif self._look is None:
            self._look = asyncio.get_running_loop().call_later(LOOK_S, self._look_at_keys)
        try:
            yield stream
        finally:
            self._open.discard(stream)

    def _look_at_keys(self) -> None:
        self._look = None
        for stream in list(self._open):
            if not self._admission.is_valid(stream.access):
                stream.end(problem(UNAUTHENTICATED, "the API key was revoked, was changed or has expired"))
        if self._open:
            self._look = asyncio.get_running_loop().call_later(LOOK_S, self._look_at_keys)

    def _end_all(self) -> None:
        for stream in list(self._open):
            stream.end(problem(UNAVAILABLE, "the server is draining"))

    def _furthest(self) -> int:
        """The position of the subscription that is furthest behind; the head if there is none."""
        positions = [
            each.position if each.subscription is None else max(each.position, each.subscription.position)
            for each in self._open
        ]
        return min(positions, default=self._admission.heads.head)


def trimmed(events: Sequence[SequencedEvent]) -> tuple[Sequence[SequencedEvent], int]:
    """The first events, up to PAGE_BYTES of data and at least one, and their size; the size of all if all fit."""
    size = 0
    for index, event in enumerate(events):
        size += len(event.data)
        if size > PAGE_BYTES and index:
            return events[:index], size
    return events, size


def line(event: SequencedEvent) -> bytes:
    return event_to_json(event) + b"\n"


def end_of(error: FencepostError) -> Problem:
    """Why a stream ends, as the client is told. What is not the client's doing is logged, in one line."""
    if isinstance(error, Refused):
        return error.problem
    if isinstance(error, StoreError):
        log.error("a stream ends: %s", error)
    return problem_of(error)


def message(event: SequencedEvent) -> bytes:
    """A server-sent event; its id is the position, which a client sends back as Last-Event-ID."""
    return b"id: %d\ndata: %b\n\n" % (event.position, event_to_json(event))


def heartbeat(as_lines: bool, position: int) -> bytes:
    """A sign of life that says up to where the subscription has looked."""
    return encode_json({"head": to_wire(position)}) + b"\n" if as_lines else b": up to %d\n\n" % position
