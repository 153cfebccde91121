"""Logs to copy: with every kind of data, with ids, metadata and recorded conditions."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from tests.cli.conftest import cli, process  # noqa: F401 - fixtures
from tests.postgres.conftest import (  # noqa: F401 - fixtures
    database_url,
    new_schema,
    schema,
    url,
)

import fencepost
from fencepost import AppendCondition, Event, EventStore, Query
from fencepost.engine import recorded

DATA = [b"", b'{"owner": "Ada"}', b'{ "a":1 }', b"[1, 2]", b"caf\xc3\xa9", b"\xff\x00", b'"text"', b"{\n}", b"12"]


def events(count: int, first: int = 1) -> list[Event]:
    return [
        Event(
            f"Type{number % 3}",
            data=DATA[number % len(DATA)],
            tags={f"wallet:{number % 5}", "é"} if number % 4 else (),
            id=UUID(int=number),
            metadata={"b": "ü", "a": str(number)} if number % 2 else {},
        )
        for number in range(first, first + count)
    ]


def fill(store: EventStore, count: int, *, step: int = 10) -> None:
    """Append `count` events, `step` in each append, every append with a condition."""
    head = store.head()
    for first in range(head + 1, head + count + 1, step):
        condition = AppendCondition(Query.of(types=["Never"], tags=["wallet:1"]), after=first - 1)
        store.append(events(min(step, head + count + 1 - first), first), condition, unless=Query.of(types=["Nor"]))


def log(address: str, **options: Any) -> list[Any]:
    """Everything that a copy must keep, in stored form."""
    with fencepost.open(address, **options) as store:
        return [*(event.stored for event in store.read()), *recorded(store)]


@pytest.fixture
def source(tmp_path: Path) -> str:
    """An SQLite store of 95 events, with recorded conditions."""
    path = str(tmp_path / "source.db")
    with fencepost.open(path, record_conditions=True) as store:
        fill(store, 95)
    return path


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fencepost.tools.part.PART_EVENTS", 10)
    monkeypatch.setattr("fencepost.tools.log_copy.PART_EVENTS", 10)
    monkeypatch.setattr("fencepost.cli.transfer.PART_EVENTS", 10)
