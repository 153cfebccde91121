"""The reference lists exactly the metrics that the server has, and /metrics is what Prometheus expects."""

from __future__ import annotations

import re
from pathlib import Path

import httpx
import pytest

from fencepost import StoreUnavailable
from fencepost.server.access import Right
from fencepost.server.consumers import ConsumerHandlers
from fencepost.server.head_watch import MOST_SAMPLES, Times
from fencepost.server.keys import add_key
from fencepost.server.metrics import LATENCY, METRICS, Metrics

from .following import added, eventually, following
from .running import RunningServer, free_port

ROOT = Path(__file__).parents[2]
LINE = re.compile(r'[a-z_]+(\{[a-z_]+="(?:[^"\\\n]|\\.)*"(,[a-z_]+="(?:[^"\\\n]|\\.)*")*\})? [0-9.e+-]+')


def test_the_reference_lists_exactly_the_metrics() -> None:
    text = (ROOT / "docs/reference/http.md").read_text()
    rows = re.findall(r"^\| `(fencepost_\w+)` \| (\w+) \| ([^|]*) \| ([^|]*) \|$", text, re.MULTILINE)
    listed = [tuple(cell.strip() for cell in row) for row in rows]
    assert listed == [(each.name, each.kind, ", ".join(each.labels), each.meaning) for each in METRICS]


def test_every_line_has_the_form_that_prometheus_reads(http: httpx.Client) -> None:
    http.get('/v1/"\\')
    http.post("/v1/append", json={"events": [{"type": "T"}]})
    answer = http.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    lines = answer.text.splitlines()
    assert [line for line in lines if not line.startswith("# ") and not LINE.fullmatch(line)] == []
    assert {line.split()[2] for line in lines if line.startswith("# TYPE")} == {each.name for each in METRICS}


def test_paths_that_clients_invent_do_not_become_labels(http: httpx.Client) -> None:
    for number in range(5):
        http.get(f"/v1/nothing{number}")
        http.get(f"/v1/checkpoints/{number}")
    text = http.get("/metrics").text
    assert 'fencepost_requests_total{path="other",status="404"} 5' in text
    assert 'fencepost_requests_total{path="/v1/checkpoints",status="200"} 5' in text


def test_a_histogram_counts_each_request_once() -> None:
    measured = Metrics()
    for seconds in (0.0001, 0.003, 99.0):
        measured.record(LATENCY, seconds, "/v1/append")
    text = measured.text().decode()
    assert 'fencepost_request_seconds_bucket{path="/v1/append",le="0.0005"} 1' in text
    assert 'fencepost_request_seconds_bucket{path="/v1/append",le="10.0"} 2' in text
    assert 'fencepost_request_seconds_bucket{path="/v1/append",le="+Inf"} 3' in text
    assert 'fencepost_request_seconds_count{path="/v1/append"} 3' in text


def test_commits_are_counted_with_their_size_and_a_refused_batch_is_no_sync(http: httpx.Client) -> None:
    body = {"events": [{"type": "T"}, {"type": "T"}], "condition": {"fail_if_events_match": {"items": [{}]}}}
    assert http.post("/v1/append", json=body).status_code == 200
    assert http.post("/v1/append", json=body).status_code == 409
    text = http.get("/metrics").text
    assert "fencepost_syncs_total 1\n" in text
    assert "fencepost_commit_appends_count 2\n" in text
    assert "fencepost_commit_events_sum 4\n" in text
    assert 'fencepost_commit_seconds_bucket{le="+Inf"} 2\n' in text


def test_open_connections_are_counted_until_they_end(server: RunningServer, http: httpx.Client) -> None:
    def connections() -> float:
        return float(re.findall(r"^fencepost_connections (\S+)$", http.get("/metrics").text, re.MULTILINE)[0])

    assert connections() == 1
    with httpx.Client(base_url=server.url) as other:
        other.get("/healthz")
        assert connections() == 2
    eventually(lambda: connections() == 1)


def test_a_subscription_that_follows_has_no_lag_even_if_nothing_matches(
    server: RunningServer, http: httpx.Client
) -> None:
    with http.stream("GET", "/v1/subscribe?type=Never"):
        httpx.post(f"{server.url}/v1/append", json={"events": [{"type": "T"}] * 50})

        def lags() -> list[str]:
            return re.findall(
                r"^fencepost_subscription_lag_\w+ (\S+)$", httpx.get(f"{server.url}/metrics").text, re.MULTILINE
            )

        eventually(lambda: lags() == ["0", "0"])


def test_the_lag_in_seconds_is_the_time_since_the_head_passed_the_position() -> None:
    times = Times()
    for second in range(100):
        times.add(10 * (second + 1), float(second))
    assert times.age_s(1_000, 200.0) == 0
    assert times.age_s(999, 200.0) == 101
    assert times.age_s(0, 200.0) == 200
    assert times.age_s(515, 200.0) == 149


def test_the_times_of_heads_take_bounded_memory_and_stay_right_for_the_recent_past() -> None:
    times = Times()
    last = 3 * MOST_SAMPLES
    for second in range(last + 1):
        times.add(second + 1, float(second))
    for position in (last, last - 1, last - 100):
        assert times.age_s(position, float(last)) == last - position
    assert abs(times.age_s(10, float(last)) - (last - 10)) < MOST_SAMPLES


def test_consumers_are_measured(http: httpx.Client, server: RunningServer) -> None:
    with following(server.url, {1}, then="stop") as store:
        store.append([added(1), added(2)])
        stopped = 'fencepost_consumer_state{consumer="occupancy",state="stopped"} 1\n'
        eventually(lambda: stopped in http.get("/metrics").text)
        text = http.get("/metrics").text
    assert 'fencepost_consumer_lag_events{consumer="occupancy"} 2\n' in text
    assert 'state="running"' not in text
    for name in ("lag_seconds", "position", "heartbeat_age_seconds", "dead_letters", "error_age_seconds"):
        assert f'fencepost_consumer_{name}{{consumer="occupancy"}} ' in text


def test_the_metrics_of_the_server_do_not_need_the_store(http: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(self: ConsumerHandlers) -> None:
        raise StoreUnavailable("the disk is gone")

    monkeypatch.setattr(ConsumerHandlers, "known", fail)
    answer = http.get("/metrics")
    assert answer.status_code == 200
    assert "fencepost_uptime_seconds" in answer.text


def test_the_port_for_metrics_needs_no_key_and_serves_nothing_else(tmp_path: Path) -> None:
    keys = tmp_path / "keys.json"
    headers = {"Authorization": f"Bearer {add_key(keys, 'ada', rights=frozenset(Right)).secret}"}
    port = free_port()
    with RunningServer("memory:", keys=str(keys), metrics_port=port) as server:
        own = f"http://127.0.0.1:{port}"
        assert "fencepost_build_info" in httpx.get(f"{own}/metrics").text
        assert httpx.get(f"{own}/readyz").json() == {"status": "ready"}
        assert httpx.get(f"{own}/v1/head", headers=headers).status_code == 404
        assert httpx.get(f"{server.url}/v1/head", headers=headers).status_code == 200
        assert httpx.get(f"{server.url}/metrics", headers=headers).status_code == 404
