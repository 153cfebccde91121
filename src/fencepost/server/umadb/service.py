"""The service `umadb.v1.DCB`, also under its old name, and the health service.

Each call is one of the store's: Read and Subscribe stream batches, Append is one conditional append, Head and
GetTrackingInfo are lookups. Errors carry an ErrorResponse in the status details, as UmaDB's clients expect. API keys,
rights, scopes and limits are those of the HTTP interface. Metrics count each call as a request with the path
`umadb/CALL` and the name of its gRPC status.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from google.protobuf.message import DecodeError

from ...aio import AsyncEventStore
from ...core.judging import Append
from ...errors import (
    AccessDenied,
    AppendRefused,
    FencepostError,
    InvalidInput,
    StoreCorrupt,
)
from ...model import SequencedEvent
from .. import metrics
from ..access import ANYONE, Access, Right
from ..http2 import statuses
from ..http2.statuses import NAMES, Failure
from ..http2.streams import Stream
from ..messages import Refused
from . import messages
from .encoding import events_bytes, position_bytes, read_response_bytes
from .mapping import checkpoint_of, condition_from, events_from, query_from

if TYPE_CHECKING:
    from ..app import App

log: Final = logging.getLogger("fencepost.server")

SERVICES: Final = ("umadb.v1.DCB", "umadb.UmaDBService")
HEALTH_SERVICE: Final = "grpc.health.v1.Health"
BATCH_EVENTS: Final = 1_024
LARGEST_BATCH: Final = 4_096
BATCH_BYTES: Final = 1_048_576  # of data in one message: many gRPC clients refuse messages of more than 4 MB
LONGEST_MESSAGE: Final = 1_000  # characters of an error's text
SERVING: Final = bytes(messages.HealthCheckResponse(status=1).SerializeToString())
HEARTBEAT_S: Final = 5.0

# The kinds of UmaDB's ErrorResponse, and the status that its clients expect with each.
IO, SERIALIZATION, INTEGRITY, CORRUPTION, INTERNAL, AUTHENTICATION, INVALID_ARGUMENT = range(7)
STATUS: Final = {
    IO: statuses.INTERNAL,
    SERIALIZATION: statuses.INVALID_ARGUMENT,
    INTEGRITY: statuses.FAILED_PRECONDITION,
    CORRUPTION: statuses.DATA_LOSS,
    INTERNAL: statuses.INTERNAL,
    AUTHENTICATION: statuses.UNAUTHENTICATED,
    INVALID_ARGUMENT: statuses.INVALID_ARGUMENT,
}
OF_ERRORS: Final[tuple[tuple[type[FencepostError], int], ...]] = (
    (InvalidInput, INVALID_ARGUMENT),
    (AccessDenied, AUTHENTICATION),
    (AppendRefused, INTEGRITY),
    (StoreCorrupt, CORRUPTION),
    (FencepostError, IO),
)


class Call(NamedTuple):
    """A call with one answer or, if it `streams`, any number of them; one that `follows` has no end of its own."""

    name: str  # of its metrics
    request: Any  # the class of its request message
    answer: Callable[[Any, Access], Any]
    streams: bool = False
    follows: bool = False
    public: bool = False  # answered without an API key


class UmadbService:
    """The calls over a store. The application of the HTTP interface knows callers, limits and metrics."""

    def __init__(self, store: AsyncEventStore, app: App) -> None:
        self._store = store
        self._app = app
        self._calls = self._made_calls()

    async def append(self, request: Any, access: Access) -> bytes:
        access.check(Right.APPEND)
        if not request.events:
            return position_bytes(0)
        tracking = request.tracking_info if request.HasField("tracking_info") else None
        events = events_from(request.events, tracking)
        conditions = (condition_from(request.condition),) if request.HasField("condition") else ()
        checkpoint = None if tracking is None else (checkpoint_of(tracking.source), tracking.position)
        outcome = await self._app.handlers.place(access, Append(tuple(events), conditions, None, checkpoint))
        if isinstance(outcome, FencepostError):
            raise outcome
        return position_bytes(outcome.last)

    async def head(self, request: Any, access: Access) -> bytes:
        access.check(Right.READ)
        return position_bytes(await self._app.handlers.visible_head(access))

    async def tracking(self, request: Any, access: Access) -> bytes:
        access.check(Right.READ)
        return position_bytes(await self._store.checkpoint(access.checkpoint(checkpoint_of(request.source))))

    async def read(self, request: Any, access: Access) -> AsyncIterator[bytes]:
        access.check(Right.READ)
        if request.subscribe:
            raise InvalidInput("subscribe", "Read does not follow new events; call Subscribe")
        limit = request.limit if request.HasField("limit") else None
        if limit == 0:
            return
        query = access.scope.narrowed(query_from(request.query if request.HasField("query") else None))
        size = batch_size(request)
        after, upto = 0, None
        if request.HasField("start"):
            if request.backwards:
                upto = request.start
            else:
                after = max(request.start - 1, 0)
        if query is None:
            yield b""
            return
        reading = await self._store.read(query, after=after, upto=upto, limit=limit, backwards=request.backwards)
        head: int | None = None
        if limit is None:
            is_whole = upto is None and not access.scope.is_limited
            head = reading.upto if is_whole else await self._app.handlers.visible_head(access)
        sent = False
        async for page in reading.pages():
            self._app.metrics.add(metrics.READ, amount=len(page))
            for batch in batches_of(page, size):
                sent = True
                yield read_response_bytes(batch, head if limit is None else batch[-1].position)
        if not sent:
            yield read_response_bytes((), head)

    async def subscribe(self, request: Any, access: Access) -> AsyncIterator[bytes]:
        access.check(Right.READ)
        query = access.scope.narrowed(query_from(request.query if request.HasField("query") else None))
        size = batch_size(request)
        after = request.after if request.HasField("after") else 0
        streams = self._app.streams
        streams.check_room()
        with streams.counted(after) as token:
            if query is None:  # the scope and the query have no event in common, now or ever
                await asyncio.Event().wait()  # until the client, or the end of the server, cancels the call
                return
            async with self._store.subscribe(query, after=after, timeout=HEARTBEAT_S) as subscription:
                while not streams.draining:
                    async for event in subscription:
                        found = [event, *subscription.ready(size - 1)]
                        self._app.metrics.add(metrics.READ, amount=len(found))
                        for batch in batches_of(found, size):
                            yield events_bytes(batch)
                        streams.moved(token, found[-1].position)
                    streams.moved(token, subscription.position)

    async def check_health(self, request: Any, access: Access) -> bytes:
        if request.service not in ("", *SERVICES):
            raise Failure(statuses.NOT_FOUND, f"unknown service {request.service!r:.80}")
        return SERVING

    async def watch_health(self, request: Any, access: Access) -> AsyncIterator[bytes]:
        yield await self.check_health(request, access)
        await asyncio.Event().wait()  # until the client, or the end of the server, cancels the call

    def _made_calls(self) -> dict[str, Call]:
        check, watch = self.check_health, self.watch_health
        calls = {
            "Append": Call("umadb/Append", messages.AppendRequest, self.append),
            "Head": Call("umadb/Head", messages.HeadRequest, self.head),
            "GetTrackingInfo": Call("umadb/GetTrackingInfo", messages.TrackingRequest, self.tracking),
            "Read": Call("umadb/Read", messages.ReadRequest, self.read, streams=True),
            "Subscribe": Call("umadb/Subscribe", messages.SubscribeRequest, self.subscribe, streams=True, follows=True),
        }
        health = {
            "Check": Call("umadb/Check", messages.HealthCheckRequest, check, public=True),
            "Watch": Call("umadb/Watch", messages.HealthCheckRequest, watch, streams=True, follows=True, public=True),
        }
        paths = {f"/{service}/{name}": call for service in SERVICES for name, call in calls.items()}
        return {**paths, **{f"/{HEALTH_SERVICE}/{name}": call for name, call in health.items()}}

    async def serve(self, stream: Stream) -> None:
        """Answer a call: find the caller, count the call, and end it with the status of the error that is raised."""
        call = self._calls.get(stream.head.path)
        if call is None:
            stream.finish(statuses.UNIMPLEMENTED, f"there is no call {stream.head.path!r:.80}")
            return
        with self._app.measured(call.name) as measured:
            measured.status = NAMES[statuses.CANCELLED]  # if it ends in no other way
            try:
                access = ANYONE
                if not call.public:
                    access = self._app.access_of(stream.head.headers.get("authorization"))
                    self._app.check_room()
                request = call.request.FromString(stream.message(self._app.settings.max_body_bytes))
                if call.streams:
                    stream.follows = call.follows
                    async with aclosing(call.answer(request, access)) as answers:
                        async for answer in answers:
                            await stream.send(answer)
                else:
                    answer = await call.answer(request, access)
                    if not stream.answer(answer):
                        await stream.send(answer)
                measured.status = NAMES[statuses.OK]
                stream.finish()
            except Exception as error:
                failure = failure_of(error, call)
                measured.status = NAMES[failure.status]
                stream.finish(failure.status, failure.message, failure.details)


def failure_of(error: Exception, call: Call) -> Failure:
    """How the call ends after the error: the status, and the kind among UmaDB's, which has none for a limit."""
    if isinstance(error, Failure):
        return error
    if isinstance(error, Refused):
        return failure(statuses.RESOURCE_EXHAUSTED, str(error), IO)
    if isinstance(error, FencepostError):
        kind = next(kind for of, kind in OF_ERRORS if isinstance(error, of))
        if kind in (IO, CORRUPTION):
            log.error("gRPC: %s", error)
        return failure(STATUS[kind], str(error), kind)
    if isinstance(error, DecodeError):
        return failure(statuses.INVALID_ARGUMENT, "the request message cannot be decoded", SERIALIZATION)
    log.error("gRPC: %s failed", call.name, exc_info=error)
    return Failure(statuses.INTERNAL, "the server failed; its log has the cause")


def failure(status: int, message: str, kind: int) -> Failure:
    details = messages.ErrorResponse(message=message[:LONGEST_MESSAGE], error_type=kind).SerializeToString()
    return Failure(status, message, bytes(details))


def batches_of(events: Sequence[SequencedEvent], size: int) -> Iterator[Sequence[SequencedEvent]]:
    """The events in batches of at most `size` events and about BATCH_BYTES of data."""
    if len(events) <= size and sum([len(event.data) for event in events]) <= BATCH_BYTES:
        if events:
            yield events
        return
    first = taken = 0
    for index, event in enumerate(events):
        if index > first and (index - first == size or taken + len(event.data) > BATCH_BYTES):
            yield events[first:index]
            first, taken = index, 0
        taken += len(event.data)
    yield events[first:]


def batch_size(request: Any) -> int:
    asked = request.batch_size if request.HasField("batch_size") else BATCH_EVENTS
    return int(min(max(asked, 1), LARGEST_BATCH))
