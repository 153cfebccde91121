"""Check a store of any engine by reading all of it.

What can be seen through the interface of a store: every event can be decoded and is one that an append could have
stored, positions grow and, where the engine assigns them so, have no gaps, no id occurs twice, the log ends at the
head, and every recorded condition, checkpoint and record can be decoded. Checksums and indexes belong to an engine:
`fencepost verify` checks those of SQLite files. tests/copying/test_check.py damages a log in each of these ways.

Repeated ids are found by comparing all of them, which takes 16 bytes for each. If they do not fit into the memory that
is allowed, the log is read several times, each time for another part of the ids.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from .. import EventStore, Put, SequencedEvent
from ..engine import (
    CHECKPOINTS,
    Capability,
    SeenStrings,
    checked_name,
    checked_position,
    engine_of,
    record_pages,
    recorded,
)
from ..errors import InvalidInput, StoreCorrupt

PROGRESS_EVENTS: Final = 10_000
ID_BYTES: Final = 16
MEMORY_BYTES: Final = 1_000_000_000  # for ids, unless the caller says otherwise
KINDS: Final = 4_096  # parts into which the ids are divided
MOST_PROBLEMS: Final = 1_000  # after these, the check ends


@dataclass
class Checked:
    """What was found."""

    head: int
    events: int = 0
    appends: int = 0
    checkpoints: int = 0
    records: int = 0
    problems: list[str] = field(default_factory=list)

    @property
    def sound(self) -> bool:
        return not self.problems


def check_log(
    store: EventStore,
    *,
    gapless: bool,
    memory_bytes: int = MEMORY_BYTES,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> Checked:
    """Read everything up to the head. `gapless`: the engine numbers events 1, 2, 3 and so on.

    The ids of all events are kept in at most `memory_bytes` at a time; a small limit means several readings.
    """
    found = Checked(store.head())
    try:
        ids = _Ids(memory_bytes)
        _check_events(store, gapless, found, ids, on_progress)
        _report_repeated(ids, found)
        while (rest := ids.rest()) is not None and len(found.problems) < MOST_PROBLEMS:
            ids = rest
            _collect(store, found.head, ids, on_progress)
            _report_repeated(ids, found)
        if Capability.RECORDED_APPENDS in engine_of(store).capabilities:
            _check_appends(store, found)
        _check_records(store, found)
    except StoreCorrupt as error:  # the engine cannot read on
        found.problems.append(str(error))
    return found


def _check_events(
    store: EventStore, gapless: bool, found: Checked, ids: _Ids, on_progress: Callable[[int, int], None]
) -> None:
    seen, previous = SeenStrings(), 0
    for event in store.read(up_to=found.head):
        if event.position <= previous:
            found.problems.append(f"position {event.position} comes after {previous}")
        elif gapless and event.position != previous + 1:
            found.problems.append(f"position {previous + 1} is missing: {event.position} comes after {previous}")
        previous = event.position
        found.problems += _problems_of(event, seen)
        if len(found.problems) >= MOST_PROBLEMS:
            return
        if event.stored_id is not None:
            ids.add(event.stored_id)
        found.events += 1
        if found.events % PROGRESS_EVENTS == 0:
            on_progress(event.position, found.head)
    if previous != found.head and found.head:
        found.problems.append(f"the log ends at position {previous}, and the head is {found.head}")


def _collect(store: EventStore, head: int, ids: _Ids, on_progress: Callable[[int, int], None]) -> None:
    """Read the log once more, for the ids that did not fit before."""
    for number, event in enumerate(store.read(up_to=head), start=1):
        if event.stored_id is not None:
            ids.add(event.stored_id)
        if number % PROGRESS_EVENTS == 0:
            on_progress(event.position, head)


def _report_repeated(ids: _Ids, found: Checked) -> None:
    for id in ids.repeated():
        if len(found.problems) >= MOST_PROBLEMS:
            return
        found.problems.append(f"the id {id} is stored more than once")


def _problems_of(event: SequencedEvent, seen: SeenStrings) -> Iterator[str]:
    try:
        event.recorded_at  # noqa: B018 - decodes it
        seen.checked(event)
    except StoreCorrupt as error:
        yield str(error)
    except InvalidInput as error:
        yield f"the event at position {event.position} could not have been appended: {error}"


def _check_appends(store: EventStore, found: Checked) -> None:
    previous = 0
    for append in recorded(store, up_to=found.head):
        found.appends += 1
        if not previous < append.first <= append.last:
            found.problems.append(f"the recorded append {append.first} to {append.last} comes after {previous}")
        previous = append.last
        try:
            append.conditions, append.unless  # noqa: B018 - decodes them
        except InvalidInput as error:
            found.problems.append(f"the recorded append that ends at {append.last} cannot be decoded: {error}")
        if len(found.problems) >= MOST_PROBLEMS:
            return


def _check_records(store: EventStore, found: Checked) -> None:
    for page in record_pages(engine_of(store), CHECKPOINTS):
        for stored in page:
            name = stored.name.removeprefix(CHECKPOINTS)
            found.checkpoints += 1
            try:
                checked_name(name, "name")
                checked_position(int(stored.value), "position")
            except ValueError as error:  # InvalidInput is one, too
                found.problems.append(f"the checkpoint {name!r} cannot be decoded: {error}")
    for record in store.records.list():
        found.records += 1
        try:
            Put(record.name, record.value, record.revision)
        except InvalidInput as error:
            found.problems.append(f"the record {record.name!r} could not have been stored: {error}")
        if len(found.problems) >= MOST_PROBLEMS:
            return


class _Ids:
    """Finds repeated ids in 16 bytes for each. When they take too much, the upper half of the parts is dropped."""

    def __init__(self, memory_bytes: int, first: int = 0) -> None:
        self._memory_bytes = memory_bytes
        self._size = 0
        self._first, self._end = first, KINDS
        self._kept = [bytearray() for _ in range(first, KINDS)]

    def add(self, id: bytes) -> None:
        kind = hash(id) % KINDS  # the same for equal ids, in this process
        if self._first <= kind < self._end:
            self._kept[kind - self._first] += id
            self._size += len(id)
            if self._size > self._memory_bytes and len(self._kept) > 1:
                del self._kept[len(self._kept) // 2 :]
                self._end = self._first + len(self._kept)
                self._size = sum(map(len, self._kept))

    def rest(self) -> _Ids | None:
        """An empty collection for the parts that were dropped; None if there are none."""
        return _Ids(self._memory_bytes, self._end) if self._end < KINDS else None

    def repeated(self) -> Iterator[UUID]:
        for kept in self._kept:
            seen: set[bytes] = set()
            for start in range(0, len(kept), ID_BYTES):
                id = bytes(kept[start : start + ID_BYTES])
                if id in seen:
                    yield UUID(bytes=id)
                seen.add(id)
