"""The HTTP interface, as a client in another language sees it."""

from __future__ import annotations

import json
import threading
from typing import Any
from uuid import uuid4

import httpx
import pytest

from .running import RunningServer

OPENED = {"type": "WalletOpened", "tags": ["wallet:w1"], "data": {"owner": "Ada"}}
UNOPENED = {"fail_if_events_match": {"items": [{"types": ["WalletOpened"], "tags": ["wallet:w1"]}]}}


def append(http: httpx.Client, **body: Any) -> httpx.Response:
    return http.post("/v1/append", json=body)


def test_a_record_is_created_changed_listed_and_deleted(http: httpx.Client) -> None:
    path, first = "/v1/records/leases%2Fsums", {"value_base64": "b25l", "expected": 0}
    assert http.get(path).json()["type"] == "urn:fencepost:no-such-record"
    assert http.put(path, json=first).json() == {"name": "leases/sums", "revision": 1}
    changed = http.put(path, json=first)
    assert (changed.status_code, changed.json()["type"]) == (409, "urn:fencepost:record-changed")
    assert {name: changed.json()[name] for name in ("name", "expected", "revision")} == {
        "name": "leases/sums",
        "expected": 0,
        "revision": 1,
    }
    appended = http.post(
        "/v1/append",
        json={
            "events": [{"type": "A"}],
            "records": [{"name": "leases/sums", "expected": 1, "value_base64": "dHdv"}, {"name": "x", "expected": 9}],
        },
    )
    assert (appended.status_code, http.get("/v1/head").json()) == (409, {"head": 0})
    both = [
        {"name": "leases/sums", "expected": 1, "value_base64": "dHdv"},
        {"name": "x", "expected": 0, "value_base64": ""},
    ]
    assert http.post("/v1/append", json={"records": both}).json()["revisions"] == [2, 1]
    record = {"name": "leases/sums", "revision": 2, "value_base64": "dHdv"}
    assert http.get(path).json() == record
    assert http.get("/v1/records?prefix=leases/").json() == {"records": [record], "more": False}
    page = http.get("/v1/records?limit=1").json()
    assert (page["records"], page["more"]) == ([record], True)
    assert [one["name"] for one in http.get("/v1/records?after=leases/sums").json()["records"]] == ["x"]
    assert http.delete(f"{path}?expected=1").status_code == 409
    assert http.delete(f"{path}?expected=2").json() == {"name": "leases/sums", "revision": 0}
    assert http.get(path).status_code == 404


def test_checkpoints_are_listed_by_name(http: httpx.Client) -> None:
    for name in ("b", "a/1", "a/2"):
        http.post("/v1/append", json={"checkpoint": {"name": name, "position": 7}})
    listed = http.get("/v1/checkpoints?prefix=a/").json()
    assert listed == {"checkpoints": [{"name": "a/1", "position": 7}, {"name": "a/2", "position": 7}], "more": False}


@pytest.mark.parametrize(
    ("method", "path", "body", "field"),
    [
        ("PUT", "/v1/records/a", {"value_base64": "?", "expected": 0}, "value_base64"),
        ("PUT", "/v1/records/a", {"value_base64": "", "expected": -1}, "expected"),
        ("PUT", "/v1/records/a", {"value_base64": ""}, "body"),
        ("DELETE", "/v1/records/a", None, "expected"),
        ("DELETE", "/v1/records/a?expected=x", None, "expected"),
        ("GET", "/v1/records?pre=a", None, "pre"),
        ("POST", "/v1/append", {"records": [{"name": "", "expected": 0}]}, "records[0].name"),
    ],
)
def test_a_malformed_request_for_records_names_the_field(
    http: httpx.Client, method: str, path: str, body: object, field: str
) -> None:
    answer = http.request(method, path, json=body) if body is not None else http.request(method, path)
    assert (answer.status_code, answer.json()["field"]) == (422, field)


def test_an_append_is_stored_and_read_back(http: httpx.Client) -> None:
    assert append(http, events=[OPENED]).json() == {"first": 1, "last": 1, "already": False}
    answer = http.get("/v1/events", params={"tag": "wallet:w1"})
    assert answer.status_code == 200
    (event,) = answer.json()["events"]
    assert (event["position"], event["type"], event["tags"], event["data"]) == (
        1,
        "WalletOpened",
        ["wallet:w1"],
        {"owner": "Ada"},
    )
    assert answer.json()["head"] == 1
    assert answer.json()["more"] is False


@pytest.mark.parametrize(
    "data", ['{"b":1,  "a":2.50}', "[]", '"text"', "1e5", "null", '{"a":"\\u00e9 é"}', '{"a":1,"a":2}']
)
def test_json_data_comes_back_character_for_character(http: httpx.Client, data: str) -> None:
    http.post("/v1/append", content=f'{{"events":[{{"type":"T","data":{data}}}]}}'.encode())
    assert f'"data":{data}' in http.get("/v1/events").text


@pytest.mark.parametrize("data", ["", "AP8=", "gA=="])
def test_data_that_is_not_text_travels_as_base64(http: httpx.Client, data: str) -> None:
    append(http, events=[{"type": "T", "data_base64": data}])
    assert http.get("/v1/events").json()["events"][0].get("data_base64", "") == data


def test_a_conflict_is_answered_with_the_conflicting_event(http: httpx.Client) -> None:
    append(http, events=[OPENED])
    refused = append(http, events=[OPENED], condition=[{**UNOPENED, "after": 1}, UNOPENED])
    problem = refused.json()
    assert refused.status_code == 409
    assert refused.headers["content-type"] == "application/problem+json"
    assert problem["type"] == "urn:fencepost:condition-failed"
    assert problem["retryable"] is False
    assert problem["condition"] == 1
    assert problem["position"] == 1
    assert problem["conflict"]["data"] == {"owner": "Ada"}
    assert http.get("/v1/head").json() == {"head": 1}


def test_what_is_stored_already_is_a_success_that_says_so(http: httpx.Client) -> None:
    event = {**OPENED, "id": str(uuid4())}
    assert append(http, events=[event]).json() == {"first": 1, "last": 1, "already": False}
    assert append(http, events=[event], condition=UNOPENED).json() == {"first": 1, "last": 1, "already": True}
    unless = {"items": [{"tags": ["wallet:w1"]}]}
    assert append(http, events=[OPENED], unless=unless).json()["already"] is True


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ('{"events": [{"type": 5}]}', "events[0].type"),
        ('{"events": [{"type": ""}]}', "events[0].type"),
        ('{"events": [{"tipe": "T"}]}', "events[0]"),
        ('{"events": []}', "events"),
        ('{"events": [{"type": "T", "tags": ["a", ""]}]}', "events[0].tags"),
        ('{"events": [{"type": "T", "data": 1, "data_base64": ""}]}', "events[0].data"),
        ('{"events": [{"type": "T", "data_base64": "?"}]}', "events[0].data_base64"),
        ('{"events": [{"type": "T"}], "condition": {"fail_if_events_match": {"items": []}}}', "condition"),
        ('{"events": [{"type": "T"}], "condition": {"after": 1}}', "condition"),
        ('{"events": [{"type": "T"}], "checkpoint": {"name": "c", "position": "x"}}', "checkpoint.position"),
        ("{", "body"),
        ("", "body"),
        ("\xff", "body"),
        ("[" * 5_000, "body"),
    ],
)
def test_bad_input_is_refused_with_the_field_and_changes_nothing(http: httpx.Client, body: str, field: str) -> None:
    refused = http.post("/v1/append", content=body.encode("latin-1"))
    assert refused.status_code == 422
    assert refused.json()["type"] == "urn:fencepost:invalid-input"
    assert refused.json()["field"].startswith(field)
    assert http.get("/v1/head").json() == {"head": 0}


@pytest.mark.parametrize(
    "path",
    [
        "/v1/events?after=x",
        "/v1/events?limit=0",
        "/v1/events?limit=-1",
        "/v1/events?up_to=1e3",
        "/v1/events?colour=red",
        "/v1/events?query={",
        "/v1/events?tag=a&query={}",
        "/v1/events?tag=%ff",
        "/v1/events?backwards=maybe",
        "/v1/head?wait_s=nan",
        "/v1/subscribe?limit=3",
        "/v1/recorded?after=-1",
    ],
)
def test_a_bad_parameter_is_refused(http: httpx.Client, path: str) -> None:
    assert http.get(path).status_code == 422


def test_a_reading_goes_in_pages_in_both_directions_and_with_a_limit(http: httpx.Client) -> None:
    append(http, events=[{"type": "T", "data": number} for number in range(5_000)])
    first = http.get("/v1/events").json()
    rest = http.get("/v1/events", params={"after": first["events"][-1]["position"], "up_to": first["head"]}).json()
    assert first["more"] is True
    assert rest["more"] is False
    assert [event["data"] for event in first["events"] + rest["events"]] == list(range(5_000))
    newest = http.get("/v1/events", params={"limit": 2, "backwards": "true"}).json()
    assert [event["position"] for event in newest["events"]] == [5_000, 4_999]


def test_a_long_reading_is_one_stream_of_lines(http: httpx.Client) -> None:
    append(http, events=[{"type": "T", "data": number} for number in range(5_000)])
    query = {"query": {"items": [{"types": ["T"]}]}}
    with http.stream("POST", "/v1/read", json=query, headers={"Accept": "application/x-ndjson"}) as answer:
        lines = [json.loads(line) for line in answer.iter_lines()]
    assert [line["data"] for line in lines[:-1]] == list(range(5_000))
    assert lines[-1] == {"head": 5_000}


def test_a_head_has_an_etag(http: httpx.Client) -> None:
    append(http, events=[OPENED])
    answer = http.get("/v1/head")
    assert http.get("/v1/head", headers={"If-None-Match": answer.headers["etag"]}).status_code == 304
    append(http, events=[OPENED])
    assert http.get("/v1/head", headers={"If-None-Match": answer.headers["etag"]}).json() == {"head": 2}


def test_a_request_can_wait_for_a_new_head(http: httpx.Client, server: RunningServer) -> None:
    answers: list[Any] = []
    waiting = threading.Thread(
        target=lambda: answers.append(httpx.get(f"{server.url}/v1/head?after=0&wait_s=20", timeout=30).json())
    )
    waiting.start()
    append(http, events=[OPENED])
    waiting.join(20)
    assert answers == [{"head": 1}]


def test_a_subscription_gives_the_past_and_then_each_new_event(http: httpx.Client) -> None:
    append(http, events=[OPENED])
    with http.stream("GET", "/v1/subscribe", params={"tag": "wallet:w1"}) as answer:
        assert answer.headers["content-type"] == "text/event-stream"
        lines = answer.iter_lines()
        assert next(line for line in lines if line.startswith("id:")) == "id: 1"
        append_from_elsewhere(answer)
        assert next(line for line in lines if line.startswith("id:")) == "id: 2"
        assert next(line for line in lines if line.startswith(":")) == ": up to 2"


def append_from_elsewhere(answer: httpx.Response) -> None:
    httpx.post(str(answer.request.url.join("/v1/append")), json={"events": [OPENED]}).raise_for_status()


def test_a_subscription_goes_on_after_the_last_event_id(http: httpx.Client) -> None:
    append(http, events=[OPENED, OPENED, OPENED])
    with http.stream("GET", "/v1/subscribe?after=0", headers={"Last-Event-ID": "2"}) as answer:
        assert next(line for line in answer.iter_lines() if line.startswith("id:")) == "id: 3"


def test_a_subscription_can_be_lines_of_json(http: httpx.Client) -> None:
    append(http, events=[OPENED])
    with http.stream("GET", "/v1/subscribe", headers={"Accept": "application/x-ndjson"}) as answer:
        lines = (json.loads(line) for line in answer.iter_lines() if line)
        assert next(lines)["position"] == 1
        assert next(lines) == {"head": 1}


def test_checkpoints_move_with_an_append(http: httpx.Client) -> None:
    assert append(http, events=[OPENED], checkpoint={"name": "a/b ü", "position": 7}).status_code == 200
    assert http.get("/v1/checkpoints/a%2Fb%20%C3%BC").json() == {"name": "a/b ü", "position": 7}
    behind = append(http, events=[OPENED], checkpoint={"name": "a/b ü", "position": 7})
    assert (behind.status_code, behind.json()["current"]) == (409, 7)


def test_a_large_answer_is_compressed_if_the_client_takes_it(http: httpx.Client) -> None:
    append(http, events=[{"type": "T", "data": "x" * 5_000}])
    answer = http.get("/v1/events")
    assert answer.headers["content-encoding"] == "gzip"
    assert answer.json()["events"][0]["data"] == "x" * 5_000
    assert "content-encoding" not in http.get("/v1/events", headers={"Accept-Encoding": "identity"}).headers


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/v1/nothing", 404), ("GET", "/v1/append", 405), ("DELETE", "/v1/events", 405), ("GET", "/", 404)],
)
def test_what_is_not_there_is_said(http: httpx.Client, method: str, path: str, status: int) -> None:
    answer = http.request(method, path)
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"


def test_the_server_says_how_it_is(http: httpx.Client) -> None:
    assert http.get("/healthz").json()["status"] == "alive"
    assert http.get("/readyz").json()["status"] == "ready"
    append(http, events=[OPENED])
    append(http, events=[OPENED], condition=UNOPENED)
    measured = http.get("/metrics").text
    assert "fencepost_events_appended_total 1\n" in measured
    assert 'fencepost_conflicts_total{boundary="1 item: types+tags"} 1' in measured
    assert 'fencepost_requests_total{path="/v1/append",status="409"} 1' in measured
