"""Reads the pages of an SQLite file without SQLite.

If a B-tree page is damaged, SQLite cannot reach what is below it. The other pages are still there, and a row whose
checksum holds needs no B-tree to confirm it. This module reads single pages: their cells, and the rows in them,
including overflow pages. The format is described at https://sqlite.org/fileformat2.html.

Files are opened through SQLite's VFS. Closing a file that was opened in another way would drop the locks that this
process holds on it through SQLite. Nothing is locked and nothing is written.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from struct import error as StructError
from struct import unpack, unpack_from
from typing import Any, Final

import apsw

from . import sizes
from .forks import check_not_inherited

INDEX_INTERIOR: Final = 2
TABLE_INTERIOR: Final = 5
INDEX_LEAF: Final = 10
TABLE_LEAF: Final = 13

HEADER_BYTES: Final = 100
LARGEST_PAYLOAD: Final = 16_777_216  # far above any event; a length beyond it is damaged
PAGES_KEPT: Final = 64

WAL_HEADER_BYTES: Final = 32
FRAME_HEADER_BYTES: Final = 24


class Malformed(Exception):
    """These bytes are not in the format of SQLite."""


@dataclass(frozen=True, slots=True)
class Log:
    """Offsets of the pages in a write-ahead log, by page number: the committed ones, and those behind damage."""

    committed: dict[int, int]
    behind: dict[int, int]
    broken_frame: int | None  # the first frame whose checksum does not hold, if at least two commits follow it


class PageFile(AbstractContextManager["PageFile"]):
    """The pages of the file, numbered from 1; pages of the write-ahead log replace those of the file.

    With `behind`, this includes the pages of the log that follow a damaged frame, which SQLite ignores.
    """

    def __init__(self, path: str, *, vfs: str | None = None, behind: bool = False) -> None:
        check_not_inherited(path)
        self._file = _opened(path, apsw.SQLITE_OPEN_MAIN_DB, vfs)
        self._wal: apsw.VFSFile | None = None
        try:
            self.size = self._file.xFileSize()
            self.header = self._read(self._file, HEADER_BYTES, 0)
            self.page_bytes = self.usable = _page_bytes(self.header)
            self.log = Log({}, {}, None)
            if os.path.exists(f"{path}-wal"):
                self._wal = _opened(f"{path}-wal", apsw.SQLITE_OPEN_WAL, vfs)
                self.log = self._read_log(self._wal)
            self._places = {**self.log.committed, **(self.log.behind if behind else {})}
            self.count = max([-(-self.size // self.page_bytes), *self._places])
            self._kept: dict[int, bytes] = {}
        except BaseException:
            self.close()
            raise

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        self._file.xClose()
        if self._wal is not None:
            self._wal.xClose()

    def page(self, number: int) -> bytes:
        """A page. Bytes beyond the end of a truncated file are zeros."""
        page = self._kept.get(number)
        if page is None:
            place = self._places.get(number)
            if place is not None:
                assert self._wal is not None
                page = self._read(self._wal, self.page_bytes, place)
            else:
                page = self._read(self._file, self.page_bytes, (number - 1) * self.page_bytes)
            if len(self._kept) >= PAGES_KEPT:
                del self._kept[next(iter(self._kept))]
            self._kept[number] = page
        return page

    def cells(self, number: int) -> Iterator[int]:
        """The offsets of the cells of a page. Offsets outside of the page are left out."""
        page, start = self.page(number), _start(number)
        (count,) = unpack_from(">H", page, start + 3)
        first = start + (12 if page[start] in (INDEX_INTERIOR, TABLE_INTERIOR) else 8)
        for place in range(first, min(first + 2 * count, self.usable - 1), 2):
            (offset,) = unpack_from(">H", page, place)
            if first + 2 * count <= offset < self.usable - 2:
                yield offset

    def table_cell(self, number: int, offset: int) -> tuple[int, bytes, int]:
        """The key, the encoded row and the length of a cell of a table's leaf. Raises Malformed."""
        page = self.page(number)
        size, place = _varint(page, offset)
        key, place = _varint(page, place)
        encoded, place = self._payload(page, place, size, self.usable - 35)
        return key - (1 << 64) if key >= 1 << 63 else key, encoded, place - offset

    def index_cell(self, number: int, offset: int) -> bytes:
        """The encoded row of a cell of an index, or of a table without rowids. Raises Malformed."""
        page = self.page(number)
        if page[_start(number)] == INDEX_INTERIOR:
            offset += 4
        size, place = _varint(page, offset)
        return self._payload(page, place, size, (self.usable - 12) * 64 // 255 - 23)[0]

    def kind(self, number: int) -> int:
        return self.page(number)[_start(number)]

    def is_accounted_for(self, number: int) -> bool:
        """Whether cells, fragments and free blocks fill a table's page. A lost cell leaves a hole."""
        page, start = self.page(number), _start(number)
        free, count, content, fragments = unpack_from(">HHHB", page, start + 1)
        head = start + (12 if page[start] == TABLE_INTERIOR else 8) + 2 * count
        used = []
        try:
            offsets = list(self.cells(number))
            if len(offsets) != count:
                return False
            for offset in offsets:
                if page[start] == TABLE_INTERIOR:
                    length = _varint(page, offset + 4)[1] - offset
                else:
                    length = self.table_cell(number, offset)[2]
                used.append((offset, offset + max(length, 4)))
            while free:
                following, length = unpack_from(">HH", page, free)
                used.append((free, free + length))
                if following and following <= free:
                    return False
                free = following
        except (Malformed, IndexError, ValueError, OverflowError, StructError):
            return False
        used.sort()
        begin = (content or 65_536) if used else self.usable
        holes = 0
        for first, last in used:
            if first < begin:
                return False
            holes += first - begin
            begin = last
        return head <= (content or 65_536) and begin <= self.usable and holes + self.usable - begin == fragments

    def children(self, number: int) -> list[tuple[int, int | None]]:
        """The child pages of an inner page of a table, each with its highest key. The last child has no key."""
        page, start = self.page(number), _start(number)
        below: list[tuple[int, int | None]] = []
        for offset in self.cells(number):
            (child,) = unpack_from(">I", page, offset)
            below.append((child, _varint(page, offset + 4)[0]))
        (last,) = unpack_from(">I", page, start + 8)
        return [*below, (last, None)]

    def _payload(self, page: bytes, place: int, size: int, most: int) -> tuple[bytes, int]:
        """The payload of a cell, and the offset at which the cell ends."""
        if not 0 < size <= LARGEST_PAYLOAD:
            raise Malformed
        local = size
        if size > most:
            least = (self.usable - 12) * 32 // 255 - 23
            local = least + (size - least) % (self.usable - 4)
            if local > most:
                local = least
        payload = page[place : place + local]
        place += local
        if place > self.usable:
            raise Malformed
        if size == local:
            return payload, place
        parts, rest = [payload], size - local
        if place + 4 > self.usable:
            raise Malformed
        (following,) = unpack_from(">I", page, place)
        while rest > 0:
            if not 0 < following <= self.count:
                raise Malformed
            page = self.page(following)
            (following,) = unpack_from(">I", page, 0)
            parts.append(page[4 : min(self.usable, 4 + rest)])
            rest -= self.usable - 4
        return b"".join(parts), place + 4

    def _read(self, file: apsw.VFSFile, amount: int, offset: int) -> bytes:
        try:
            return file.xRead(amount, offset).ljust(amount, b"\0")
        except apsw.IOError:  # reading beyond the end
            return bytes(amount)

    def _read_log(self, wal: apsw.VFSFile) -> Log:
        """The pages that SQLite would find in the log, and those of later transactions behind a damaged frame."""
        size = wal.xFileSize()
        header = self._read(wal, WAL_HEADER_BYTES, 0)
        magic, _, page_bytes, _ = unpack_from(">4I", header)
        salt = header[16:24]
        if size < WAL_HEADER_BYTES or magic | 1 != 0x377F0683 or page_bytes != self.page_bytes:
            return Log({}, {}, None)
        order = ">" if magic & 1 else "<"
        state = _log_checksum(header[:24], (0, 0), order)
        whole = state == unpack_from(">2I", header, 24)
        committed: dict[int, int] = {}
        behind: dict[int, int] = {}
        waiting: dict[int, int] = {}
        broken, commits_behind = None, 0
        step = FRAME_HEADER_BYTES + page_bytes
        for number, place in enumerate(range(WAL_HEADER_BYTES, size - step + 1, step), start=1):
            frame = self._read(wal, step, place)
            page, commit = unpack_from(">2I", frame)
            if frame[8:16] != salt or not page:
                if broken is None:
                    broken, waiting = number, {}  # the end of the log, or damage: the frames that follow decide
                continue
            if broken is None:
                state = _log_checksum(frame[FRAME_HEADER_BYTES:], _log_checksum(frame[:8], state, order), order)
                if not whole or state != unpack_from(">2I", frame, 16):
                    broken, waiting = number, {}
            waiting[page] = place + FRAME_HEADER_BYTES
            if commit:
                if broken is None:
                    committed.update(waiting)
                else:
                    behind.update(waiting)
                    commits_behind += 1
                waiting = {}
        # A crash can leave one commit behind a frame that was never written. It cannot leave two: the first was synced.
        return Log(committed, behind, broken) if commits_behind > 1 else Log(committed, {}, None)


def row_values(encoded: bytes) -> list[Any]:
    """The columns of an encoded row (SQLite's record format). Raises Malformed."""
    try:
        size, place = _varint(encoded, 0)
        kinds = []
        while place < size:
            kind, place = _varint(encoded, place)
            kinds.append(kind)
        if place != size:
            raise Malformed
        values: list[Any] = []
        for kind in kinds:
            if kind == 0:
                values.append(None)
            elif kind <= 6:
                length = LENGTHS[kind]
                if place + length > len(encoded):
                    raise Malformed
                values.append(int.from_bytes(encoded[place : place + length], "big", signed=True))
                place += length
            elif kind in (8, 9):
                values.append(kind - 8)
            elif kind >= 12:
                length = (kind - 12) // 2
                if place + length > len(encoded):
                    raise Malformed
                content = encoded[place : place + length]
                values.append(content.decode() if kind % 2 else content)
                place += length
            else:
                raise Malformed  # a float, which no column of ours is
    except (IndexError, UnicodeDecodeError):
        raise Malformed from None
    if place != len(encoded):
        raise Malformed
    return values


LENGTHS: Final[Sequence[int]] = (0, 1, 2, 3, 4, 6, 8)


def _varint(page: bytes, place: int) -> tuple[int, int]:
    """The number at an offset, and the offset behind it. Raises IndexError at the end of the page."""
    number = page[place]
    if number < 0x80:
        return number, place + 1
    number &= 0x7F
    for index in range(place + 1, place + 8):
        byte = page[index]
        number = number << 7 | byte & 0x7F
        if byte < 0x80:
            return number, index + 1
    return number << 8 | page[place + 8], place + 9


def _start(number: int) -> int:
    return HEADER_BYTES if number == 1 else 0


def _opened(path: str, kind: int, vfs: str | None) -> apsw.VFSFile:
    return apsw.VFSFile(vfs or "", os.path.abspath(path), [apsw.SQLITE_OPEN_READONLY | kind, 0])


def _page_bytes(header: bytes) -> int:
    """The size of a page, none of which is reserved. A damaged header counts as one of a file of this engine."""
    (size,) = unpack_from(">H", header, 16)
    size = 65_536 if size == 1 else size
    if 512 <= size <= 65_536 and size & (size - 1) == 0 and header[20] == 0:
        return size
    return sizes.PAGE_BYTES


def _log_checksum(content: bytes, state: tuple[int, int], order: str) -> tuple[int, int]:
    one, two = state
    words = unpack(f"{order}{len(content) // 4}I", content)
    for index in range(0, len(words), 2):
        one = (one + words[index] + two) & 0xFFFFFFFF
        two = (two + words[index + 1] + one) & 0xFFFFFFFF
    return one, two
