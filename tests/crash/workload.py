"""A scripted workload, and what must be true of a store whatever happened to it on the way."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

import pytest
from tests.support.disk import Disk

import fencepost
from fencepost import AppendCondition, ConditionFailed, Event, EventStore, Placed, Put, Query, StoreError
from fencepost.engines.sqlite import SqliteEngine, verify

NAME = "store.db"


@dataclass(frozen=True)
class Attempt:
    """One append of the script."""

    number: int
    events: tuple[Event, ...]

    @property
    def checkpoint(self) -> tuple[str, int] | None:
        return ("consumer", self.number) if self.number % 5 == 0 else None

    @property
    def record(self) -> str | None:
        return f"of {self.number}" if self.number % 3 == 0 else None

    def made(self, store: EventStore) -> Placed:
        """Append on the condition that the wallet has no event above the head, which always holds."""
        condition = AppendCondition(Query.of(tags={f"wallet:{self.number % 3}"}), after=store.head())
        changes = [] if self.record is None else [Put(self.record, b"%d" % self.number * 500, 0)]
        return store.append(self.events, condition, checkpoint=self.checkpoint, records=changes)

    def outcome(self, store: EventStore) -> Placed | StoreError:
        """Where the events were placed, or what the storage said. A refusal would be wrong, so it is raised."""
        try:
            return self.made(store)
        except StoreError as error:
            return error


def attempts(appends: int) -> list[Attempt]:
    """Appends of 1 to 5 events, in one statement and in several, with and without ids and checkpoints."""
    return [Attempt(number, tuple(_events(number, size=1 + number * 7 % 5))) for number in range(1, appends + 1)]


def _events(number: int, size: int) -> Iterator[Event]:
    for index in range(size):
        yield Event(
            ("Opened", "Deposited", "Withdrawn")[(number + index) % 3],
            data=b"%d.%d " % (number, index) * 40,
            tags={f"wallet:{number % 3}", f"append:{number}", "all"},
            id=UUID(int=number * 100 + index) if number % 2 else None,
            metadata={"of": str(size)} if number % 4 == 0 else None,
        )


def open_on(disk: Disk, folder: Path) -> EventStore:
    return EventStore(SqliteEngine(str(folder / NAME), vfs=disk.name))


def check_store(path: Path, done: Sequence[Attempt], maybe: Attempt | None = None) -> list[Attempt]:
    """The store at the path is sound, has what is `done` and nothing else, but for `maybe`, whole.

    Returns what is there. Showing that conditions are judged rightly leaves a few events more.
    """
    with fencepost.open(path, create=not done) as store:
        assert verify(path).problems == []
        stored = list(store.read())
        assert [event.position for event in stored] == list(range(1, len(stored) + 1))
        there = list(done)
        if maybe is not None and len(stored) > sum(len(attempt.events) for attempt in done):
            there.append(maybe)
        assert [event.event for event in stored] == [event for attempt in there for event in attempt.events]
        moved = [attempt.number for attempt in there if attempt.checkpoint]
        assert store.checkpoint("consumer") == max(moved, default=0)
        put = {attempt.record: b"%d" % attempt.number * 500 for attempt in there if attempt.record}
        assert {record.name: record.value for record in store.records.list()} == put
        for attempt in there[-1:]:
            check_index(store, attempt)
    return there


def check_index(store: EventStore, attempt: Attempt) -> None:
    """Conditions, ids and reads find the attempt, wherever its postings are."""
    by_tag = Query.of(tags={f"append:{attempt.number}", "all"})
    found = list(store.read(by_tag))
    assert [event.event for event in found] == list(attempt.events)
    assert list(store.read(by_tag, backwards=True)) == found[::-1]
    with pytest.raises(ConditionFailed) as refusal:
        store.append([Event("Refused")], AppendCondition(by_tag, after=found[0].position - 1))
    assert refusal.value.conflict == found[0]
    if attempt.events[0].id is not None:
        assert store.append(attempt.events) == Placed(found[0].position, found[-1].position, already=True)
    placed = store.append([Event("Accepted")], AppendCondition(by_tag, after=found[-1].position))
    assert placed.last == store.head()
