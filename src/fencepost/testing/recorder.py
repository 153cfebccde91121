"""What concurrent clients did and were told, written down as it happens.

Each client has a `Recorder`, a store with the same verbs over the one that it uses. An
invocation is written before the call and its answer after it, with the times of one clock that
all processes of the machine share. With a path the records go to a file at once, so that even a
client that is killed leaves behind what it had begun. `history.check` then holds all clients'
histories against the log.

Each event that is appended gets a mark in its metadata: who appended it, in which append, at
which index. So an event in the log can be traced to the append that it came from, and one that
is there twice, or without its siblings, is found.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from time import monotonic_ns
from typing import Final, TypeAlias
from zlib import crc32

from ..errors import CheckpointBehind, ConditionFailed, FencepostError, IdsOverlap, InvalidInput
from ..model import AppendCondition, Event, Placed, Query, SequencedEvent
from .stores import Read, Store, Subscribed

MARK: Final = "recorded"


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


Outcome: TypeAlias = Placed | ConditionFailed | IdsOverlap | CheckpointBehind | Malformed | Failed


@dataclass(frozen=True, slots=True)
class Answered:
    """A client's append came to its end."""

    client: str
    number: int
    at_ns: int
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Saw:
    """A client read, or followed, the log from `after` to `upto` and got just these events of the query.

    Each event is its position and a fingerprint of what it holds.
    """

    client: str
    verb: str
    began_ns: int
    ended_ns: int
    query: Query
    after: int
    upto: int
    events: tuple[tuple[int, int], ...]
    bounded: bool = False  # by `upto` or a limit: then it need not reach the head

    def __str__(self) -> str:
        return f"client {self.client} ({self.verb} after {self.after} up to {self.upto})"


Record: TypeAlias = Invoked | Answered | Saw
History: TypeAlias = list[Record]


def mark(client: str, number: int, index: int) -> str:
    return f"{client}/{number}/{index}"


def fingerprint(event: SequencedEvent | Event) -> int:
    """The same in every process, unlike a hash."""
    text = "\0".join([event.type, *sorted(event.tags), event.metadata.get(MARK, "")])
    return crc32(event.data, crc32(text.encode()))


def load(path: str | os.PathLike[str]) -> History:
    """The history in the file; a last record that was torn when its client was killed is left out."""
    records: History = []
    with Path(path).open("rb") as file:
        while True:
            try:
                records.append(pickle.load(file))
            except (EOFError, pickle.UnpicklingError):
                return records


class Recorder:
    """A store that writes down what one client does with it. One client is one thread."""

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
    ) -> Placed:
        self._number += 1
        number = self._number
        marked = tuple(self._marked(event, number, index) for index, event in enumerate(events))
        conditions = (condition,) if isinstance(condition, AppendCondition) else tuple(condition or ())
        self.record(Invoked(self.client, number, monotonic_ns(), marked, conditions, unless, checkpoint))
        try:
            placed = self.store.append(marked, conditions, unless=unless, checkpoint=checkpoint)
        except (ConditionFailed, IdsOverlap, CheckpointBehind) as refusal:
            self.record(Answered(self.client, number, monotonic_ns(), refusal))
            raise
        except InvalidInput as error:
            self.record(Answered(self.client, number, monotonic_ns(), Malformed(str(error))))
            raise
        except (FencepostError, OSError) as error:
            self.record(Answered(self.client, number, monotonic_ns(), Failed(repr(error))))
            raise
        self.record(Answered(self.client, number, monotonic_ns(), placed))
        return placed

    def read(
        self,
        query: Query | None = None,
        *,
        after: int = 0,
        upto: int | None = None,
        limit: int | None = None,
        backwards: bool = False,
    ) -> Read:
        """A reading that is recorded when it has been iterated to its end; one with a limit is not, backwards."""
        began_ns = monotonic_ns()
        reading = self.store.read(query, after=after, upto=upto, limit=limit, backwards=backwards)
        if backwards and limit is not None:
            return reading
        bounded = upto is not None or limit is not None
        return RecordedReading(self, reading, began_ns, query or Query.all(), after, bounded)

    def head(self) -> int:
        began_ns = monotonic_ns()
        head = self.store.head()
        self.record(Saw(self.client, "head", began_ns, monotonic_ns(), Query.all(), head, head, ()))
        return head

    def subscribe(self, query: Query | None = None, *, after: int = 0, timeout: float | None = None) -> Subscribed:
        """A subscription that is recorded when it is stopped."""
        began_ns = monotonic_ns()
        subscription = self.store.subscribe(query, after=after, timeout=timeout)
        return RecordedSubscription(self, subscription, began_ns, query or Query.all(), after)

    def checkpoint(self, name: str) -> int:
        return self.store.checkpoint(name)

    def close(self) -> None:
        """Close the file of the history. The store is left open: other clients may use it."""
        if self._file is not None:
            self._file.close()

    def record(self, record: Record) -> None:
        self.history.append(record)
        if self._file is not None:
            self._file.write(pickle.dumps(record))

    def _marked(self, event: Event, number: int, index: int) -> Event:
        metadata = {**event.metadata, MARK: mark(self.client, number, index)}
        return Event(event.type, data=event.data, tags=event.tags, id=event.id, metadata=metadata)


class RecordedReading:
    def __init__(
        self, recorder: Recorder, reading: Read, began_ns: int, query: Query, after: int, bounded: bool
    ) -> None:
        self._recorder = recorder
        self._reading = reading
        self._began_ns = began_ns
        self._query = query
        self._after = after
        self._seen: list[tuple[int, int]] = []
        self._bounded = bounded
        self._ended = False

    @property
    def head(self) -> int:
        return self._reading.head

    def __iter__(self) -> Iterator[SequencedEvent]:
        return self

    def __next__(self) -> SequencedEvent:
        event = next(self._reading, None)
        if event is not None:
            self._seen.append((event.position, fingerprint(event)))
            return event
        if not self._ended:
            self._ended = True
            self._recorder.record(
                Saw(
                    self._recorder.client,
                    "read",
                    self._began_ns,
                    monotonic_ns(),
                    self._query,
                    self._after,
                    self.head,
                    tuple(sorted(self._seen)),
                    self._bounded,
                )
            )
        raise StopIteration


class RecordedSubscription:
    def __init__(self, recorder: Recorder, subscription: Subscribed, began_ns: int, query: Query, after: int) -> None:
        self._recorder = recorder
        self._subscription = subscription
        self._began_ns = began_ns
        self._query = query
        self._after = after
        self._seen: list[tuple[int, int]] = []

    @property
    def position(self) -> int:
        return self._subscription.position

    def stop(self) -> None:
        position = self.position
        self._subscription.stop()
        # A subscription shows what it shows late by nature: it never counts as a stale reading.
        self._recorder.record(
            Saw(
                self._recorder.client,
                "subscribe",
                self._began_ns,
                monotonic_ns(),
                self._query,
                self._after,
                position,
                tuple(self._seen),
            )
        )

    def __iter__(self) -> Iterator[SequencedEvent]:
        return self

    def __next__(self) -> SequencedEvent:
        event = next(self._subscription)
        self._seen.append((event.position, fingerprint(event)))
        return event
