"""Finds every row of a file that its checksum confirms, page by page, without following a B-tree.

An event is accepted if its checksum holds, wherever it lies. In a page that is damaged, a regular expression finds
the places that look like the cell of an event, and the checksum decides. Recorded appends and checkpoints are
accepted by their checksums too. Free pages may hold old values of a checkpoint; checkpoints only grow, so the
highest is the newest.

Recorded appends and checkpoints of format 1 have no checksum. They are recognised by their shape and marked as
unchecked.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from ...errors import InvalidInput
from ...model import RecordedAppend
from .checksums import APPEND, CHECKPOINT, is_sound, is_sound_as
from .layout import AppendRow, CheckpointRow, EventRow
from .page_file import INDEX_INTERIOR, INDEX_LEAF, TABLE_LEAF, Malformed, PageFile, row_values

SMALL: Final = rb"[\x80-\xff]{0,3}[\x00-\x7f]"

# The length of the cell, its key, the length of the row's header, and the types of the columns of an event.
CELL: Final = re.compile(
    rb"(?=%b[\x80-\xff]{0,8}[\x00-\x7f][\x08-\x40]\x00(?:%b){3}[\x01-\x09](?:\x00|\x2c)%b[\x01-\x09])"
    % (SMALL, SMALL, SMALL),
    re.DOTALL,
)


@dataclass(slots=True)
class Scan:
    """What a scan has found. `events` has the page and the offset of each event, by position."""

    events: dict[int, tuple[int, int]] = field(default_factory=dict)
    appends: dict[int, RecordedAppend] = field(default_factory=dict)
    checkpoints: dict[str, int] = field(default_factory=dict)
    unchecked_appends: set[int] = field(default_factory=set)
    unchecked_checkpoints: set[str] = field(default_factory=set)
    damaged_pages: list[int] = field(default_factory=list)  # pages of tables, as far as they can still be recognised


def scan_pages(pages: PageFile, *, on_progress: Callable[[int, int], None] | None = None) -> Scan:
    found = Scan()
    for number in range(1, pages.count + 1):
        kind = pages.kind(number)
        if kind in (INDEX_LEAF, INDEX_INTERIOR):
            _scan_index(pages, number, found)
        elif kind != TABLE_LEAF or not _scan_table(pages, number, found):
            for match in CELL.finditer(pages.page(number)):
                row = event_at(pages, number, match.start())
                if row is not None:
                    found.events.setdefault(row.position, (number, match.start()))
        if on_progress is not None and number % 1_000 == 0:
            on_progress(number, pages.count)
    return found


def event_at(pages: PageFile, number: int, offset: int) -> EventRow | None:
    """The row of the event in this cell; None if the cell holds no event whose checksum holds."""
    try:
        key, encoded, _ = pages.table_cell(number, offset)
        row = (key, *row_values(encoded)[1:])
    except (Malformed, IndexError):
        return None
    return EventRow(*row) if len(row) == len(EventRow._fields) and is_sound(row) else None


def _scan_table(pages: PageFile, number: int, found: Scan) -> bool:
    """Take the rows of a page; returns whether the page is undamaged."""
    whole = pages.is_accounted_for(number)
    for offset in pages.cells(number):
        try:
            key, encoded, _ = pages.table_cell(number, offset)
            columns = row_values(encoded)
        except (Malformed, IndexError):
            whole = False
            continue
        row = (key, *columns[1:])
        if len(row) == len(EventRow._fields) and isinstance(EventRow(*row).tags, str):  # a generation has eight too
            if is_sound(row):
                found.events.setdefault(key, (number, offset))
            else:
                whole = False
        elif len(AppendRow._fields) - 1 <= len(row) <= len(AppendRow._fields) and columns[0] is None:
            _take_append(AppendRow(*row), found)
    if not whole:
        found.damaged_pages.append(number)
    return whole


def _take_append(row: AppendRow, found: Scan) -> None:
    last = row.last
    append = RecordedAppend(row.first, last, row.conditions, row.unless)
    if is_sound_as(APPEND, row):
        found.appends[last] = append
        found.unchecked_appends.discard(last)
    elif row.checksum is None and last not in found.appends and _is_plausible(append):
        found.appends[last] = append
        found.unchecked_appends.add(last)


def _is_plausible(append: RecordedAppend) -> bool:
    if not isinstance(append.first, int) or not isinstance(append.conditions_json, str):
        return False
    try:
        append.conditions, append.unless  # noqa: B018
    except InvalidInput:
        return False
    return 0 < append.first <= append.last


def _scan_index(pages: PageFile, number: int, found: Scan) -> None:
    for columns in _index_rows(pages, number):
        if not len(CheckpointRow._fields) - 1 <= len(columns) <= len(CheckpointRow._fields):
            continue
        row = CheckpointRow(*columns)
        name, text = row.name, row.position
        if is_sound_as(CHECKPOINT, row):
            known = 0 if name in found.unchecked_checkpoints else found.checkpoints.get(name, 0)
            found.checkpoints[name] = max(int(text), known)
            found.unchecked_checkpoints.discard(name)
        elif row.checksum is None:
            is_ours = isinstance(name, str) and isinstance(text, str) and text.isascii() and text.isdecimal()
            if is_ours and (name not in found.checkpoints or name in found.unchecked_checkpoints):
                found.checkpoints[name] = max(int(text), found.checkpoints.get(name, 0))
                found.unchecked_checkpoints.add(name)


def _index_rows(pages: PageFile, number: int) -> Iterator[list[Any]]:
    for offset in pages.cells(number):
        try:
            encoded = pages.index_cell(number, offset)
            if encoded[1] > 12:  # the first column is a text, as in a checkpoint; a posting begins with a number
                yield row_values(encoded)
        except (Malformed, IndexError):
            continue
