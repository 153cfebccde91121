"""Requests by chance, drawn from the OpenAPI document and from worse: no 500, every answer is of a documented kind.

Each path gets parameters and bodies that fit the document, nearly fit it, or are noise. The server must answer each
with JSON, problem+json or the media type that the document names, and be alive afterwards.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import httpx
import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fencepost.server.docs_page import DESCRIPTION
from fencepost.server.wire import rows

from .running import RunningServer

DOCUMENT = DESCRIPTION
MADE: dict[str, st.SearchStrategy[Any]] = {}
FORMS = ("application/json", "application/x-ndjson", "text/event-stream", rows.MEDIA_TYPE, "text/plain", "text/html")

anything = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 2**70) | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


def fitting(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Values that the schema allows, and now and then one that it does not."""
    text = json.dumps(schema, sort_keys=True)
    if text not in MADE:
        fits = _fitting(schema)
        MADE[text] = st.one_of(fits, fits, fits, anything)
    return MADE[text]


def _fitting(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    if "$ref" in schema:
        return fitting(DOCUMENT["components"]["schemas"][schema["$ref"].rpartition("/")[2]])
    for choice in ("anyOf", "oneOf"):
        if choice in schema:
            return st.one_of([fitting(each) for each in schema[choice]])
    kind = schema.get("type")
    if kind == "object":
        known = {name: fitting(each) for name, each in schema.get("properties", {}).items()}
        if known:
            required = {name: known[name] for name in schema.get("required", [])}
            return st.fixed_dictionaries(
                required, optional={name: known[name] for name in known if name not in required}
            )
        return st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=2)
    if kind == "array":
        return st.lists(fitting(schema.get("items", {})), max_size=3)
    if kind == "string":
        return st.uuids().map(str) if schema.get("format") == "uuid" else st.text(max_size=10)
    simple = {"integer": st.integers(-2, 2**64), "number": st.floats(), "boolean": st.booleans(), "null": st.none()}
    return simple.get(str(kind), anything)


@st.composite
def requests(draw: st.DrawFn) -> tuple[str, str, bytes | None, dict[str, str]]:
    path = draw(st.sampled_from(sorted(DOCUMENT["paths"])))
    method = draw(st.sampled_from(sorted(DOCUMENT["paths"][path])))
    operation = DOCUMENT["paths"][path][method]
    parts = []
    for parameter in operation.get("parameters", []):
        if parameter["in"] == "query" and draw(st.booleans()):
            value = draw(fitting(parameter["schema"]))
            parts += [
                f"{parameter['name']}={as_text(each)}" for each in (value if isinstance(value, list) else [value])
            ]
    path = path.replace("{name}", quote(draw(st.text(min_size=1, max_size=8)), safe=""))
    path = path.replace(
        "{position}", quote(draw(st.integers(0, 2**100).map(str) | st.text(min_size=1, max_size=8)), safe="")
    )
    if path == "/v1/head":
        parts = [part for part in parts if not part.startswith("wait_s")] + ["wait_s=0.01"]
    body = None
    if content := operation.get("requestBody", {}).get("content"):
        body = draw(
            st.binary(max_size=40) | st.sampled_from(sorted(content)).flatmap(lambda form: bodies(content, form))
        )
    headers = {"Accept": draw(st.sampled_from(FORMS)), "Content-Type": draw(st.sampled_from(FORMS))}
    if draw(st.booleans()):
        headers["Last-Event-ID"] = str(draw(st.integers(-1, 2**100)))
    return method.upper(), path + "?" * bool(parts) + "&".join(parts), body, headers


def bodies(content: dict[str, Any], form: str) -> st.SearchStrategy[bytes]:
    if form == "application/json":
        return fitting(content[form]["schema"]).map(lambda value: json.dumps(value).encode())
    events = st.lists(st.tuples(st.text(max_size=3), st.binary(max_size=3), st.lists(st.text(max_size=3), max_size=2)))
    return (st.lists(st.tuples(events), max_size=2) | st.tuples(st.lists(anything), st.lists(anything)) | anything).map(
        as_rows
    )


def as_rows(value: Any) -> bytes:
    try:
        return msgspec.msgpack.encode(value)
    except (OverflowError, msgspec.EncodeError):  # an integer of more than 64 bits
        return b"\xc1"


def as_text(value: Any) -> str:
    return quote(value if isinstance(value, str) else json.dumps(value), safe="")


@pytest.fixture(scope="module")
def fuzzed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    folder = tmp_path_factory.mktemp("fuzz")
    with (
        RunningServer(str(folder / "wallet.db"), heartbeat_s=0.05) as server,
        httpx.Client(base_url=server.url, timeout=30) as http,
    ):
        yield http
        assert http.get("/readyz").status_code == 200, "the server is alive afterwards"


@settings(max_examples=500, deadline=None, suppress_health_check=list(HealthCheck))
@given(requests())
def test_no_request_fails_the_server(fuzzed: httpx.Client, request: Any) -> None:
    method, path, body, headers = request
    with fuzzed.stream(method, path, content=body, headers=headers) as answer:
        assert answer.status_code < 500, (answer.status_code, method, path, body)
        form = answer.headers["content-type"].partition(";")[0]
        if answer.status_code >= 400:
            assert form == "application/problem+json"
        if path.startswith("/v1/subscribe") and answer.status_code == 200:
            assert form in ("text/event-stream", "application/x-ndjson")
            return  # it has no end
        content = answer.read()
        if form.endswith("json"):
            given = json.loads(content)
            if form == "application/problem+json":
                assert given["status"] == answer.status_code
                assert given["type"].startswith("urn:fencepost:")


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.sampled_from(["GET", "POST", "PUT", "DELETE", "OPTIONS", "HEAD", "PATCH", "TRACE"]),
    st.text(st.characters(min_codepoint=33, max_codepoint=126, exclude_characters="#"), max_size=20),
    st.dictionaries(
        st.sampled_from(
            ["Accept", "Accept-Encoding", "Authorization", "If-None-Match", "Content-Type", "X-Request-Id"]
        ),
        st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=20),
    ),
)
def test_no_path_method_or_header_fails_the_server(
    fuzzed: httpx.Client, method: str, path: str, headers: dict[str, str]
) -> None:
    base = str(fuzzed.base_url)
    with fuzzed.stream(method, httpx.URL(base).copy_with(raw_path=b"/" + path.encode()), headers=headers) as answer:
        assert answer.status_code < 500
        if answer.status_code >= 400:
            assert answer.headers["content-type"] == "application/problem+json"
