"""Consumers over HTTP: what `fencepost consumers` shows and does, with rights, and with who did it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

import fencepost
from fencepost import Event, Query
from fencepost.consumers import control_events, control_state
from fencepost.consumers.control_events import ConsumerPaused, LeaseTaken
from fencepost.decisions import encode, project
from fencepost.server.access import COMMANDS, Right
from fencepost.server.keys import add_key

from .following import added, eventually, following, occupancy_has_run
from .running import RunningServer

OCCUPANCY = "/v1/consumers/occupancy"


def get(http: httpx.Client, path: str) -> Any:
    answer = http.get(path)
    assert answer.status_code == 200, answer.text
    return answer.json()


def post(http: httpx.Client, path: str, **body: Any) -> Any:
    answer = http.post(path, json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_the_status_says_position_lag_holder_and_health(http: httpx.Client, server: RunningServer) -> None:
    assert get(http, "/v1/consumers") == {"consumers": []}
    with following(server.url, set()) as store:
        last = store.append([added(number) for number in range(5)]).last
        eventually(lambda: get(http, OCCUPANCY)["position"] >= last)
        found = get(http, OCCUPANCY)
        assert (found["name"], found["state"], found["lag_events"], found["healthy"]) == (
            "occupancy",
            "running",
            0,
            True,
        )
        assert found["holder"]
        assert found["heartbeat_age_s"] >= 0
        assert [each["name"] for each in get(http, "/v1/consumers")["consumers"]] == ["occupancy"]


def test_a_pause_holds_events_back_until_the_consumer_steps_or_resumes(
    http: httpx.Client, server: RunningServer
) -> None:
    with following(server.url, set()) as store:
        assert post(http, f"{OCCUPANCY}/pause", reason="maintenance", by="ada") == {
            "consumer": "occupancy",
            "changed": True,
        }
        assert post(http, f"{OCCUPANCY}/pause") == {"consumer": "occupancy", "changed": False}
        eventually(lambda: get(http, OCCUPANCY)["state"] == "paused")
        assert get(http, OCCUPANCY)["paused_by"] == "ada (HTTP)"
        first = store.append([added(1), added(2)]).first
        assert get(http, OCCUPANCY)["lag_events"] == 2
        post(http, f"{OCCUPANCY}/step")
        eventually(lambda: get(http, OCCUPANCY)["position"] == first)
        assert post(http, f"{OCCUPANCY}/resume")["changed"] is True
        eventually(lambda: get(http, OCCUPANCY)["lag_events"] == 0)
    with fencepost.open(server.url) as store:
        (paused,) = [each for each in store.read() if each.type == "fencepost.ConsumerPaused"]
    assert b'"maintenance"' in paused.data


def test_a_step_of_a_consumer_that_is_not_paused_is_refused(http: httpx.Client, server: RunningServer) -> None:
    occupancy_has_run(server.url)
    refused = http.post(f"{OCCUPANCY}/step")
    assert (refused.status_code, refused.json()["type"]) == (409, "urn:fencepost:command-refused")


def test_dead_letters_are_listed_shown_replayed_and_discarded(http: httpx.Client, server: RunningServer) -> None:
    refused = {1, 2}
    letters = f"{OCCUPANCY}/dead-letters"
    with following(server.url, refused) as store:
        first = store.append([added(1), added(2), added(3)]).first
        eventually(lambda: len(get(http, letters)["dead_letters"]) == 2)
        assert get(http, OCCUPANCY)["dead_letters"] == 2
        shown = get(http, f"{letters}/{first}")
        assert shown["error"] == "ValueError: number 1 is refused"
        assert shown["event"]["data"] == {"number": 1}
        refused.clear()
        assert post(http, f"{letters}/replay", positions=[first]) == {"consumer": "occupancy", "requested": 1}
        eventually(lambda: len(get(http, letters)["dead_letters"]) == 1)
        assert post(http, f"{letters}/discard", all=True) == {"consumer": "occupancy", "discarded": 1}
        assert get(http, letters) == {"dead_letters": []}
    assert http.get(f"{letters}/{first}").status_code == 409


def test_a_consumer_that_stopped_is_unhealthy_until_it_is_resumed(http: httpx.Client, server: RunningServer) -> None:
    refused = {1}
    with following(server.url, refused, then="stop") as store:
        position = store.append([added(1)]).last
        eventually(lambda: get(http, OCCUPANCY)["state"] == "stopped")
        found = get(http, OCCUPANCY)
        assert (found["healthy"], found["error_position"]) == (False, position)
        refused.clear()
        post(http, f"{OCCUPANCY}/resume")
        eventually(lambda: get(http, OCCUPANCY)["state"] == "running")


def test_a_reset_begins_after_a_position_or_at_a_time(http: httpx.Client, server: RunningServer) -> None:
    occupancy_has_run(server.url)
    with fencepost.open(server.url) as store:
        placed = store.append([added(1), added(2)])
        moment = next(iter(store.read(after=placed.first - 1))).recorded_at
    assert post(http, f"{OCCUPANCY}/reset", position=0, by="ada") == {"consumer": "occupancy", "position": 0}
    assert get(http, OCCUPANCY)["position"] == 0
    assert post(http, f"{OCCUPANCY}/reset", time=moment.isoformat())["position"] == placed.first - 1
    later = (moment + timedelta(days=1)).isoformat()
    assert post(http, f"{OCCUPANCY}/reset", time=later)["position"] >= placed.last


@pytest.mark.parametrize(
    ("command", "body", "field"),
    [
        ("reset", {}, "position"),
        ("reset", {"position": 1, "time": "2026-01-01T00:00:00Z"}, "position"),
        ("reset", {"position": -1}, "position"),
        ("reset", {"position": "x"}, "position"),
        ("reset", {"time": "2026-01-01T00:00:00"}, "time"),
        ("reset", {"time": "noon"}, "time"),
        ("pause", {"reasons": "?"}, "body"),
        ("pause", {"by": "x" * 201}, "by"),
        ("dead-letters/discard", {}, "positions"),
        ("dead-letters/replay", {"positions": [1], "all": True}, "positions"),
        ("dead-letters/replay", {"positions": ["x"]}, "positions[0]"),
    ],
)
def test_a_bad_command_is_refused_with_the_field_and_records_nothing(
    http: httpx.Client, server: RunningServer, command: str, body: dict[str, Any], field: str
) -> None:
    occupancy_has_run(server.url)
    head = get(http, "/v1/head")
    refused = http.post(f"{OCCUPANCY}/{command}", json=body)
    assert (refused.status_code, refused.json()["field"]) == (422, field), refused.text
    assert get(http, "/v1/head") == head


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", ""),
        ("POST", "/pause"),
        ("POST", "/resume"),
        ("POST", "/reset"),
        ("GET", "/dead-letters"),
        ("GET", "/dead-letters/7"),
    ],
)
def test_a_consumer_that_never_ran_is_not_found(http: httpx.Client, method: str, path: str) -> None:
    answer = http.request(method, f"/v1/consumers/a%2Fb{path}", json={"position": 0} if path == "/reset" else None)
    assert (answer.status_code, answer.json()["type"]) == (404, "urn:fencepost:no-such-consumer")
    assert "'a/b'" in answer.json()["detail"]


@pytest.fixture
def keyed(tmp_path: Path) -> Iterator[tuple[RunningServer, dict[str, str]]]:
    keys = tmp_path / "keys.json"
    secrets = {
        "operator": add_key(keys, "operator", rights=frozenset(Right)).secret,
        "service": add_key(keys, "service", rights=frozenset({Right.READ, Right.APPEND})).secret,
        "tenant": add_key(keys, "tenant", rights=frozenset(Right), tags=frozenset({"tenant:acme"})).secret,
        "typed": add_key(keys, "typed", rights=frozenset(Right), types=frozenset({"fencepost.LeaseTaken"})).secret,
    }
    with RunningServer(str(tmp_path / "wallet.db"), keys=str(keys)) as server:
        yield server, secrets


def bearing(server: RunningServer, secret: str) -> httpx.Client:
    return httpx.Client(base_url=server.url, headers={"Authorization": f"Bearer {secret}"}, timeout=20)


def occupancy_of(server: RunningServer, secret: str) -> control_state.Control:
    with fencepost.open(server.url, key=secret) as store:
        return project(store, control_state.Control("occupancy"))


def test_a_command_is_recorded_with_the_key_that_gave_it(keyed: tuple[RunningServer, dict[str, str]]) -> None:
    server, secrets = keyed
    with fencepost.open(server.url, key=secrets["service"]) as store:
        store.append([lease()])
    with bearing(server, secrets["service"]) as http:
        assert http.get(OCCUPANCY).status_code == 200
        assert http.post(f"{OCCUPANCY}/pause").status_code == 403
    with bearing(server, secrets["operator"]) as http:
        assert http.post(f"{OCCUPANCY}/pause", json={"by": "ada"}).status_code == 200
    assert occupancy_of(server, secrets["service"]).paused_by == "ada (API key operator)"


def lease(*tags: str) -> Event:
    return tagged(LeaseTaken("occupancy", "test", 1.0, Query.all().to_json(), "occupancy"), *tags)


def command(*tags: str) -> Event:
    return tagged(ConsumerPaused("occupancy", "an attacker"), *tags)


def tagged(record: object, *tags: str) -> Event:
    made = encode(record)
    return Event(made.type, data=made.data, tags={*made.tags, *tags})


def test_a_key_without_admin_cannot_append_a_command_as_an_event(keyed: tuple[RunningServer, dict[str, str]]) -> None:
    server, secrets = keyed
    with fencepost.open(server.url, key=secrets["service"]) as store:
        store.append([lease()])  # consumers run with such a key
        with pytest.raises(fencepost.AccessDenied, match=r"events\[1\].*no right to admin"):
            store.append([added(1), command()])
        assert store.head() == 1


@pytest.mark.parametrize("event", [command("tenant:acme"), lease("tenant:acme")], ids=["pause", "lease"])
def test_a_key_with_a_scope_cannot_control_consumers_through_events(
    keyed: tuple[RunningServer, dict[str, str]], event: Event
) -> None:
    """The tag of its scope would otherwise let it append a pause, or take a lease away."""
    server, secrets = keyed
    with fencepost.open(server.url, key=secrets["tenant"]) as store:
        with pytest.raises(fencepost.AccessDenied, match="controls consumers"):
            store.append([event])
        assert store.head() == 0


def test_a_scope_that_names_the_type_allows_it(keyed: tuple[RunningServer, dict[str, str]]) -> None:
    server, secrets = keyed
    with fencepost.open(server.url, key=secrets["typed"]) as store:
        assert store.append([lease()]).last == 1


@pytest.mark.parametrize("path", ["/v1/consumers", OCCUPANCY, f"{OCCUPANCY}/dead-letters"])
def test_a_key_with_a_scope_does_not_learn_about_consumers(
    keyed: tuple[RunningServer, dict[str, str]], path: str
) -> None:
    server, secrets = keyed
    with bearing(server, secrets["tenant"]) as http:
        before = http.get(path)
        assert before.status_code == 403
        with fencepost.open(server.url, key=secrets["operator"]) as store:
            store.append([lease()])
        assert http.get(path).json() == before.json()
        assert http.post(f"{OCCUPANCY}/pause").status_code == 403


def test_every_record_that_names_an_author_is_a_command_or_made_by_a_process() -> None:
    """A new command must be added to COMMANDS, or a key without `admin` could give it."""
    authored = {
        f"fencepost.{name}"
        for name, each in vars(control_events).items()
        if "by" in getattr(each, "__annotations__", {})
    }
    assert authored - {"fencepost.WorkerLeft"} == COMMANDS
    assert authored <= control_state.TYPES


def test_a_partition_is_stepped_and_the_number_of_partitions_changes(http: httpx.Client, server: RunningServer) -> None:
    occupancy_has_run(server.url)
    assert post(http, f"{OCCUPANCY}/repartition", partitions=2, key="wallet", by="ada")["changed"] is True
    assert post(http, f"{OCCUPANCY}/repartition", partitions=2, key="wallet")["changed"] is False
    assert [each["number"] for each in get(http, OCCUPANCY)["partitions"]] == [0, 1]
    post(http, f"{OCCUPANCY}/pause")
    assert http.post(f"{OCCUPANCY}/step").status_code in (409, 422)
    post(http, f"{OCCUPANCY}/step", partition=1)
    refused = http.post(f"{OCCUPANCY}/repartition", json={"partitions": 0})
    assert (refused.status_code, refused.json()["field"]) == (422, "partitions")
