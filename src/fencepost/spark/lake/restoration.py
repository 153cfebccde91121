"""From a lake back into a store: events with their positions, times and ids, and the recorded appends.

Every file is verified before any event is stored. Events are stored in parts, each in one transaction. So a restore
that was killed can be started again: it compares the store with the lake, event by event, and continues after the
store's head.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from typing import Final

from ... import EventStore, SequencedEvent, engine
from ...errors import InvalidInput, StoreCorrupt
from ...tools import AppendsUpto, no_collections
from ..lake_engine.files import Lake, lake_at, problem_of
from ..lake_engine.reader import appends_of, read_events, read_recorded
from ..location import absolute_location

PART_EVENTS: Final = 100_000
PART_BYTES: Final = 33_554_432

Progress = Callable[[int, int], None]


def restore(folder: str, store: EventStore, *, on_progress: Progress | None = None) -> int:
    """Store the lake's events with their positions, ids and times; returns the store's head.

    The store must be empty, or hold the beginning of the same log; then the restore continues after its head.
    """
    lake = lake_at(absolute_location(folder, "folder"))
    for file in lake.files:
        problem = problem_of(lake.table, file)
        if problem:
            raise StoreCorrupt(f"{lake.table.name(file.path)}: {problem}; nothing was restored")
    progress = on_progress or (lambda done, all: None)
    with no_collections():
        _compare(lake, store, progress)
        after = store.head()
        appends = AppendsUpto(chain.from_iterable(map(appends_of, read_recorded(lake, after=after, up_to=lake.up_to))))
        for part in _ahead(_parts(read_events(lake, after=after, up_to=lake.up_to))):
            end = part[-1].position
            engine.restore(store, part, list(appends.up_to(end)))
            progress(end, lake.up_to)
    return store.head()


def _compare(lake: Lake, store: EventStore, progress: Progress) -> None:
    """Refuse a store whose events differ from the lake's, up to the last position that both have."""
    common = min(lake.up_to, store.head())
    for number, (there, kept) in enumerate(
        zip(store.read(up_to=common), read_events(lake, after=0, up_to=common), strict=True), start=1
    ):
        if there.stored != kept.stored:
            raise InvalidInput(
                "store", f"it holds another log: its event at position {there.position} differs from the lake's"
            )
        if number % PART_EVENTS == 0:
            progress(there.position, lake.up_to)


def _parts(events: Iterable[SequencedEvent]) -> Iterator[list[SequencedEvent]]:
    part: list[SequencedEvent] = []
    size = 0
    for event in events:
        part.append(event)
        size += len(event.data)
        if len(part) == PART_EVENTS or size >= PART_BYTES:
            yield part
            part, size = [], 0
    if part:
        yield part


def _ahead(parts: Iterator[list[SequencedEvent]]) -> Iterator[list[SequencedEvent]]:
    """The same parts; a thread reads the next one while this one is stored, which runs in C half of the time."""
    with ThreadPoolExecutor(1, thread_name_prefix="fencepost-restore") as reader:
        coming = reader.submit(next, parts, None)
        while (part := coming.result()) is not None:
            coming = reader.submit(next, parts, None)
            yield part
