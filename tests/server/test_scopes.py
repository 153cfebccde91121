"""Answers to a caller with a scope do not depend on events outside of it.

Two stores get the same events inside the scope at the same positions, and different events outside. Every request of a
caller with the scope must be answered in the same way by both, over both interfaces.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fencepost import Event, Query, QueryItem
from fencepost.buckets import matches
from fencepost.consumers.control_events import LeaseTaken
from fencepost.core.verdicts import Append
from fencepost.decisions import encode
from fencepost.server.access import Right, Scope
from fencepost.server.keys import add_key
from fencepost.server.umadb import protobuf as messages

from .running import RunningServer, free_port

TAGS = ["a", "b", "c"]
TYPES = ["T", "U"]
SCOPE = Scope(frozenset({"a"}), frozenset({"T"}))

texts = st.lists(st.sampled_from(TAGS), max_size=2)
kinds = st.sampled_from(TYPES)
event_values = st.builds(
    lambda type, tags, data: Event(type, tags=tags, data=data), kinds, texts, st.binary(max_size=3)
)
items = st.builds(lambda types, tags: QueryItem(types=types, tags=tags), st.lists(kinds, max_size=2), texts)
queries = st.lists(items, min_size=1, max_size=3).map(Query)
scopes = st.builds(lambda tags, types: Scope(frozenset(tags), frozenset(types)), texts, st.lists(kinds, max_size=2))


@given(scopes, queries, event_values)
def test_a_narrowed_query_matches_what_the_query_matches_inside(scope: Scope, query: Query, event: Event) -> None:
    narrowed = scope.narrowed(query)
    expected = matches(event, query) and scope.contains(event)
    assert (narrowed is not None and matches(event, narrowed)) == expected


def test_a_tag_of_the_query_that_is_in_the_scope_does_not_widen_it() -> None:
    narrowed = Scope(frozenset({"a", "b"})).narrowed(Query.of(tags={"a"}))
    assert narrowed == Query.of(tags={"a"})


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[tuple[RunningServer, str]]]:
    folder = tmp_path_factory.mktemp("pair")
    servers = []
    for number in (0, 1):
        keys = folder / f"keys{number}.json"
        secret = add_key(
            keys, "tenant", rights=frozenset({Right.READ, Right.APPEND}), tags=SCOPE.tags, types=SCOPE.types
        ).secret
        servers.append((RunningServer("memory:", keys=str(keys), grpc_port=free_port(), heartbeat_s=0.02), secret))
    yield servers
    for server, _ in servers:
        server.stop()


inside = st.builds(lambda data: Event("T", tags={"a"}, data=data), st.binary(max_size=2))
RECORD = encode(LeaseTaken("c", "test", 1.0, Query.all().to_json(), "c"))
IDS = [UUID(int=number) for number in (1, 2)]
outside = st.sampled_from(
    [Event("T", tags={"b"}), Event("U", tags={"a"}), Event("U"), Event("U", tags={"b", "c"}), RECORD]
)
slots = st.lists(
    st.one_of(inside.map(lambda event: (event, event)), st.tuples(outside, outside)), min_size=1, max_size=6
)
as_json = queries.map(
    lambda query: {"items": [{"types": sorted(each.types), "tags": sorted(each.tags)} for each in query.items]}
)
reads = st.builds(
    lambda query, after, limit, backwards: (
        "POST",
        "/v1/read",
        {"query": query, "after": after, "limit": limit, "backwards": backwards},
    ),
    as_json,
    st.integers(0, 8),
    st.none() | st.integers(1, 4),
    st.booleans(),
)
appends = st.builds(
    lambda event, query, after, id, checkpoint: (
        "POST",
        "/v1/append",
        {
            "events": [{"type": event.type, "tags": sorted(event.tags), **({"id": id} if id else {})}],
            "condition": {"fail_if_events_match": query, "after": after},
            **({"checkpoint": {"name": "c", "position": after}} if checkpoint else {}),
        },
    ),
    st.one_of(inside, inside, event_values),
    as_json,
    st.integers(0, 8),
    st.none() | st.sampled_from([str(each) for each in IDS]),
    st.booleans(),
)
lookups = st.sampled_from(
    [
        *[("GET", path, None) for path in ("/v1/head", "/v1/events", "/v1/checkpoints/c", "/v1/recorded", "/metrics")],
        *[("GET", path, None) for path in ("/v1/consumers", "/v1/consumers/c", "/v1/consumers/c/dead-letters")],
        *[("POST", path, None) for path in ("/v1/verify", "/v1/consumers/c/pause")],
        ("LINES", "/v1/events", None),
        ("LINES", "/v1/subscribe", None),
    ]
)
Requests = list[tuple[str, str, Any]]
THOROUGH = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@THOROUGH
@given(slots, st.lists(st.one_of(appends, reads, lookups), min_size=1, max_size=5))
def test_answers_do_not_depend_on_what_is_outside(
    pair: list[tuple[RunningServer, str]], log: list[tuple[Event, Event]], requests: Requests
) -> None:
    logs = ([slot[0] for slot in log], [slot[1] for slot in log])
    assert_same_answers(pair, logs, requests)


def test_ids_outside_are_no_oracle(pair: list[tuple[RunningServer, str]]) -> None:
    """One store has another tenant's event with the id, the other has not: the append is answered alike."""
    id = uuid4()
    logs = ([Event("U", tags={"b"}, id=id)], [Event("U", tags={"b"})])
    append = {"events": [{"type": "T", "tags": ["a"], "id": str(id)}]}
    assert_same_answers(pair, logs, [("POST", "/v1/append", append), ("POST", "/v1/append", append)])


@THOROUGH
@given(slots, st.lists(outside, max_size=3), st.lists(st.one_of(reads, lookups), min_size=1, max_size=3))
def test_answers_do_not_depend_on_what_was_stored_outside_since(
    pair: list[tuple[RunningServer, str]], log: list[tuple[Event, Event]], since: list[Event], requests: Requests
) -> None:
    logs = ([slot[0] for slot in log] + since, [slot[1] for slot in log])
    assert_same_answers(pair, logs, requests)


def assert_same_answers(
    pair: list[tuple[RunningServer, str]], logs: tuple[list[Event], list[Event]], requests: Requests
) -> None:
    answers = [asked(server, secret, log, requests) for (server, secret), log in zip(pair, logs, strict=True)]
    heads = [server.engine.head() for server, _ in pair]
    for (server, _), head in zip(pair, heads, strict=True):  # the next example begins at the same position
        if head < max(heads):
            server.engine.commit([Append((Event("U"),) * (max(heads) - head))])
    assert answers[0] == answers[1]


def asked(server: RunningServer, secret: str, log: list[Event], requests: list[tuple[str, str, Any]]) -> list[Any]:
    base = server.engine.head()
    if log:
        server.engine.commit([Append(tuple(log))])
    answers: list[Any] = []
    with httpx.Client(base_url=server.url, headers={"Authorization": f"Bearer {secret}"}) as http:
        for method, path, body in requests:
            if body is not None and "after" in body:
                body = {**body, "after": body["after"] + base}
            if body is not None and "condition" in body:
                body = {**body, "condition": {**body["condition"], "after": body["condition"]["after"] + base}}
            if method == "LINES":
                answers.append(lines_of(http, path))
                continue
            answer = http.request(method, path, json=body)
            answers.append((answer.status_code, without_times(answer.content), answer.headers.get("etag")))
    answers.append(asked_by_grpc(server, secret))
    return answers


def lines_of(http: httpx.Client, path: str) -> list[bytes]:
    """The lines of a reading, or those of a subscription up to its first sign of life."""
    found = []
    with http.stream("GET", path, headers={"Accept": "application/x-ndjson"}) as answer:
        for text in answer.iter_lines():
            found.append(without_times(text.encode()))
            if text.startswith('{"head"'):
                break
    return found


def without_times(content: bytes) -> bytes:
    """The bytes of an answer, without the times at which events were stored."""
    return re.sub(rb'"recorded_at":"[^"]*"', b"", content)


def asked_by_grpc(server: RunningServer, secret: str) -> list[Any]:
    import grpc

    metadata = [("authorization", f"Bearer {secret}")]
    with grpc.insecure_channel(f"127.0.0.1:{server.settings.grpc_port}") as channel:
        read = channel.unary_stream(
            "/umadb.v1.DCB/Read",
            request_serializer=messages.ReadRequest.SerializeToString,
            response_deserializer=messages.ReadResponse.FromString,
        )
        head = channel.unary_unary(
            "/umadb.v1.DCB/Head",
            request_serializer=messages.HeadRequest.SerializeToString,
            response_deserializer=messages.HeadResponse.FromString,
        )
        batches = list(read(messages.ReadRequest(), metadata=metadata, timeout=20))
        answered = head(messages.HeadRequest(), metadata=metadata, timeout=20)
        return [[batch.SerializeToString(deterministic=True) for batch in batches], answered.position]


def test_the_two_stores_really_differ(tmp_path: Path) -> None:
    """The property would hold trivially if events outside were never stored, or a scope hid everything."""
    with RunningServer("memory:") as server:
        server.engine.commit([Append((Event("T", tags={"a"}), Event("U")))])
        pages = server.engine.scan(Query.all(), after=0, up_to=2)
        stored = [event for page in pages for event in page]
        assert [SCOPE.contains(event.event) for event in stored] == [True, False]
