"""The log of a server, with a line for each request, and spans of OpenTelemetry for calls and appends.

A line has the request's id, its method, route, status and duration. It has neither the parameters nor the headers, so
an API key cannot be in it. A client may choose the id with the header `X-Request-Id`, and every answer has it.

Spans are made only if a tracer provider is configured in the process, as `opentelemetry-instrument` does. The span of
a request continues the trace of the client (`traceparent`). The span of an append lasts until its group commit is
durable. tests/server/test_observer.py checks both.
"""

from __future__ import annotations

import logging
import re
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

try:
    from opentelemetry import propagate, trace
except ImportError:  # it is optional
    propagate = trace = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from .admission import Call
    from .request import Request

log: Final = logging.getLogger("fencepost.server.requests")

REQUEST_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")


def request_id(headers: Mapping[str, str]) -> str:
    """The id that the client chose, if it is one, else a new one."""
    given = headers.get("x-request-id", "")
    return given if REQUEST_ID.fullmatch(given) else secrets.token_hex(8)


def configured_tracer() -> Any:
    """The tracer, or None if OpenTelemetry is not installed or no provider is configured."""
    if trace is None or isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        return None
    return trace.get_tracer("fencepost.server")


class Observer:
    def __init__(self, *, access_log: bool) -> None:
        self._access_log = access_log
        self._tracer = configured_tracer()

    @contextmanager
    def request(self, request: Request, call: Call) -> Iterator[None]:
        """Observe a request. `call` has its route and status when the block ends."""
        began, method = perf_counter(), request.method
        try:
            if self._tracer is None:
                yield
                return
            context = propagate.extract(request.headers)
            with self._tracer.start_as_current_span(method, context=context, kind=trace.SpanKind.SERVER) as span:
                try:
                    yield
                finally:
                    span.update_name(f"{method} {call.name}")
                    span.set_attribute("http.request.method", method)
                    span.set_attribute("http.route", call.name)
                    span.set_attribute("http.response.status_code", int(call.status))
                    span.set_attribute("fencepost.request_id", request.id)
        finally:
            if self._access_log:
                self._write(request.id, request.method, call, perf_counter() - began)

    @contextmanager
    def call(self, headers: Mapping[str, str], call: Call) -> Iterator[None]:
        """Observe a call over gRPC. `call` has its name and status when the block ends."""
        began = perf_counter()
        try:
            if self._tracer is None:
                yield
                return
            context = propagate.extract(headers)
            with self._tracer.start_as_current_span(call.name, context=context, kind=trace.SpanKind.SERVER) as span:
                try:
                    yield
                finally:
                    span.set_attribute("rpc.system", "grpc")
                    span.set_attribute("rpc.grpc.status", call.status)
        finally:
            if self._access_log:
                self._write(request_id(headers), "gRPC", call, perf_counter() - began)

    @contextmanager
    def append(self, events: int, conditions: int) -> Iterator[dict[str, Any]]:
        """Observe an append. The block puts what it knows of the outcome into the mapping."""
        outcome: dict[str, Any] = {}
        if self._tracer is None:
            yield outcome
            return
        with self._tracer.start_as_current_span("fencepost.append") as span:
            try:
                yield outcome
            finally:
                known = {"fencepost.events": events, "fencepost.conditions": conditions, **outcome}
                for name, value in known.items():
                    span.set_attribute(name, value)

    def _write(self, id: str, method: str, call: Call, seconds: float) -> None:
        fields = {
            "request_id": id,
            "method": method,
            "path": call.name,
            "status": call.status,
            "duration_ms": round(1_000 * seconds, 3),
        }
        text = "%(method)s %(path)s %(status)s in %(duration_ms)s ms, request %(request_id)s"
        log.info(text, fields, extra={"fields": fields})
