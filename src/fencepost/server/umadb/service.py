"""The service `umadb.v1.DCB`, also under its old name, and the health service, served by grpcio.

Each call is one of the store's: Read and Subscribe stream batches, Append is one conditional append, Head and
GetTrackingInfo are lookups. Errors carry an ErrorResponse in the status details, as UmaDB's clients expect. Callers,
rights, scopes and limits are those of the HTTP interface (`admission`). Metrics count each call as a request with the
path `umadb/CALL` and the name of its gRPC status.

On the wire, a request of one message and a stream of requests look the same. Every call is registered as a stream, so
that its caller is known and admitted before its message is received. tests/server/test_umadb.py and
tests/server/test_floods.py check this.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import ExitStack, aclosing
from pathlib import Path
from typing import Any, Final, NamedTuple

import grpc
from google.protobuf.message import DecodeError
from grpc import StatusCode

from ... import SequencedEvent
from ...engine import Append
from ...errors import (
    AccessDenied,
    AppendRefused,
    CheckpointBehind,
    FencepostError,
    InvalidInput,
    StoreCorrupt,
    StoreUnavailable,
)
from .. import metrics
from ..access import ANYONE, Access, Right
from ..admission import Admission, Refused, Room
from ..certificate import Certificate
from ..settings import Settings
from ..streams import Reading, Streams
from ..wire.problems import BUSY, RATE_LIMITED, TIMED_OUT, UNAUTHENTICATED
from . import protobuf
from .mapping import CHECKPOINTS, add_events, checked_position, checkpoint_of, condition_from, events_from, query_from

log: Final = logging.getLogger("fencepost.server")

SERVICES: Final = ("umadb.v1.DCB", "umadb.UmaDBService")
HEALTH_SERVICE: Final = "grpc.health.v1.Health"
SERVING, NOT_SERVING = 1, 2
BATCH_EVENTS: Final = 1_024
LARGEST_BATCH: Final = 4_096
BATCH_BYTES: Final = 1_048_576  # of data in one message: many gRPC clients refuse messages of more than 4 MB
LONGEST_MESSAGE: Final = 1_000  # characters of an error's text
HEARTBEAT_S: Final = 5.0
WATCH_S: Final = 1.0  # how often a watch looks at the health of the server
MAX_HEADERS_BYTES: Final = 16_384
IDLE_S: Final = 300.0  # a connection without calls is closed after this time
KEEPALIVE_S: Final = 30.0  # a client that does not answer a ping of the server is disconnected

# The kinds of UmaDB's ErrorResponse, and the status that its clients expect with each.
IO, SERIALIZATION, INTEGRITY, CORRUPTION, INTERNAL, AUTHENTICATION, INVALID_ARGUMENT = range(7)
STATUS: Final = {
    IO: StatusCode.INTERNAL,
    SERIALIZATION: StatusCode.INVALID_ARGUMENT,
    INTEGRITY: StatusCode.FAILED_PRECONDITION,
    CORRUPTION: StatusCode.DATA_LOSS,
    INTERNAL: StatusCode.INTERNAL,
    AUTHENTICATION: StatusCode.UNAUTHENTICATED,
    INVALID_ARGUMENT: StatusCode.INVALID_ARGUMENT,
}
OF_ERRORS: Final[tuple[tuple[type[FencepostError], int], ...]] = (
    (InvalidInput, INVALID_ARGUMENT),
    (AccessDenied, AUTHENTICATION),
    (AppendRefused, INTEGRITY),
    (StoreCorrupt, CORRUPTION),
    (FencepostError, IO),
)
OF_REFUSALS: Final = {
    BUSY.type: StatusCode.RESOURCE_EXHAUSTED,
    RATE_LIMITED.type: StatusCode.RESOURCE_EXHAUSTED,
    TIMED_OUT.type: StatusCode.DEADLINE_EXCEEDED,
    UNAUTHENTICATED.type: StatusCode.UNAUTHENTICATED,
}


class Failure(Exception):
    """The call ends with this status."""

    def __init__(self, status: StatusCode, message: str, kind: int | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message[:LONGEST_MESSAGE]
        self.kind = kind  # of the ErrorResponse

    def set_on(self, context: Any) -> None:
        context.set_code(self.status)
        context.set_details(self.message)
        if self.kind is not None:
            details = protobuf.ErrorResponse(message=self.message, error_type=self.kind).SerializeToString()
            context.set_trailing_metadata((("grpc-status-details-bin", details),))


class Method(NamedTuple):
    """A call with one answer or, if it `streams`, any number of them."""

    name: str  # of its metrics
    request: Any  # the class of its request message
    answer: Callable[[Any, Access, Room], Any]
    streams: bool = False
    public: bool = False  # answered without an API key


class UmadbService(grpc.GenericRpcHandler):  # type: ignore[misc]
    """The calls over a store."""

    def __init__(self, admission: Admission, streams: Streams) -> None:
        self._admission = admission
        self._store = admission.store
        self._streams = streams
        self._handlers = {path: self._handler(method) for path, method in self._methods().items()}

    def service(self, handler_call_details: Any) -> Any:
        return self._handlers.get(handler_call_details.method)

    async def append(self, request: Any, access: Access, room: Room) -> Any:
        access.check(Right.APPEND)
        tracking = request.tracking_info if request.HasField("tracking_info") else None
        if not request.events and tracking is None:
            return protobuf.AppendResponse()
        events = events_from(request.events, tracking)
        conditions = (condition_from(request.condition),) if request.HasField("condition") else ()
        checkpoint = None if tracking is None else (checkpoint_of(tracking.source), tracking.position + 1)
        outcome = await self._admission.place(access, Append(tuple(events), conditions, None, checkpoint))
        if isinstance(outcome, CheckpointBehind):
            raise CheckpointBehind(outcome.name.removeprefix(CHECKPOINTS), outcome.position - 1, outcome.current - 1)
        if isinstance(outcome, FencepostError):
            raise outcome
        return protobuf.AppendResponse(position=checked_position(outcome.last) if events else 0)

    async def head(self, request: Any, access: Access, room: Room) -> Any:
        access.check(Right.READ)
        head = await self._admission.head_of(access)
        return protobuf.HeadResponse(position=checked_position(head) or None)

    async def tracking(self, request: Any, access: Access, room: Room) -> Any:
        access.check(Right.READ)
        position = await self._store.checkpoint(access.stored_name(checkpoint_of(request.source), "source"))
        return protobuf.TrackingResponse(position=position - 1 if position else None)

    async def read(self, request: Any, access: Access, room: Room) -> AsyncIterator[Any]:
        access.check(Right.READ)
        if request.subscribe:
            raise InvalidInput("subscribe", "Read does not follow new events; call Subscribe")
        limit = request.limit if request.HasField("limit") else None
        if limit == 0:
            return
        query = access.scope.narrowed(query_from(request.query if request.HasField("query") else None))
        size = batch_size(request)
        after, up_to = 0, None
        if request.HasField("start"):
            if request.backwards:
                up_to = request.start
            else:
                after = max(request.start - 1, 0)
        head: int | None = None
        sent = False
        wanted = Reading(query, after, up_to, limit, request.backwards)
        async for reach, page in self._streams.pages(wanted, access):
            if limit is None and head is None:
                is_whole = up_to is None and not access.scope.is_limited
                head = reach if is_whole else await self._admission.head_of(access)
            for batch in batches_of(page, size):
                sent = True
                made = protobuf.ReadResponse(head=head if limit is None else checked_position(batch[-1].position))
                add_events(made, batch)
                yield made
            if not self._admission.is_valid(access):
                raise Refused(UNAUTHENTICATED, "the API key was revoked or has expired")
        if not sent:
            yield protobuf.ReadResponse(head=head or None)

    async def subscribe(self, request: Any, access: Access, room: Room) -> AsyncIterator[Any]:
        access.check(Right.READ)
        query = access.scope.narrowed(query_from(request.query if request.HasField("query") else None))
        size = batch_size(request)
        after = request.after if request.HasField("after") else 0
        room.enter(self._admission.subscriptions)
        yield None  # the headers, at once: clients wait for them
        with self._streams.opened(access, after) as stream:
            async for found in self._streams.batches(stream, query, after, size, HEARTBEAT_S):
                for batch in batches_of(found, size):
                    made = protobuf.SubscribeResponse()
                    add_events(made, batch)
                    yield made

    async def check_health(self, request: Any, access: Access, room: Room) -> Any:
        if request.service not in ("", *SERVICES):
            raise Failure(StatusCode.NOT_FOUND, f"unknown service {request.service!r:.80}")
        return protobuf.HealthCheckResponse(status=SERVING if await self._admission.is_ready() else NOT_SERVING)

    async def watch_health(self, request: Any, access: Access, room: Room) -> AsyncIterator[Any]:
        before = None
        with self._streams.opened(access, self._admission.heads.head) as stream:
            while stream.reason is None:
                now = await self.check_health(request, access, room)
                if now != before:
                    yield now
                    before = now
                try:
                    await asyncio.wait_for(stream.ended.wait(), WATCH_S)
                except TimeoutError:
                    continue
        yield protobuf.HealthCheckResponse(status=NOT_SERVING)
        raise Failure(StatusCode.UNAVAILABLE, "the server is draining")

    def _methods(self) -> dict[str, Method]:
        check, watch = self.check_health, self.watch_health
        calls = {
            "Append": Method("umadb/Append", protobuf.AppendRequest, self.append),
            "Head": Method("umadb/Head", protobuf.HeadRequest, self.head),
            "GetTrackingInfo": Method("umadb/GetTrackingInfo", protobuf.TrackingRequest, self.tracking),
            "Read": Method("umadb/Read", protobuf.ReadRequest, self.read, streams=True),
            "Subscribe": Method("umadb/Subscribe", protobuf.SubscribeRequest, self.subscribe, streams=True),
        }
        health = {
            "Check": Method("umadb/Check", protobuf.HealthCheckRequest, check, public=True),
            "Watch": Method("umadb/Watch", protobuf.HealthCheckRequest, watch, streams=True, public=True),
        }
        paths = {f"/{service}/{name}": call for service in SERVICES for name, call in calls.items()}
        return {**paths, **{f"/{HEALTH_SERVICE}/{name}": call for name, call in health.items()}}

    def _handler(self, method: Method) -> Any:
        async def handle(requests: Any, context: Any) -> bytes:
            return await self._serve(method, context)

        if method.streams:
            return grpc.stream_stream_rpc_method_handler(handle)
        return grpc.stream_unary_rpc_method_handler(handle)

    async def _serve(self, method: Method, context: Any) -> bytes:
        """Find the caller, count the call, answer it, and end it with the status of the error that is raised."""
        headers = dict(context.invocation_metadata() or ())
        with self._admission.measure(method.name) as call, self._admission.observer.call(headers, call):
            call.status = StatusCode.CANCELLED.name  # if it ends in no other way
            answer = b""
            try:
                answer = await self._answer(method, context, headers.get("authorization"))
                call.status = StatusCode.OK.name
            except Exception as error:
                failure = failure_of(error, method)
                call.status = failure.status.name
                failure.set_on(context)
            return answer

    async def _answer(self, method: Method, context: Any, authorization: str | None) -> bytes:
        access = ANYONE if method.public else self._admission.identify(authorization)
        address = context.peer().rpartition(":")[0]
        with ExitStack() as taken:
            room = taken.enter_context(self._admission.admit(access, address, public=method.public))
            # A call whose client does not read keeps its room until the client takes the end of the call, or goes.
            taken_until_end = taken.pop_all()
            context.add_done_callback(lambda _: taken_until_end.close())
        request = method.request.FromString(await self._receive(context, room))
        if not method.streams:
            return bytes((await method.answer(request, access, room)).SerializeToString())
        async with aclosing(method.answer(request, access, room)) as answers:
            async for answer in answers:
                await self._send(context, answer)
        return b""

    async def _receive(self, context: Any, room: Room) -> bytes:
        limit_s = self._admission.settings.request_timeout_s
        try:
            async with asyncio.timeout(limit_s):
                message = await context.read()
        except TimeoutError:
            self._admission.metrics.add(metrics.REAPED)
            raise Refused(TIMED_OUT, f"the message did not arrive within {limit_s:g} s") from None
        if message is grpc.aio.EOF:
            raise Failure(StatusCode.INVALID_ARGUMENT, "the call has no message", SERIALIZATION)
        room.reserve(len(message))
        return bytes(message)

    async def _send(self, context: Any, answer: Any) -> None:
        try:
            async with asyncio.timeout(self._admission.settings.stalled_client_s):
                if answer is None:
                    await context.send_initial_metadata(())
                else:
                    await context.write(answer.SerializeToString())
        except TimeoutError:
            self._admission.metrics.add(metrics.REAPED)
            raise Failure(StatusCode.UNAVAILABLE, "the client does not read") from None


class GrpcServer:
    """grpcio's asyncio server with the service, on the port of the settings."""

    def __init__(self, admission: Admission, streams: Streams) -> None:
        self._settings = admission.settings
        self._server = grpc.aio.server(options=list(server_options(self._settings).items()))
        self._server.add_generic_rpc_handlers((UmadbService(admission, streams),))

    async def start(self) -> None:
        host, port = self._settings.host, self._settings.grpc_port
        target = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        try:
            if self._settings.has_tls:
                self._server.add_secure_port(target, credentials(self._settings))
            else:
                self._server.add_insecure_port(target)
        except RuntimeError:
            raise StoreUnavailable(f"{target}: cannot listen there for gRPC; another program may do so") from None
        await self._server.start()
        log.info("serving UmaDB's interface on %s", target)

    async def stop(self, grace_s: float) -> None:
        """Accept no more calls, let those in flight end for `grace_s` seconds, then disconnect the clients."""
        await self._server.stop(grace_s)


def server_options(settings: Settings) -> dict[str, int]:
    return {
        "grpc.max_receive_message_length": settings.max_grpc_message_bytes,  # compressed, and again when unpacked
        "grpc.max_metadata_size": MAX_HEADERS_BYTES,
        "grpc.max_concurrent_streams": settings.max_requests + settings.max_subscriptions,
        "grpc.max_allowed_incoming_connections": settings.max_connections,
        "grpc.max_connection_idle_ms": int(1_000 * IDLE_S),
        "grpc.server_handshake_timeout_ms": int(1_000 * settings.request_timeout_s),
        "grpc.keepalive_time_ms": int(1_000 * KEEPALIVE_S),
        "grpc.keepalive_timeout_ms": int(1_000 * settings.stalled_client_s),
        "grpc.keepalive_permit_without_calls": 1,
        "grpc.http2.min_ping_interval_without_data_ms": 10_000,
        # Workers share the port. A single process must not share it with another server by accident.
        "grpc.so_reuseport": int(settings.workers > 1),
    }


def credentials(settings: Settings) -> Any:
    """The certificate of the settings, looked at again at each handshake."""
    certificate = Certificate(settings)
    authorities = Path(settings.tls_client_ca).read_bytes() if settings.tls_client_ca else None

    def configuration() -> Any:
        return grpc.ssl_server_certificate_configuration([certificate.pair], root_certificates=authorities)

    def changed() -> Any:
        return configuration() if certificate.reload() else None

    return grpc.dynamic_ssl_server_credentials(
        configuration(), changed, require_client_authentication=authorities is not None
    )


def failure_of(error: Exception, method: Method) -> Failure:
    """How the call ends after the error: the status, and the kind among UmaDB's, which has none for a limit."""
    if isinstance(error, Failure):
        return error
    if isinstance(error, Refused):
        return Failure(OF_REFUSALS.get(error.problem.type, StatusCode.UNAVAILABLE), str(error), IO)
    if isinstance(error, FencepostError):
        kind = next(kind for of, kind in OF_ERRORS if isinstance(error, of))
        if kind in (IO, CORRUPTION):
            log.error("gRPC: %s: %s", method.name, error)
        if kind == IO and method.streams:
            return Failure(StatusCode.UNAVAILABLE, str(error), kind)
        return Failure(STATUS[kind], str(error), kind)
    if isinstance(error, DecodeError):
        return Failure(StatusCode.INVALID_ARGUMENT, "the request message cannot be decoded", SERIALIZATION)
    log.error("gRPC: %s failed", method.name, exc_info=error)
    return Failure(StatusCode.INTERNAL, "the server failed; its log has the cause")


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
