"""One Spark for all tests here, since it takes seconds to start; and stores to try it on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest
from pyspark.sql import SparkSession

import fencepost
import fencepost.spark
from fencepost import Event, SequencedEvent

NASTY_TAGS = (
    'a","b',
    "back\\slash",
    'quote"',
    "comma,",
    "[bracket]",
    "umlaut:ä",
    "emoji:🦊",
    "new\nline",
    "\\\\",
    "x:",
)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    # Tasks may fail 4 times, as on a cluster: what a retry does wrong shows only then.
    session = fencepost.spark.session("local[2,4]")
    yield session
    session.stop()


def wallet_events(count: int) -> list[Event]:
    return [
        Event(
            "MoneyAdded" if number % 3 else "WalletOpened",
            data=json.dumps({"amount": number}).encode(),
            tags={f"wallet:w{number % 10}", "region:eu"} if number % 7 else set(),
            id=UUID(int=number + 1) if number % 2 == 0 else None,
            metadata={"trace": str(number), "by": "ada"} if number % 5 == 0 else None,
        )
        for number in range(count)
    ]


def append_each(store: fencepost.EventStore, events: list[Event]) -> None:
    """Events with and without ids cannot share an append."""
    for with_id in (True, False):
        group = [event for event in events if (event.id is not None) == with_id]
        if group:
            store.append(group)


@pytest.fixture
def log(tmp_path: Path) -> str:
    """A store of 500 wallet events and some with nasty tags."""
    path = str(tmp_path / "log.db")
    with fencepost.open(path) as store:
        append_each(store, wallet_events(500))
        store.append([Event("Odd", data=b"{}", tags={tag}) for tag in NASTY_TAGS])
        store.append([Event("Odd", data=b"{}", tags=NASTY_TAGS)])
    return path


@pytest.fixture
def empty(tmp_path: Path) -> str:
    path = str(tmp_path / "empty.db")
    fencepost.open(path).close()
    return path


def stored(path: str) -> list[SequencedEvent]:
    with fencepost.open(path) as store:
        return list(store.read())
