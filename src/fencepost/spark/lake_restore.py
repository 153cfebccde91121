"""From a lake back into a store: events with their positions, times and ids, and the recorded appends with them.

Each file is proven by its checksum before anything of it is stored. A part goes in whole or not at all, so
a restore that was killed is started again: it compares what is there with the lake, event by event, and
goes on behind it.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Final

from ..errors import InvalidInput, StoreCorrupt
from ..model import RecordedAppend, SequencedEvent
from ..store import EventStore
from .lake_files import Manifest, problem_of, read_manifest
from .lake_scan import COLUMNS, events_of, read_files, read_recorded
from .recorded import appends_of
from .selection import Selection

PART_EVENTS: Final = 100_000
PART_BYTES: Final = 33_554_432

Progress = Callable[[int, int], None]


def restore(folder: str, store: EventStore, *, on_progress: Progress | None = None) -> int:
    """Put the lake's events into the store, with their positions, ids and times; the store's head then.

    The store is empty, or holds the beginning of the same log: then this goes on where it ends.
    """
    target = Path(folder).absolute()
    manifest = read_manifest(target)
    for file in manifest.files:
        problem = problem_of(target, file)
        if problem:
            raise StoreCorrupt(f"{target / file.path}: {problem}; nothing was restored")
    progress = on_progress or (lambda done, all: None)
    with _no_collections():
        _compare(target, manifest, store, progress)
        after = store.head()
        appends = _Upto(chain.from_iterable(map(appends_of, read_recorded(target, after, manifest.upto))))
        for part in _ahead(_parts(events_of_range(target, after, manifest.upto))):
            end = part[-1].position
            store.restore(part, list(appends.upto(end)))
            progress(end, manifest.upto)
    return store.head()


def events_of_range(folder: Path, after: int, upto: int) -> Iterator[SequencedEvent]:
    return chain.from_iterable(map(events_of, read_files(folder, Selection(after, upto), COLUMNS)))


def _compare(folder: Path, manifest: Manifest, store: EventStore, progress: Progress) -> None:
    """Refuse a store that holds anything else than the lake does, as far as both go."""
    common = min(manifest.upto, store.head())
    for number, (there, kept) in enumerate(
        zip(store.read(upto=common), events_of_range(folder, 0, common), strict=True), start=1
    ):
        if there.stored != kept.stored:
            raise InvalidInput(
                "store", f"it holds another log: its event at position {there.position} is not the lake's"
            )
        if number % PART_EVENTS == 0:
            progress(there.position, manifest.upto)


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
    """The same parts, the next one being read while this one is stored, which is half done outside of Python."""
    with ThreadPoolExecutor(1, thread_name_prefix="fencepost-restore") as reader:
        coming = reader.submit(next, parts, None)
        while (part := coming.result()) is not None:
            coming = reader.submit(next, parts, None)
            yield part


class _Upto:
    """Appends, taken as far as a position and no further."""

    def __init__(self, appends: Iterator[RecordedAppend]) -> None:
        self._appends = appends
        self._next = next(appends, None)

    def upto(self, position: int) -> Iterator[RecordedAppend]:
        while self._next is not None and self._next.last <= position:
            yield self._next
            self._next = next(self._appends, None)


@contextmanager
def _no_collections() -> Iterator[None]:
    """Millions of objects are made here, none of them in a cycle: looking for cycles would take a fifth of the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
