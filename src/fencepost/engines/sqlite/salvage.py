"""Saves every sound row of a damaged file into a new store.

The new store has every event whose checksum holds, at its old position. So conditions, checkpoints and everything
else that refers to a position stays valid. Positions have no gaps, so a position whose event is lost gets a
placeholder: an event of the type LOST, without tags, data or id. Consumers that read by type or tag do not see
placeholders. The index is built again.

The damaged file is only read, and not through SQLite, so no part of it needs to be intact.
tests/sqlite/test_verify_and_salvage.py and tests/torture/damage.py hold this.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from time import time_ns
from typing import Final

from ...core.arguments import checked_append
from ...core.restoring import checked_restore
from ...core.service import StoreService
from ...errors import FormatUnsupported, InvalidInput, StoreUnavailable
from ...model import RecordedAppend, SequencedEvent, checked_position
from .backup import new_store_file
from .connections import storage_errors
from .engine import SqliteEngine
from .files import APPLICATION
from .layout import EventRow
from .page_file import PageFile
from .page_scan import Scan, event_at, scan_pages
from .report import Range, extend

LOST: Final = "fencepost.lost"
BATCH_EVENTS: Final = 2_048
BATCH_BYTES: Final = 8_388_608


@dataclass(slots=True)
class Salvage:
    """What was saved, and what was not."""

    path: str
    to: str
    head: int = 0
    events: int = 0  # saved, without placeholders
    appends: int = 0
    checkpoints: int = 0
    lost: list[Range] = field(default_factory=list)  # first and last position, each now a placeholder
    unchecked: list[str] = field(default_factory=list)  # saved without a check: format 1 has no checksum for these
    ahead: list[str] = field(default_factory=list)  # checkpoints above the head: events may be lost at the end

    @property
    def complete(self) -> bool:
        """Whether nothing is known to be lost. Events that were lost at the end show only in `ahead`."""
        return not self.lost and not self.ahead


def salvage(
    path: str | os.PathLike[str],
    to: str | os.PathLike[str],
    *,
    head: int | None = None,
    on_progress: Callable[[int, int], None] | None = None,
) -> Salvage:
    """Write every sound event, recorded append and checkpoint of the file at `path` into a new store at `to`.

    `head` is the last position that was ever assigned, if it is known to be above the last event that is left. The
    positions in between get placeholders, so that they are not assigned again.
    """
    source, target = os.fspath(path), os.fspath(to)
    if not os.path.isfile(source):
        raise StoreUnavailable(f"{source}: there is no such store")
    if os.path.lexists(target):  # said before the scan, which may take long
        raise InvalidInput("to", f"{target} exists already; name a new file")
    if head is not None:
        checked_position(head, "head")
    saved = Salvage(source, target)
    with storage_errors(source), PageFile(source) as pages:
        found = scan_pages(pages, on_progress=on_progress)
        if not found.events and not is_ours(pages):
            raise FormatUnsupported(f"{source}: no page of this file holds an event, so it is not a Fencepost store")
        behind = _behind(source, pages)
        saved.head = max(
            found.events.keys() | behind.keys() | found.appends.keys() - found.unchecked_appends, default=0
        )
        if head is not None:
            if head < saved.head:
                raise InvalidInput("head", f"{head}, but the file holds position {saved.head}")
            saved.head = head
        with new_store_file(source, target) as draft, closing(StoreService(SqliteEngine(str(draft)))) as store:
            _restore(store, pages, found, behind, saved)
            _restore_checkpoints(store, found, saved)
    return saved


def is_ours(pages: PageFile) -> bool:
    """Whether the header says that this is a store."""
    return pages.header[:16] == b"SQLite format 3\0" and pages.header[68:72] == APPLICATION.to_bytes(4, "big")


def _behind(path: str, pages: PageFile) -> dict[int, SequencedEvent]:
    """The events on pages of the write-ahead log that lie behind a damaged one."""
    if not pages.log.behind:
        return {}
    with PageFile(path, behind=True) as more:
        rows = (event_at(more, *place) for place in scan_pages(more).events.values())
        return {row.position: _event(row) for row in rows if row is not None}


def _restore(
    store: StoreService, pages: PageFile, found: Scan, behind: dict[int, SequencedEvent], saved: Salvage
) -> None:
    batch: list[SequencedEvent] = []
    size = 0
    appends = sorted(found.appends.items(), reverse=True)
    for event in _events(pages, found, behind, saved):
        batch.append(event)
        size += len(event.data)
        if len(batch) == BATCH_EVENTS or size > BATCH_BYTES:
            store.restore(*checked_restore(batch, _ended(appends, event.position, saved)))
            batch, size = [], 0
    store.restore(*checked_restore(batch, _ended(appends, saved.head, saved)))
    saved.unchecked += [f"the append that ends at {last}" for last in sorted(found.unchecked_appends)]


def _events(
    pages: PageFile, found: Scan, behind: dict[int, SequencedEvent], saved: Salvage
) -> Iterator[SequencedEvent]:
    now = time_ns() // 1000
    for position in range(1, saved.head + 1):
        place = found.events.get(position)
        row = None if place is None else event_at(pages, *place)
        event = behind.get(position) if row is None else _event(row)
        if event is not None:
            saved.events += 1
            yield event
            continue
        extend(saved.lost, position)
        yield SequencedEvent(position, LOST, "[]", b"", now)


def _event(row: EventRow) -> SequencedEvent:
    return SequencedEvent(*row[:-1])


def _ended(appends: list[tuple[int, RecordedAppend]], upto: int, saved: Salvage) -> list[RecordedAppend]:
    """The next recorded appends, of those that are left, up to a position."""
    ended: list[RecordedAppend] = []
    while appends and appends[-1][0] <= upto:
        ended.append(appends.pop()[1])
    saved.appends += len(ended)
    return ended


def _restore_checkpoints(store: StoreService, found: Scan, saved: Salvage) -> None:
    for name, position in sorted(found.checkpoints.items()):
        if position:
            store.result(store.commit(checked_append([], None, None, (name, position))))
            saved.checkpoints += 1
        if name in found.unchecked_checkpoints:
            saved.unchecked.append(f"checkpoint {name!r}")
        if position > saved.head:
            saved.ahead.append(name)
