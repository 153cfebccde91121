"""Saves what can be read of a damaged file into a new store.

The new store has every event that SQLite reads from pages whose checksum holds (`remains`), at its old position. So
conditions, checkpoints and everything else that refers to a position stays valid. Positions have no gaps, so a
position whose event is lost gets a placeholder: an event of the type LOST, without tags, data or id. Consumers that
read by type or tag do not see placeholders. The index is built again. The damaged file is not changed.
tests/sqlite/test_verify_and_salvage.py and tests/torture/damage.py check this.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from tempfile import TemporaryDirectory
from time import time_ns
from typing import Final

import apsw

from ...core.address import Address
from ...core.file_tools import Salvage
from ...core.record_keys import CHECKPOINTS, RECORDS
from ...core.restore import checked_restore
from ...errors import FormatUnsupported, InvalidInput, StoreUnavailable
from ...model import RecordedAppend, SequencedEvent, checked_position
from .backup import new_store_file
from .connections import connect, run, storage_errors
from .engine import SqliteEngine
from .files import check_format, empty, look_at
from .layout import RecordRow, Row
from .page_checksums import check_pages
from .readonly import connect_unchanged
from .recorded_appends import append_of, is_recorded
from .records import PUT
from .remains import READ_ERRORS, Leaves, extend, has_checked_pages, is_append, last_position, readable_rows

LOST: Final = "fencepost.lost"
TIMEOUT_S: Final = 10.0
BATCH_EVENTS: Final = 2_048
BATCH_BYTES: Final = 8_388_608


def salvage(
    path: str | os.PathLike[str] | Address,
    to: str | os.PathLike[str],
    *,
    head: int | None = None,
    on_progress: Callable[[int, int], None] | None = None,
) -> Salvage:
    """Write every event, recorded append and checkpoint of `path` that can be read into a new store at `to`.

    `head` is the last position that was ever assigned, if it is known to be above the last event that is left. The
    positions in between get placeholders, so that they are not assigned again. `on_progress(done, all)` is called from
    time to time. If a tree of the file is damaged, a copy of the file is needed meanwhile, beside `to`.
    """
    source, target = Address.parse(path).path, os.fspath(to)
    if not os.path.isfile(source):
        raise StoreUnavailable(f"{source}: there is no such store")
    if os.path.lexists(target):  # said before the file is read, which may take long
        raise InvalidInput("to", f"{target} exists already; name a new file")
    if head is not None:
        checked_position(head, "head")
    saved = Salvage(source, target)
    with storage_errors(source), closing(_Source(source, target, saved)) as remains:
        saved.head = remains.last()
        if head is not None:
            if head < saved.head:
                raise InvalidInput("head", f"{head}, but the file holds position {saved.head}")
            saved.head = head
        with new_store_file(source, target) as draft, closing(SqliteEngine(str(draft))) as store:
            _restore(store, remains, saved, on_progress or (lambda done, all: None))
            _restore_records(str(draft), remains, saved)
    return saved


class _Source:
    """The damaged file: its trees in one read transaction, and its leaves where the trees fail."""

    def __init__(self, path: str, target: str, saved: Salvage) -> None:
        self._path = path
        self._target = target
        self._saved = saved
        self._opened = ExitStack()
        self._leaves: Leaves | None = None
        self._connection = self._connect()

    def _connect(self) -> apsw.Connection | None:
        """None if SQLite cannot open the file, although it is a store."""
        try:
            look_at(self._path, create=False)
            connection = self._opened.enter_context(
                closing(connect_unchanged(self._path, read_only=False, timeout_s=TIMEOUT_S))
            )
            run(connection, "BEGIN")  # one state of the file; closing ends it
            if not check_format(connection, self._path):
                raise empty(self._path)
            check_pages(connection, self._path)
            return connection
        except FormatUnsupported:
            if not has_checked_pages(self._path):
                raise
        except apsw.NotADBError:
            if not has_checked_pages(self._path):
                raise FormatUnsupported(f"{self._path}: no page of this file is one of a Fencepost store") from None
        except READ_ERRORS:
            pass  # the leaves are read without the first page
        return None

    def close(self) -> None:
        self._opened.close()

    def last(self) -> int:
        """The last position that the file knows of."""
        known = 0 if self._connection is None else last_position(self._connection)
        try:
            if self._connection is not None:
                run(self._connection, "SELECT max(position) FROM events")
                return known
        except READ_ERRORS:
            pass  # the last page is damaged
        return max(known, self.leaves.last)

    def rows(self, up_to: int) -> Iterator[tuple[int, Row | None]]:
        """Every position up to the given one, with its row if it can be read anywhere."""
        if self._connection is None:
            readable: Iterator[tuple[int, Row | None]] = ((position, None) for position in range(1, up_to + 1))
        else:
            readable = readable_rows(self._connection, up_to)
        for position, row in readable:
            yield position, self.leaves.event(position) if row is None else row

    def appends(self) -> list[RecordedAppend]:
        """The recorded appends, the last one first."""
        rows: list[Row | None] = []
        try:
            if self._connection is None:
                rows = [self.leaves.append(last) for last in self.leaves.appends]
            elif is_recorded(self._connection):
                rows = list(run(self._connection, "SELECT * FROM appends ORDER BY last"))
        except READ_ERRORS:
            self._saved.unreadable.append("appends")
            rows = [self.leaves.append(last) for last in self.leaves.appends]
        intact: list[RecordedAppend] = []
        for row in rows:
            if row is not None and is_append(row) and (not intact or intact[-1].last < row[1]):
                intact.append(append_of(row))
        return intact[::-1]

    def records(self) -> list[RecordRow]:
        try:
            if self._connection is not None:
                return [RecordRow(*row) for row in run(self._connection, "SELECT * FROM records ORDER BY name")]
        except READ_ERRORS:
            pass  # said below
        self._saved.unreadable.append("records")
        return []

    @property
    def leaves(self) -> Leaves:
        if self._leaves is None:
            folder = self._opened.enter_context(
                TemporaryDirectory(prefix=".salvage-", dir=os.path.dirname(os.path.abspath(self._target)))
            )
            self._leaves = self._opened.enter_context(closing(Leaves(self._path, Path(folder))))
        return self._leaves


def _restore(store: SqliteEngine, remains: _Source, saved: Salvage, on_progress: Callable[[int, int], None]) -> None:
    batch: list[SequencedEvent] = []
    size = 0
    appends = remains.appends()
    for event in _events(remains, saved):
        batch.append(event)
        size += len(event.data)
        if len(batch) == BATCH_EVENTS or size > BATCH_BYTES:
            _restore_batch(store, batch, _ended(appends, event.position, saved))
            on_progress(event.position, saved.head)
            batch, size = [], 0
    _restore_batch(store, batch, _ended(appends, saved.head, saved))


def _restore_batch(store: SqliteEngine, events: list[SequencedEvent], appends: list[RecordedAppend]) -> None:
    if events:
        store.restore(*checked_restore(events, appends))


def _events(remains: _Source, saved: Salvage) -> Iterator[SequencedEvent]:
    now = time_ns() // 1000
    for position, row in remains.rows(saved.head):
        if row is not None:
            saved.events += 1
            yield SequencedEvent(*row)
        else:
            extend(saved.lost, position)
            yield SequencedEvent(position, LOST, "[]", b"", now)


def _ended(appends: list[RecordedAppend], up_to: int, saved: Salvage) -> list[RecordedAppend]:
    """The next recorded appends, of those that are left, up to a position."""
    ended: list[RecordedAppend] = []
    while appends and appends[-1].last <= up_to:
        ended.append(appends.pop())
    saved.appends += len(ended)
    return ended


def _restore_records(path: str, remains: _Source, saved: Salvage) -> None:
    """Records keep their revisions, which a change through the engine would not."""
    with closing(connect(path, timeout_s=TIMEOUT_S, cache_kib=1_024)) as connection:
        for row in remains.records():
            run(connection, PUT, row)
            if row.name.startswith(CHECKPOINTS):
                saved.checkpoints += 1
                if int(row.value) > saved.head:
                    saved.ahead.append(row.name.removeprefix(CHECKPOINTS))
            saved.records += row.name.startswith(RECORDS)
