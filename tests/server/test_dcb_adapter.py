"""The adapter for the suite of dcb.events, and its three scenarios: shorter, and with a client in Python."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from .running import RunningServer

ITERATIONS = 25


@pytest.fixture
def adapter(tmp_path: Path) -> Iterator[httpx.Client]:
    with (
        RunningServer(str(tmp_path / "wallet.db"), dcb_adapter=True) as server,
        httpx.Client(base_url=server.url, timeout=30, limits=httpx.Limits(max_connections=40)) as http,
    ):
        yield http


def read(http: httpx.Client, *items: dict[str, Any], **options: Any) -> list[dict[str, Any]]:
    parameters = {"query": json.dumps({"items": list(items)}), "options": json.dumps(options)}
    answer = http.get("/read", params=parameters)
    assert answer.status_code == 200, answer.text
    events: list[dict[str, Any]] = answer.json()
    return events


def append(http: httpx.Client, *tags: str, condition: dict[str, Any] | None = None) -> bool:
    """Whether the event was stored."""
    body: dict[str, Any] = {"events": [{"type": "Happened", "data": '{"a":1}', "tags": list(tags)}]}
    if condition is not None:
        body["condition"] = condition
    answer = http.post("/append", json=body)
    assert answer.status_code == 200, answer.text
    assert answer.json()["durationInMicroseconds"] >= 0
    return not answer.json()["appendConditionFailed"]


def together(count: int, work: Callable[[int], None]) -> None:
    errors: list[BaseException] = []

    def run(number: int) -> None:
        try:
            work(number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=[number]) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert errors == []


def test_an_event_is_read_as_the_suite_expects(adapter: httpx.Client) -> None:
    assert append(adapter, "a:1")
    assert append(adapter, "a:2")
    assert read(adapter)[0] == {"type": "Happened", "tags": ["a:1"], "data": '{"a":1}', "position": 1}
    assert [event["position"] for event in read(adapter, **{"from": 0})] == [1, 2]
    assert [event["position"] for event in read(adapter, **{"from": 2})] == [2]
    assert [event["position"] for event in read(adapter, backwards=True, limit=1)] == [2]
    assert [event["position"] for event in read(adapter, {"tags": ["a:1"]})] == [1]


def test_a_failed_condition_is_a_success_that_says_so(adapter: httpx.Client) -> None:
    condition = {"failIfEventsMatch": {"items": [{"types": ["Happened"], "tags": ["a:1"]}]}}
    assert append(adapter, "a:1", condition=condition)
    assert not append(adapter, "a:1", condition=condition)
    assert not append(adapter, "a:1", condition={**condition, "after": 0})
    assert append(adapter, "a:1", condition={**condition, "after": 1})
    assert not append(adapter, condition={"failIfEventsMatch": {"items": []}})


@pytest.mark.parametrize("query", ["{", '{"items":5}', "[" * 3_000])
def test_a_bad_query_is_refused(adapter: httpx.Client, query: str) -> None:
    assert adapter.get("/read", params={"query": query}).status_code == 422


def test_without_the_setting_the_paths_are_not_there(http: httpx.Client) -> None:
    assert http.get("/read").status_code == 404
    assert http.post("/append", json={"events": []}).status_code == 404


def test_consistency_each_number_is_taken_once(adapter: httpx.Client) -> None:
    """Each client reads the last event of a counter and appends the next, on condition that it is still the last."""

    def count(number: int) -> None:
        for _ in range(ITERATIONS):
            seen = read(adapter, {"types": ["Happened"], "tags": ["counter"]}, backwards=True, limit=1)
            last = seen[0]["position"] if seen else 0
            query = {"items": [{"types": ["Happened"], "tags": ["counter"]}]}
            append(adapter, "counter", f"after:{last}", condition={"failIfEventsMatch": query, "after": last})

    together(8, count)
    tags = [set(event["tags"]) - {"counter"} for event in read(adapter)]
    positions = [0, *(event["position"] for event in read(adapter))]
    assert len(tags) >= ITERATIONS
    assert tags == [{f"after:{position}"} for position in positions[:-1]]


def test_monotonic_reads_a_reader_never_sees_an_event_vanish(adapter: httpx.Client) -> None:
    done = threading.Event()

    def work(number: int) -> None:
        if number:
            for _ in range(ITERATIONS):
                append(adapter, f"writer:{number}")
            if number == 1:
                done.set()
            return
        seen: list[dict[str, Any]] = []
        while not done.is_set():
            found = read(adapter)
            assert found[: len(seen)] == seen
            seen = found

    together(6, work)
    assert len(read(adapter)) == 5 * ITERATIONS


def test_parallel_writes_to_different_tags_do_not_conflict(adapter: httpx.Client) -> None:
    def write(number: int) -> None:
        last = 0
        for _ in range(ITERATIONS):
            query = {"items": [{"tags": [f"client:{number}"]}]}
            assert append(adapter, f"client:{number}", condition={"failIfEventsMatch": query, "after": last})
            last = read(adapter, {"tags": [f"client:{number}"]}, backwards=True, limit=1)[0]["position"]

    together(20, write)
    assert len(read(adapter)) == 20 * ITERATIONS
