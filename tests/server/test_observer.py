"""Logs and traces: what an operator sees of a request, and never a key."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from opentelemetry import trace

import fencepost.aio
from fencepost import Event
from fencepost.core.log_lines import JsonLines
from fencepost.server import observer

from .running import RunningServer

OPENED = {"type": "WalletOpened", "tags": ["wallet:w1"]}
UNOPENED = {"fail_if_events_match": {"items": [{"types": ["WalletOpened"]}]}}


def test_a_request_is_a_line_with_its_route_status_and_id(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="fencepost.server.requests")
    with RunningServer(str(tmp_path / "wallet.db"), access_log=True) as server:
        answer = httpx.get(f"{server.url}/v1/checkpoints/secret?x=secret", headers={"X-Request-Id": "mine-1"})
        assert answer.headers["x-request-id"] == "mine-1"
    (record,) = [record for record in caplog.records if record.name == "fencepost.server.requests"]
    line = json.loads(JsonLines().format(record))
    assert line["duration_ms"] > 0
    fields = {name: line[name] for name in ("level", "method", "path", "status", "request_id")}
    assert fields == {
        "level": "info",
        "method": "GET",
        "path": "/v1/checkpoints",
        "status": "200",
        "request_id": "mine-1",
    }
    assert "secret" not in json.dumps(line)


@pytest.mark.parametrize("given", ["", "a b", "x" * 65, "\x7f"])
def test_an_id_that_could_break_a_log_is_replaced(given: str) -> None:
    assert observer.request_id({"x-request-id": given}) != given


class FakeSpan:
    def __init__(self, name: str, parent: Any) -> None:
        self.name, self.parent, self.attributes = name, parent, dict[str, Any]()

    def update_name(self, name: str) -> None:
        self.name = name

    def set_attribute(self, name: str, value: Any) -> None:
        self.attributes[name] = value


class FakeTracer:
    """Keeps the spans that are made. The real SDK is not needed to see which these are."""

    def __init__(self) -> None:
        self.spans: list[FakeSpan] = []

    @contextmanager
    def start_as_current_span(self, name: str, *, context: Any = None, kind: Any = None) -> Iterator[FakeSpan]:
        self.spans.append(FakeSpan(name, context))
        yield self.spans[-1]


def test_a_request_and_its_append_are_spans_in_the_trace_of_the_client(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tracer = FakeTracer()
    monkeypatch.setattr(observer, "configured_tracer", lambda: tracer)
    trace_id = "4bf92f3577b34da6a3ce929d0e0e4736"
    with RunningServer(str(tmp_path / "wallet.db")) as server:
        headers = {"traceparent": f"00-{trace_id}-00f067aa0ba902b7-01", "Authorization": "Bearer secret"}
        for _ in range(2):
            body = {"events": [OPENED], "condition": UNOPENED}
            httpx.post(f"{server.url}/v1/append", json=body, headers=headers)
    request, append, refused_request, refused = tracer.spans
    assert request.name == "POST /v1/append"
    assert request.attributes["http.response.status_code"] == 200
    assert trace_id in repr(request.parent) or f"{int(trace_id, 16)}" in repr(request.parent)
    assert append.attributes == {
        "fencepost.events": 1,
        "fencepost.conditions": 1,
        "fencepost.already": False,
        "fencepost.position": "1",
    }
    assert refused_request.attributes["http.response.status_code"] == 409
    assert refused.attributes["fencepost.refused"] == "Conflict"
    assert "secret" not in repr([span.attributes for span in tracer.spans])


TRACE_ID = 0x4BF92F3577B34DA6A3CE929D0E0E4736


@contextmanager
def in_a_span() -> Iterator[None]:
    context = trace.SpanContext(TRACE_ID, 0x00F067AA0BA902B7, is_remote=False, trace_flags=trace.TraceFlags(1))
    with trace.use_span(trace.NonRecordingSpan(context)):
        yield


def parents(tracer: FakeTracer) -> list[int]:
    """The traces that the spans of requests continue; 0 for none."""
    return [
        trace.get_current_span(span.parent).get_span_context().trace_id
        for span in tracer.spans
        if span.name != "fencepost.append"
    ]


def test_the_client_sends_the_trace_of_its_caller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tracer = FakeTracer()
    monkeypatch.setattr(observer, "configured_tracer", lambda: tracer)
    with RunningServer(str(tmp_path / "wallet.db")) as server, fencepost.open(server.url) as store:
        store.append([Event("Outside")])
        assert set(parents(tracer)) == {0}
        tracer.spans.clear()
        with in_a_span():
            store.append([Event("Inside")])
            list(store.read())
    assert len(parents(tracer)) >= 2
    assert set(parents(tracer)) == {TRACE_ID}


async def test_the_awaitable_client_sends_the_trace_of_its_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tracer = FakeTracer()
    monkeypatch.setattr(observer, "configured_tracer", lambda: tracer)
    with RunningServer(str(tmp_path / "wallet.db")) as server:
        async with fencepost.aio.open(server.url) as store:
            tracer.spans.clear()
            with in_a_span():
                await store.append([Event("Inside")])
    assert set(parents(tracer)) == {TRACE_ID}


def test_without_a_provider_no_spans_are_made() -> None:
    assert observer.configured_tracer() is None
