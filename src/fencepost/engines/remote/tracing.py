"""The caller's trace in the headers of its requests, if the program uses OpenTelemetry.

The server continues the trace: its spans of the request and of the append become children of the caller's span. Appends
of several callers may travel in one request; then it is the trace of the caller that sends it. Without OpenTelemetry,
or outside of a span, no header is sent. tests/server/test_observing.py holds this.
"""

from __future__ import annotations

try:
    from opentelemetry import propagate, trace
except ImportError:  # it is optional
    propagate = trace = None  # type: ignore[assignment]


def trace_headers() -> dict[str, str]:
    """The headers that name the current span; none if there is no span."""
    if trace is None or not trace.get_current_span().get_span_context().is_valid:
        return {}
    headers: dict[str, str] = {}
    propagate.inject(headers)
    return headers
