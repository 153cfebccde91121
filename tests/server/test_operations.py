"""What operators and clients see when something fails, and the small print of HTTP."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator

import httpx
import pytest

import fencepost
from fencepost import Event, StoreUnavailable
from fencepost.engine import open_engine
from fencepost.testing.faults import FaultyEngine, raising

from .running import RunningServer

FULL = StoreUnavailable("no space left on device")


@pytest.fixture
def engine() -> FaultyEngine:
    return FaultyEngine(open_engine("memory:"))


@pytest.fixture
def http(engine: FaultyEngine) -> Iterator[httpx.Client]:
    with (
        RunningServer("memory:", engine=engine, heartbeat_s=0.2) as server,
        httpx.Client(base_url=server.url, timeout=20) as client,
    ):
        yield client


def counted(http: httpx.Client, line: str) -> float:
    values = dict(each.rsplit(" ", 1) for each in http.get("/metrics").text.splitlines() if each[0] != "#")
    return float(values.get(line, 0))


def test_an_append_that_failed_is_unknown_counted_logged_and_makes_the_server_not_ready(
    http: httpx.Client, engine: FaultyEngine, caplog: pytest.LogCaptureFixture
) -> None:
    engine.after = raising(FULL)  # it is stored, and only its acknowledgement is lost
    failed = http.post("/v1/append", json={"events": [{"type": "A"}]})
    assert (failed.status_code, failed.json()["outcome"], failed.json()["retryable"]) == (503, "unknown", False)
    assert "retry-after" not in failed.headers
    with pytest.raises(StoreUnavailable, match="no space left"), fencepost.open(str(http.base_url)) as store:
        store.append([Event("A")])
    assert counted(http, 'fencepost_appends_total{outcome="failed"}') == 2
    logged = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert all("no space left on device" in record.message for record in logged)
    assert len(logged) == 2
    ready = http.get("/readyz")
    assert (ready.status_code, "no space left" in ready.json()["detail"]) == (503, True)
    engine.after = lambda: None
    pause = threading.Event()
    for _ in range(100):
        if http.get("/readyz").status_code == 200:
            break
        pause.wait(0.1)
    assert http.get("/readyz").status_code == 200
    assert http.get("/v1/head").json() == {"head": 2}


@pytest.mark.parametrize("path", ["/v1/subscribe", "/v1/events"])
def test_a_store_that_fails_ends_a_stream_with_one_line(
    http: httpx.Client, engine: FaultyEngine, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    engine.before_scan = raising(FULL)
    lines = http.get(path, headers={"Accept": "application/x-ndjson"}).text.splitlines()
    assert json.loads(lines[-1])["error"]["type"] == "urn:fencepost:unavailable"
    logged = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert len(logged) == 1
    assert logged[0].exc_info is None


@pytest.mark.parametrize("given", [str(2**96), "-1", "x"])
def test_a_position_out_of_range_is_refused_on_subscriptions_too(http: httpx.Client, given: str) -> None:
    assert http.get("/v1/subscribe", params={"after": given}).status_code == 422
    assert http.get("/v1/subscribe", headers={"Last-Event-ID": given}).status_code == 422


def test_a_method_that_is_not_allowed_is_answered_with_those_that_are(http: httpx.Client) -> None:
    assert http.delete("/v1/head").headers["allow"] == "GET, HEAD"
    assert http.get("/v1/append").headers["allow"] == "POST"
    assert set(http.delete("/v1/subscribe").headers["allow"].split(", ")) == {"GET", "POST", "HEAD"}


@pytest.mark.parametrize(
    ("given", "status"), [('"0"', 304), ('"7", "0"', 304), ('W/"0"', 304), ("*", 304), ('"00"', 200), ("0", 200)]
)
def test_a_list_of_tags_is_compared_with_the_head(http: httpx.Client, given: str, status: int) -> None:
    assert http.get("/v1/head", headers={"If-None-Match": given}).status_code == status


def test_what_a_client_does_not_accept_is_not_sent(http: httpx.Client) -> None:
    http.post("/v1/append", json={"events": [{"type": "A", "data": "x" * 2_000}]})
    packed = http.get("/v1/events", headers={"Accept-Encoding": "br;q=1.0, gzip;q=0.8"})
    plain = http.get("/v1/events", headers={"Accept-Encoding": "gzip;q=0, identity"})
    assert (packed.headers["content-encoding"], "content-encoding" in plain.headers) == ("gzip", False)
    assert {packed.headers["vary"], plain.headers["vary"]} == {"accept, accept-encoding"}
    lines = http.get("/v1/events", headers={"Accept": "application/x-ndjson;q=0, application/json"})
    assert lines.headers["content-type"] == "application/json"


def test_the_head_of_a_stream_is_answered_and_ends(http: httpx.Client) -> None:
    answer = http.head("/v1/subscribe")
    assert (answer.status_code, answer.headers["content-type"], answer.content) == (200, "text/event-stream", b"")
    assert http.get("/v1/head").status_code == 200
