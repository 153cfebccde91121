"""The ASGI application: which path is answered by which handler, and what every request passes first.

A request is admitted (limits on requests, bodies and rate), its caller is identified by an API key, its handler runs,
and whatever the handler raises becomes problem+json. An error that is not ours is logged with its traceback and
answered with 500 and no detail. Nothing that a client sends ends the process, which tests/server/test_fuzz.py
attacks.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from time import monotonic, perf_counter
from typing import Final

from ..address import SQLITE, Address
from ..aio import AsyncEventStore
from ..engines.sqlite.files import size_of
from ..errors import FencepostError, StoreError
from ..observing import observe
from ..wire import problems
from ..wire.problems import problem, problem_of
from . import metrics
from .access import ANYONE, Access, Unauthenticated
from .consumers import COMMANDS, ConsumerHandlers, measure_consumers
from .dcb_adapter import DcbAdapter
from .handlers import Handlers
from .heads import Heads
from .keys import KeyFile
from .messages import (
    TIMED_OUT,
    Answer,
    BodyMemory,
    Disconnected,
    Receive,
    Refused,
    Request,
    Scope,
    Send,
    Stream,
    answer_json,
    answer_problem,
)
from .metrics import Metrics, Shared
from .observing import Observer
from .openapi import description
from .page import PAGE, POLICY
from .routing import Handler, Route, Router
from .settings import VERSION, Settings
from .streams import Streams
from .verification import Verification

log: Final = logging.getLogger("fencepost.server")

MEASURING: Final = ("/metrics", "/healthz", "/readyz")  # what the port for metrics serves


@dataclass
class Call:
    """What the metrics say about a request, filled in while it is answered."""

    name: str
    status: str = "500"


class App:
    """One store behind HTTP. To be made on the event loop that serves it."""

    def __init__(self, store: AsyncEventStore, settings: Settings) -> None:
        self.settings = settings
        self.metrics = Metrics()
        self.shared: Shared | None = None  # the metrics of other workers
        self._observing = observe(self.metrics.committed, of=store.engine)
        self._store = store
        self._keys = KeyFile(settings.keys) if settings.keys else None
        self._heads = Heads(store.engine)
        self.streams = Streams(store, self._heads, settings, self.metrics)
        self.bodies = BodyMemory(settings.max_body_memory_bytes)
        self._in_flight = 0
        self._since = monotonic()
        self._rates: dict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))
        self.metrics.set(metrics.BUILD, 1, VERSION)
        self.metrics.set(metrics.WORKERS, 1)
        self.metrics.add(metrics.STARTS)
        self.metrics.compute(metrics.UPTIME, lambda: monotonic() - self._since)
        self.metrics.compute(metrics.HEAD, lambda: self._heads.head)
        self.metrics.compute(metrics.IN_FLIGHT, lambda: self._in_flight)
        self.metrics.compute(metrics.STORE_BYTES, lambda: bytes_of(settings.store))
        self._observer = Observer(access_log=settings.access_log)
        self.handlers = Handlers(store, self._heads, settings, self.metrics, self.streams, self._observer)
        self._consumers = ConsumerHandlers(store)
        self.routes = self._made_routes()
        elsewhere = {"/metrics"} if settings.metrics_port else set()  # on a port of their own
        self._router = Router({path: route for path, route in self.routes.items() if path not in elsewhere})
        self._measuring = Router({path: self.routes[path]._replace(public=True) for path in MEASURING})

    def _made_routes(self) -> dict[str, Route]:
        handlers, consumers = self.handlers, self._consumers
        one = "/v1/consumers/{name}"
        paths: dict[str, dict[str, Handler]] = {
            "/v1/append": {"POST": handlers.append},
            "/v1/appends": {"POST": handlers.append_batch},
            "/v1/read": {"POST": handlers.read},
            "/v1/events": {"GET": handlers.read},
            "/v1/subscribe": {"GET": handlers.subscribe, "POST": handlers.subscribe},
            "/v1/head": {"GET": handlers.head},
            "/v1/recorded": {"GET": handlers.recorded},
            "/v1/restore": {"POST": handlers.restore},
            "/v1/verify": {"POST": Verification(self._store, self.settings, self.streams).verify},
            "/v1/checkpoints/{name...}": {"GET": handlers.checkpoint},
            "/v1/consumers": {"GET": consumers.statuses},
            one: {"GET": consumers.show},
            f"{one}/dead-letters": {"GET": consumers.letters},
            **{f"{one}/{path}": {"POST": consumers.command(path)} for path in COMMANDS},
            f"{one}/dead-letters/{{position}}": {"GET": consumers.letter},
            "/healthz": {"GET": always(answer_json({"status": "alive", "version": VERSION}))},
            "/readyz": {"GET": self._ready},
            "/metrics": {"GET": self._measured},
            "/openapi.json": {"GET": always(answer_json(description()))},
            "/docs": {
                "GET": always(Answer(200, PAGE, "text/html; charset=utf-8", {"content-security-policy": POLICY}))
            },
        }
        if self.settings.dcb_adapter:
            adapter = DcbAdapter(self._store, handlers)
            paths |= {"/read": {"GET": adapter.read}, "/append": {"POST": adapter.append}}
        public = {"/healthz", "/readyz", "/openapi.json", "/docs"} | (set() if self.settings.keys else {"/metrics"})
        return {
            template: Route(template.removesuffix("/{name...}"), methods, template in public)
            for template, methods in paths.items()
        }

    def drain(self) -> None:
        """Take no more requests that wait; end those that do."""
        self._observing.stop()
        self.streams.drain()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        request = Request(scope, receive, self.settings)
        with self.measured() as call, self._observer.request(request, call):
            try:
                answer = await self._answered(request, call)
                call.status = str(answer.status)
                await answer.send(request, send)
            except Disconnected:
                call.status = "499"

    @contextmanager
    def measured(self, name: str = "other") -> Iterator[Call]:
        """Count and time what the block does as a request; for both interfaces."""
        call = Call(name)
        began = perf_counter()
        self._in_flight += 1
        try:
            yield call
        finally:
            self._in_flight -= 1
            seconds = perf_counter() - began
            self.metrics.add(metrics.REQUESTS, call.name, call.status)
            self.metrics.record(metrics.LATENCY, seconds, call.name)

    async def _answered(self, request: Request, call: Call) -> Answer | Stream:
        try:
            call.name, handle, public = self._route(request)
            access = ANYONE if public else self.access_of(request.headers.get("authorization"))
            return await self._admitted(request, access, handle, public)
        except Refused as refused:
            return self._refused(refused)
        except Unauthenticated as error:
            return answer_problem(problem(problems.UNAUTHENTICATED, str(error)))
        except FencepostError as error:
            return self._failed(request, error)
        except (Disconnected, asyncio.CancelledError):
            raise
        except Exception:
            log.exception("%s %s failed, request %s", request.method, call.name, request.id)
            return answer_problem(problem(problems.INTERNAL, "the server failed; its log has the cause"))

    def _route(self, request: Request) -> tuple[str, Handler, bool]:
        own_port = self.settings.metrics_port
        route = (self._measuring if own_port and request.port == own_port else self._router).find(request)
        if route is None:
            raise Refused(problems.NOT_FOUND, f"there is nothing at {request.path!r:.200}; /docs lists what there is")
        method = "GET" if request.method == "HEAD" else request.method
        if method not in route.methods:
            allowed = ", ".join(route.methods)
            raise Refused(problems.METHOD_NOT_ALLOWED, f"{request.method:.20}: {request.path:.100} supports {allowed}")
        return route.name, route.methods[method], route.public

    def access_of(self, authorization: str | None) -> Access:
        """The caller, by the header that it sent; for both interfaces."""
        if self._keys is None:
            return ANYONE
        kind, _, secret = (authorization or "").partition(" ")
        access = self._keys.find(secret.strip()) if kind.lower() == "bearer" else None
        if access is None:
            given = "the API key is unknown, revoked or expired" if secret else "send Authorization: Bearer KEY"
            raise Unauthenticated(given)
        self._check_rate(access)
        return access

    def _check_rate(self, access: Access) -> None:
        limit = self.settings.requests_per_second
        if limit:
            second = int(monotonic())
            window, count = self._rates[access.name]
            count = count + 1 if window == second else 1
            self._rates[access.name] = (second, count)
            if count > limit:
                self.metrics.add(metrics.REFUSED, "requests_per_second")
                raise Refused(
                    problems.RATE_LIMITED, f"more than {limit} requests in a second with this key", retry_after_s=1
                )

    async def _admitted(self, request: Request, access: Access, handle: Handler, public: bool) -> Answer | Stream:
        if not public:
            self.check_room()
        if request.method in ("GET", "HEAD"):
            return await handle(request, access)
        # A body without a length may take as much as the limit.
        expected = request.content_length if request.content_length is not None else self.settings.max_body_bytes
        with self.bodies.reserved(min(expected, self.settings.max_body_bytes)) as fits:
            if not fits:
                self.metrics.add(metrics.REFUSED, "max_body_memory_bytes")
                raise Refused(problems.BUSY, "the requests in flight take all the memory for bodies", retry_after_s=1)
            return await handle(request, access)

    def check_room(self) -> None:
        """Refuse a request if too many are in flight; for both interfaces."""
        if self._in_flight - self.streams.count > self.settings.max_requests:
            self.metrics.add(metrics.REFUSED, "max_requests")
            raise Refused(
                problems.BUSY, f"{self.settings.max_requests} requests are in flight, the limit", retry_after_s=1
            )

    def _refused(self, refused: Refused) -> Answer:
        if refused.problem.status == TIMED_OUT.status:
            self.metrics.add(metrics.REAPED)
        elif refused.problem.status == problems.TOO_LARGE.status:
            self.metrics.add(metrics.REFUSED, "max_body_bytes")
        return refused.answer()

    def _failed(self, request: Request, error: FencepostError) -> Answer:
        given = problem_of(error)
        if isinstance(error, StoreError) and given.status >= 500:
            log.error("%s %s: %s, request %s", request.method, request.path, error, request.id)
            if request.path in ("/v1/append", "/v1/restore", "/append"):
                given.outcome = "unknown"
        return answer_problem(given, retry_after_s=1 if given.retryable else None)

    async def _ready(self, request: Request, access: Access) -> Answer:
        if self.streams.draining:
            raise Refused(problems.UNAVAILABLE, "the server is draining", retry_after_s=1)
        await self._store.head()
        return answer_json({"status": "ready"})

    async def _measured(self, request: Request, access: Access) -> Answer:
        access.check_unlimited("a count of all requests")
        try:
            measure_consumers(await self._consumers.known(), self.metrics)
        except FencepostError as error:  # what the server itself counts is needed most when the store fails
            measure_consumers([], self.metrics)
            log.warning("the metrics of consumers are missing: %s", error)
        text = self.metrics.text() if self.shared is None else self.shared.text()
        return Answer(200, text, metrics.MEDIA_TYPE)


def always(answer: Answer) -> Handler:
    """The handler of a path with the same answer for everyone."""

    async def handle(request: Request, access: Access) -> Answer:
        return answer

    return handle


def bytes_of(store: str) -> float:
    """The size of an SQLite store with the files beside it; 0 for a store of another engine."""
    address = Address.parse(store)
    with suppress(OSError):
        if address.kind is SQLITE:
            return size_of(address.path) + size_of(f"{address.path}-wal")
    return 0
