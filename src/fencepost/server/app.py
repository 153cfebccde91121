"""The ASGI application: which path is answered by which handler, and what every request passes first.

A request is routed, its caller is identified by an API key and admitted (`admission`), its handler runs, and whatever
the handler raises becomes problem+json. An error that is not ours is logged with its traceback and answered with 500
and no detail. Without keys, a request of a web page that another site has served is refused: its `Origin` or `Host`
names that site. Nothing that a client sends ends the process, which tests/server/test_fuzz.py attacks.
"""

from __future__ import annotations

import asyncio
import logging
import os
from contextlib import suppress
from typing import Final
from urllib.parse import SplitResult, urlsplit

from ..engine import SQLITE, Address
from ..errors import FencepostError, StoreError
from . import metrics
from .access import ANYONE, Access, Unauthenticated
from .admission import Admission, AppendFailed, Call, Refused
from .certificate import Certificate
from .consumers import COMMANDS, ConsumerHandlers, measure_consumers
from .dcb_adapter import DcbAdapter
from .docs_page import DESCRIPTION, POLICY, page
from .handlers import Handlers
from .metrics import Shared
from .remote.transport import is_this_machine
from .request import (
    Answer,
    Disconnected,
    Receive,
    Request,
    Scope,
    Send,
    Stream,
    answer_json,
    answer_problem,
    answer_refused,
)
from .routes import Handler, Route, Router
from .settings import VERSION
from .streams import Streams
from .verification import Verification
from .wire import problems
from .wire.problems import problem, problem_of

log: Final = logging.getLogger("fencepost.server")

MEASURING: Final = ("/metrics", "/healthz", "/readyz")  # what the port for metrics serves


class App:
    """One store behind HTTP."""

    def __init__(self, admission: Admission, streams: Streams) -> None:
        self.admission = admission
        self.settings = settings = admission.settings
        self.metrics = admission.metrics
        self.streams = streams
        self.shared: Shared | None = None  # the metrics of other workers
        self.certificate = Certificate(settings) if settings.has_tls else None
        self._store = admission.store
        self.metrics.compute(metrics.STORE_BYTES, lambda: bytes_of(settings.store))
        self._is_local = not settings.keys and is_this_machine(settings.host)
        self._consumers = ConsumerHandlers(admission.store)
        self.routes = self._made_routes()
        elsewhere = {"/metrics"} if settings.metrics_port else set()  # on a port of their own
        self._router = Router({path: route for path, route in self.routes.items() if path not in elsewhere})
        self._measuring = Router({path: self.routes[path]._replace(public=True) for path in MEASURING})

    def _made_routes(self) -> dict[str, Route]:
        handlers, consumers = Handlers(self.admission, self.streams), self._consumers
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
            "/v1/verify": {"POST": Verification(self.admission).verify},
            "/v1/checkpoints": {"GET": handlers.checkpoints},
            "/v1/checkpoints/{name...}": {"GET": handlers.checkpoint},
            "/v1/records": {"GET": handlers.records},
            "/v1/records/{name...}": {
                "GET": handlers.record,
                "PUT": handlers.put_record,
                "DELETE": handlers.delete_record,
            },
            "/v1/consumers": {"GET": consumers.statuses},
            one: {"GET": consumers.show},
            f"{one}/dead-letters": {"GET": consumers.letters},
            **{f"{one}/{path}": {"POST": consumers.command(path)} for path in COMMANDS},
            f"{one}/dead-letters/{{position}}": {"GET": consumers.letter},
            "/healthz": {"GET": always(answer_json({"status": "alive", "version": VERSION}))},
            "/readyz": {"GET": self._ready},
            "/metrics": {"GET": self._measured},
            "/openapi.json": {"GET": always(answer_json(DESCRIPTION))},
            "/docs": {"GET": self._docs},
        }
        if self.settings.dcb_adapter:
            adapter = DcbAdapter(self.admission)
            paths |= {"/read": {"GET": adapter.read}, "/append": {"POST": adapter.append}}
        public = {"/healthz", "/readyz", "/openapi.json", "/docs"} | (set() if self.settings.keys else {"/metrics"})
        return {
            template: Route(template.removesuffix("/{name...}"), methods, template in public)
            for template, methods in paths.items()
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        request = Request(scope, receive, self.settings)
        with self.admission.measure() as call, self.admission.observer.request(request, call):
            try:
                await self._respond(request, call, send)
            except Disconnected:
                call.status = "499"

    async def _respond(self, request: Request, call: Call, send: Send) -> None:
        try:
            call.name, handle, public = self._route(request)
            if not self.settings.keys:
                self._check_origin(request)
            access = ANYONE if public else self.admission.identify(request.headers.get("authorization"))
            with self.admission.admit(access, request.address, public=public) as room:
                request.room = room
                answer = await self._handle(request, call, handle, access)
                call.status = str(answer.status)
                await answer.send(request, send)
                return
        except Refused as refused:
            refusal = self._refuse(refused)
        except Unauthenticated as error:
            refusal = answer_problem(problem(problems.UNAUTHENTICATED, str(error)))
        call.status = str(refusal.status)
        await refusal.send(request, send)

    async def _handle(self, request: Request, call: Call, handle: Handler, access: Access) -> Answer | Stream:
        try:
            return await handle(request, access)
        except Refused as refused:
            return self._refuse(refused)
        except FencepostError as error:
            return self._fail(request, error)
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
            allowed = ", ".join([*route.methods, *(["HEAD"] if "GET" in route.methods else [])])
            refused = Refused(
                problems.METHOD_NOT_ALLOWED, f"{request.method:.20}: {request.path:.100} supports {allowed}"
            )
            refused.headers["allow"] = allowed
            raise refused
        return route.name, route.methods[method], route.public

    def _check_origin(self, request: Request) -> None:
        """Refuse what a web page of another site sends. Without keys, every page that a user visits could append."""
        host, origin = request.headers.get("host", ""), request.headers.get("origin")
        if self._is_local and not is_this_machine(split_url(f"//{host}").hostname or ""):
            raise Refused(problems.FORBIDDEN, f"Host: {host!r:.80} is not this machine; without API keys it must be")
        if origin is not None and split_url(origin).netloc != host:
            raise Refused(problems.FORBIDDEN, f"Origin: {origin!r:.80} is another site; without API keys it is refused")

    def _refuse(self, refused: Refused) -> Answer:
        if refused.problem.status == problems.TIMED_OUT.status:
            self.metrics.add(metrics.REAPED)
        elif refused.problem.status == problems.TOO_LARGE.status:
            self.metrics.add(metrics.REFUSED, "max_body_bytes")
        return answer_refused(refused)

    def _fail(self, request: Request, error: FencepostError) -> Answer:
        if isinstance(error, AppendFailed):
            given = problem_of(error.cause)
            given.outcome, given.retryable = "unknown", False
            return answer_problem(given)
        given = problem_of(error)
        if isinstance(error, StoreError) and given.status >= 500:
            log.error("%s %s: %s, request %s", request.method, request.path, error, request.id)
            if request.path == "/v1/restore":
                given.outcome, given.retryable = "unknown", False
        return answer_problem(given, retry_after_s=1 if given.retryable else None)

    async def _docs(self, request: Request, access: Access) -> Answer:
        host = request.headers.get("host", "localhost")
        base = f"{'https' if self.settings.has_tls else 'http'}://{host:.200}"
        return Answer(200, page(base), "text/html; charset=utf-8", {"content-security-policy": POLICY})

    async def _ready(self, request: Request, access: Access) -> Answer:
        await self.admission.check_ready()
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


def split_url(text: str) -> SplitResult:
    """The parts of a URL; all of them are empty if it is malformed."""
    try:
        return urlsplit(text)
    except ValueError:  # such as brackets that are not closed
        return urlsplit("")


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
            files = (address.path, f"{address.path}-wal")
            return sum(os.path.getsize(file) for file in files if os.path.exists(file))
    return 0
