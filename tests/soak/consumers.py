"""What the processes of the soak test run: one consumer for each promise, declared from two addresses and a file.

`shared` (partitions) and `single` write a row for each event, exactly once. `totals` is a read model. `reactions`
(partitions) appends an event for each event, exactly once. `lines` writes a line into a file, at least once.
"""

from __future__ import annotations

import os
from typing import Annotated, Any

from fencepost import Event, SequencedEvent
from fencepost.consumers import Consumer, Reaction, ReadModel, consumer
from fencepost.decisions import Projection, Tag, event, on, tag

LEASE_S = 1.5
PARTITIONS = 4


@event
class Added:
    key: Tag
    amount: int


@event
class Moved:
    """Concerns two keys."""

    source: Annotated[str, tag("key")]
    target: Annotated[str, tag("key")]


class Total(Projection):
    key: Tag
    total: int = 0
    moves: int = 0

    @on
    def _(self, event: Added) -> None:
        self.total += event.amount

    @on
    def _(self, event: Moved) -> None:
        self.moves += 1


def read_model(into: str) -> ReadModel:
    return ReadModel(Total, into=into, table="totals", batch=50, lease_s=LEASE_S)


def declared(into: str, file: str) -> list[Consumer]:
    mark = "%s" if "://" in into else "?"

    def insert(table: str, tx: Any, position: int) -> None:
        tx.execute(f"INSERT INTO {table} (position, pid) VALUES ({mark}, {mark})", (position, os.getpid()))

    @consumer("shared", into=into, lease_s=LEASE_S, batch=20, partitions=PARTITIONS, key="key")
    def shared(event: Added | Moved, tx: Any, stored: SequencedEvent) -> None:
        insert("shared", tx, stored.position)

    @consumer("single", into=into, lease_s=LEASE_S, batch=20)
    def single(event: Added | Moved, tx: Any, stored: SequencedEvent) -> None:
        insert("single", tx, stored.position)

    @consumer("reactions", lease_s=LEASE_S, partitions=3, key="key")
    def reactions(event: Added | Moved, reaction: Reaction, stored: SequencedEvent) -> None:
        reaction.append([Event("Reacted", data=str(stored.position).encode())])

    opened = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    @consumer("lines", lease_s=LEASE_S, batch=20)
    def lines(event: Added | Moved, stored: SequencedEvent) -> None:
        os.write(opened, f"{stored.position}\n".encode())

    return [shared, single, reactions, lines, read_model(into)]
