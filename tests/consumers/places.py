"""Where the tests of consumers keep their log and their target: SQLite files, or a schema of a real PostgreSQL."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import monotonic, sleep
from typing import Annotated, Any

import fencepost
from fencepost import EventStore
from fencepost.consumers import BatchHandled
from fencepost.consumers.control_state import Control
from fencepost.consumers.sql_targets import connect_postgres
from fencepost.core.address import Address
from fencepost.core.observers import Observation, observe
from fencepost.decisions import Tag, encode, event, project, tag

PATIENCE_S = 60.0


@event
class Added:
    key: Tag
    amount: int


@event
class Other:
    key: Tag


@event
class Moved:
    """Concerns two keys."""

    source: Annotated[str, tag("key")]
    target: Annotated[str, tag("key")]


@dataclass(frozen=True)
class Place:
    """The address of a store, the address of a target beside it, and how to look into the target."""

    address: str
    into: str
    kind: str

    def open(self) -> EventStore:
        return fencepost.open(self.address)

    def connect(self) -> Any:
        if self.kind == "sqlite":
            return sqlite3.connect(self.into, timeout=30)
        return connect_postgres(Address.parse(self.into))

    def execute(self, statement: str) -> list[tuple[Any, ...]]:
        connection = self.connect()
        try:
            cursor = connection.execute(statement)
            rows = cursor.fetchall() if cursor.description else []
            connection.commit()
            return list(rows)
        finally:
            connection.close()

    def effects(self) -> list[int]:
        """The positions whose effects are in the target, in the order in which they happened."""
        return [position for (position,) in self.execute("SELECT position FROM effect ORDER BY number")]

    def checkpoint(self, name: str) -> int:
        rows = self.execute(f"SELECT position FROM fencepost_consumer WHERE name = '{name}'")
        return int(rows[0][0]) if rows else 0


def add(store: EventStore, count: int = 1, key: str = "a") -> int:
    """Store so many events in one append; the last position."""
    return store.append([encode(Added(key, 1)) for _ in range(count)]).last


def positions(store: EventStore) -> list[int]:
    return [event.position for event in store.read() if event.type == "Added"]


def control(store: EventStore, name: str) -> Control:
    return project(store, Control(name))


def eventually(holds: Callable[[], Any], what: str = "it") -> Any:
    """Wait until the condition holds, and return its value."""
    deadline = monotonic() + PATIENCE_S
    while not (found := holds()):
        assert monotonic() < deadline, f"{what} did not happen"
        sleep(0.005)
    return found


@contextmanager
def counting(store: EventStore) -> Iterator[Callable[[], int]]:
    """How many events consumers of this store have handled in the block."""
    counts: list[int] = []

    def count(observation: Observation) -> None:
        if isinstance(observation, BatchHandled):
            counts.append(observation.events)

    with observe(count, of=store):
        yield lambda: sum(counts)
