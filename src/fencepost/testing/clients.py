"""The histories of concurrent clients: their calls and the results, for the history checker.

Each client has a `ClientStore`, which wraps the store that the client uses and has the same methods. It notes
a call before the store gets it and the result afterwards, with the times of one clock that all processes of
the machine share. With a path, each entry is written to a file at once, so a client that is killed leaves
its last call in the file. `history.check` then compares the histories of all clients with the log.

Each appended event gets a mark in its metadata: the client, the number of the append, and the
index in it. So every event in the log can be traced to its append, and the checker finds an event that
is stored twice or without the rest of its append.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic_ns
from typing import Any, Final, TypeAlias
from zlib import crc32

from ..errors import CheckpointBehind, ConditionFailed, FencepostError, IdsOverlap, InvalidInput, RecordChanged
from ..model import AppendCondition, Delete, Event, Placed, Put, Query, SequencedEvent
from .stores import Store

MARK: Final = "client_append"


@dataclass(frozen=True, slots=True)
class Invoked:
    """A client called `append`; the events carry their marks."""

    client: str
    number: int
    at_ns: int
    events: tuple[Event, ...]
    conditions: tuple[AppendCondition, ...] = ()
    unless: Query | None = None
    checkpoint: tuple[str, int] | None = None

    def __str__(self) -> str:
        return f"append {self.number} of client {self.client}"


@dataclass(frozen=True, slots=True)
class Failed:
    """The append raised something that leaves open whether it was stored."""

    error: str


@dataclass(frozen=True, slots=True)
class Malformed:
    """The append was refused as invalid input."""

    error: str


Outcome: TypeAlias = Placed | ConditionFailed | IdsOverlap | CheckpointBehind | RecordChanged | Malformed | Failed


@dataclass(frozen=True, slots=True)
class Answered:
    """A client's append came to its end."""

    client: str
    number: int
    at_ns: int
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Saw:
    """A client read, or followed, the log from `after` to `up_to` and got just these events of the query.

    Each event is its position and a fingerprint of what it holds.
    """

    client: str
    verb: str
    began_ns: int
    ended_ns: int
    query: Query
    after: int
    up_to: int
    events: tuple[tuple[int, int], ...]
    bounded: bool = False  # by `up_to` or a limit: then it need not reach the head

    def __str__(self) -> str:
        return f"client {self.client} ({self.verb} after {self.after} up to {self.up_to})"


Entry: TypeAlias = Invoked | Answered | Saw
History: TypeAlias = list[Entry]


def mark(client: str, number: int, index: int) -> str:
    return f"{client}/{number}/{index}"


def fingerprint(event: SequencedEvent | Event) -> int:
    """The same in every process, unlike a hash."""
    text = "\0".join([event.type, *sorted(event.tags), event.metadata.get(MARK, "")])
    return crc32(event.data, crc32(text.encode()))


def load(path: str | os.PathLike[str]) -> History:
    """The history in the file; leaves out a last entry that is incomplete because its client was killed."""
    entries: History = []
    with Path(path).open("rb") as file:
        while True:
            try:
                entries.append(pickle.load(file))
            except (EOFError, pickle.UnpicklingError):
                return entries


def _outcome_of(error: Exception) -> Outcome:
    if isinstance(error, (ConditionFailed, IdsOverlap, CheckpointBehind, RecordChanged)):
        return error
    return Malformed(str(error)) if isinstance(error, InvalidInput) else Failed(repr(error))


class ClientStore:
    """A store that keeps the history of one client, which must be one thread."""

    def __init__(self, store: Store, client: str, *, path: str | os.PathLike[str] | None = None) -> None:
        self.store = store
        self.client = client
        self.history: History = []
        self._number = 0
        self._file = None if path is None else Path(path).open("ab", buffering=0)  # noqa: SIM115

    def append(
        self,
        events: Iterable[Event],
        condition: AppendCondition | Iterable[AppendCondition] | None = None,
        *,
        unless: Query | None = None,
        checkpoint: tuple[str, int] | None = None,
        records: Iterable[Put | Delete] = (),
    ) -> Placed:
        self._number += 1
        number = self._number
        marked = tuple(self._marked(event, number, index) for index, event in enumerate(events))
        conditions = (condition,) if isinstance(condition, AppendCondition) else tuple(condition or ())
        self.note(Invoked(self.client, number, monotonic_ns(), marked, conditions, unless, checkpoint))
        try:
            placed = self.store.append(marked, conditions, unless=unless, checkpoint=checkpoint, records=records)
        except (FencepostError, OSError) as error:
            self.note(Answered(self.client, number, monotonic_ns(), _outcome_of(error)))
            raise
        self.note(Answered(self.client, number, monotonic_ns(), placed))
        return placed

    def read(
        self,
        query: Query | None = None,
        *,
        after: int = 0,
        up_to: int | None = None,
        limit: int | None = None,
        backwards: bool = False,
    ) -> Delivery:
        """A reading that is noted when it has been iterated to its end; backwards with a limit, it is not noted."""
        began_ns = monotonic_ns()
        reading = self.store.read(query, after=after, up_to=up_to, limit=limit, backwards=backwards)
        bounded = up_to is not None or limit is not None
        unnoted = backwards and limit is not None
        return Delivery(self, reading, "read", began_ns, query or Query.all(), after, bounded, noted=unnoted)

    def head(self) -> int:
        began_ns = monotonic_ns()
        head = self.store.head()
        self.note(Saw(self.client, "head", began_ns, monotonic_ns(), Query.all(), head, head, ()))
        return head

    def subscribe(self, query: Query | None = None, *, after: int = 0, timeout_s: float | None = None) -> Delivery:
        """A subscription that is noted when it is stopped."""
        began_ns = monotonic_ns()
        subscription = self.store.subscribe(query, after=after, timeout_s=timeout_s)
        return Delivery(self, subscription, "subscribe", began_ns, query or Query.all(), after)

    def checkpoint(self, name: str) -> int:
        return self.store.checkpoint(name)

    @property
    def records(self) -> Any:
        """The records of the store. Reading and changing them is not part of the history."""
        return self.store.records

    def close(self) -> None:
        """Close the file of the history. The store is left open: other clients may use it."""
        if self._file is not None:
            self._file.close()

    def note(self, entry: Entry) -> None:
        self.history.append(entry)
        if self._file is not None:
            self._file.write(pickle.dumps(entry))

    def _marked(self, event: Event, number: int, index: int) -> Event:
        metadata = {**event.metadata, MARK: mark(self.client, number, index)}
        return Event(event.type, data=event.data, tags=event.tags, id=event.id, metadata=metadata)


@dataclass
class Delivery:
    """A reading or subscription of a client. At its end, the events that it delivered are noted."""

    store: ClientStore
    source: Any
    verb: str
    began_ns: int
    query: Query
    after: int
    bounded: bool = False
    noted: bool = False
    seen: list[tuple[int, int]] = field(default_factory=list)

    @property
    def head(self) -> int:
        return self.source.head  # type: ignore[no-any-return]

    @property
    def position(self) -> int:
        return self.source.position  # type: ignore[no-any-return]

    def __iter__(self) -> Iterator[SequencedEvent]:
        return self

    def __next__(self) -> SequencedEvent:
        event: SequencedEvent | None = next(self.source, None)
        if event is not None:
            self.seen.append((event.position, fingerprint(event)))
            return event
        if self.verb == "read":  # a subscription may continue after a timeout
            self._note(self.head)
        raise StopIteration

    def stop(self) -> None:
        position = self.position
        self.source.stop()
        self._note(position)

    def _note(self, up_to: int) -> None:
        if not self.noted:
            self.noted = True
            span = (self.began_ns, monotonic_ns(), self.query, self.after, up_to)
            seen = sorted(self.seen) if self.verb == "read" else self.seen  # a reading may go backwards
            self.store.note(Saw(self.store.client, self.verb, *span, tuple(seen), self.bounded))
