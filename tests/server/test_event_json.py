"""One JSON form of an event: every output of the command and of the server is accepted by every input of both."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import UUID

import httpx
import pytest

import fencepost
from fencepost import Event, Query, SequencedEvent

from .running import RunningServer

DATA = [
    b"100",
    b'"100"',
    b'{"b": 1,  "a": [1.50, null]}',
    b"plain text",
    b'{"a":\n1}',
    b" 1",
    b"",
    b"\x00\xff",
    '["\x9b2J", "é\u202e"]'.encode(),
    b"[" * 2_000 + b"]" * 2_000,
    b"1e999",
    b"NaN",
    b'{"a":1}{"b":2}',
]
EVENTS = [
    Event("Odd é", data=data, tags={"x", f"n:{number}"}, id=UUID(int=number + 1), metadata={"by": "Ada\t"})
    for number, data in enumerate(DATA)
]


def run(*arguments: str, given: bytes = b"") -> bytes:
    done = subprocess.run([sys.executable, "-m", "fencepost.cli", *arguments], input=given, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


def sse(http: httpx.Client) -> list[bytes]:
    lines = []
    with http.stream("GET", "/v1/subscribe") as answer:
        for line in answer.iter_lines():
            if line.startswith("data: "):
                lines.append(line.removeprefix("data: ").encode())
            if len(lines) == len(EVENTS):
                return lines
    raise AssertionError("the stream ended")


def page(http: httpx.Client) -> list[bytes]:
    text = http.get("/v1/events").text
    events = text.removeprefix('{"events":[').rpartition('],"head"')[0]
    return [b'{"position":' + each.encode() for each in events.removeprefix('{"position":').split(',{"position":')]


OUTPUTS: dict[str, Callable[[str, httpx.Client], list[bytes]]] = {
    "read": lambda path, http: run("read", path, "--json").splitlines(),
    "tail": lambda path, http: run("tail", path, "-n", "100", "--json").splitlines(),
    "export": lambda path, http: run("export", path).splitlines(),
    "page": lambda path, http: page(http),
    "ndjson": lambda path, http: http.get("/v1/events", headers={"accept": "application/x-ndjson"}).content.split(
        b"\n"
    )[:-2],
    "sse": lambda path, http: sse(http),
}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, httpx.Client]]:
    path = str(tmp_path_factory.mktemp("source") / "source.db")
    with RunningServer(path) as server, httpx.Client(base_url=server.url, timeout=20) as http:
        with fencepost.open(server.url) as store:
            store.append(EVENTS)
        yield path, http


def stored(path: str) -> list[SequencedEvent]:
    with fencepost.open(path) as store:
        return list(store.read(Query.all()))


def fields(event: Event | SequencedEvent) -> tuple[object, ...]:
    return event.type, event.tags, event.data, event.id, dict(event.metadata)


@pytest.mark.parametrize("output", OUTPUTS)
def test_every_output_is_accepted_by_every_input_and_means_the_same_bytes(
    output: str, source: tuple[str, httpx.Client], tmp_path: Path
) -> None:
    path, http = source
    lines = OUTPUTS[output](path, http)
    assert len(lines) == len(EVENTS)
    appended, imported, posted = (str(tmp_path / name) for name in ("appended.db", "imported.db", "posted.db"))
    run("init", appended)
    run("append", appended, given=b"\n".join(lines))
    assert [fields(event) for event in stored(appended)] == [fields(event) for event in EVENTS]
    run("import", imported, "-", given=b"\n".join(lines))
    assert [event.stored for event in stored(imported)] == [event.stored for event in stored(path)]
    with RunningServer(posted) as server, httpx.Client(base_url=server.url, timeout=20) as target:
        body = b'{"events": [%b]}' % b",".join(lines)
        assert target.post("/v1/append", content=body).json() == {"first": 1, "last": len(EVENTS), "already": False}
    assert [fields(event) for event in stored(posted)] == [fields(event) for event in EVENTS]


def test_lines_are_the_same_bytes_wherever_they_come_from(source: tuple[str, httpx.Client]) -> None:
    decoded = [[json.loads(line) for line in output(*source)] for output in OUTPUTS.values()]
    assert all(lines == decoded[0] for lines in decoded)
