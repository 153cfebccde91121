"""Cut a log into parts that one restore can take.

A part is limited by its number of events and by its bytes, tags and metadata included, because it is held in memory
and may be the body of one request. Recorded appends travel in the part that holds their last event, as
`EventStore.restore` demands. tests/copying/test_parts.py holds that the parts are the log, in order and without gaps.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Final, NamedTuple

from .. import EventStore, SequencedEvent
from ..engine import Capability, RecordedAppend, engine_of, recorded
from ..errors import InvalidInput

PART_EVENTS: Final = 10_000
PART_BYTES: Final = 16_777_216  # far below the largest body that a server takes by default

StoredRow = tuple[int, str, str, bytes, int, bytes | None, str | None]


class Part(NamedTuple):
    events: list[SequencedEvent]
    rows: list[StoredRow]  # the events in stored form, for the digest
    appends: list[RecordedAppend]


def log_parts(store: EventStore, after: int, up_to: int) -> Iterator[Part]:
    """The events and recorded appends with after < position <= up_to. Raises `InvalidInput` if an event is missing."""
    appends = AppendsUpto(recorded_appends(store, after, up_to))
    events: list[SequencedEvent] = []
    rows: list[StoredRow] = []
    size, previous = 0, after
    for event in store.read(after=after, up_to=up_to):
        if event.position != previous + 1:
            raise missing(previous, event.position)
        previous = event.position
        row = event.stored
        events.append(event)
        rows.append(row)
        size += len(row[1]) + len(row[2]) + len(row[3]) + len(row[6] or "")
        if len(events) >= PART_EVENTS or size >= PART_BYTES:
            yield Part(events, rows, list(appends.up_to(previous)))
            events, rows, size = [], [], 0
    if events:
        yield Part(events, rows, list(appends.up_to(previous)))
    if previous != up_to:
        raise missing(previous, up_to + 1)


def read_ahead(parts: Iterator[Part]) -> Iterator[Part]:
    """The same parts; the next one is read by another thread while the caller works on one.

    One store is read while the other is written, so that neither waits for the other. An error of the reading is
    raised here, when its part is due. At most two parts are in memory.
    """
    with ThreadPoolExecutor(1, thread_name_prefix="fencepost-copy") as reader:
        coming = reader.submit(next, parts, None)
        while (part := coming.result()) is not None:
            coming = reader.submit(next, parts, None)
            yield part


def missing(previous: int, found: int) -> InvalidInput:
    return InvalidInput(
        "from",
        f"position {previous + 1} is missing: the events can be read up to {previous}, and the next would be {found}. "
        "Stores on FoundationDB have such gaps, and so has what an API key with a scope can see; they cannot be copied",
    )


def recorded_appends(store: EventStore, after: int, up_to: int) -> Iterator[RecordedAppend]:
    """The recorded appends that end in this range; nothing for an engine that cannot record."""
    if Capability.RECORDED_APPENDS not in engine_of(store).capabilities:
        return iter(())
    return recorded(store, after=after, up_to=up_to)


class AppendsUpto:
    """Appends that can be taken up to a position."""

    def __init__(self, appends: Iterable[RecordedAppend]) -> None:
        self._appends = iter(appends)
        self._next = next(self._appends, None)

    def up_to(self, position: int) -> Iterator[RecordedAppend]:
        while self._next is not None and self._next.last <= position:
            yield self._next
            self._next = next(self._appends, None)


@contextmanager
def no_collections() -> Iterator[None]:
    """Pause the garbage collector: millions of objects without cycles would cost it a fifth of the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
