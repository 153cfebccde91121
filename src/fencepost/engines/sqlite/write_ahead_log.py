"""Keeps SQLite's write-ahead log short, between commits.

A commit only counts the pages of the log. The next commit copies the log into the file first if it has grown long:
a failed copy must not look like a failed commit. tests/sqlite/test_log.py checks the bound under steady readers,
tests/crash/test_failed_sync.py that a failed copy loses nothing.
"""

from __future__ import annotations

import os
from struct import unpack, unpack_from
from typing import Final

import apsw

from . import sizes
from .connections import run
from .forks import Connection

LOG_HEADER_BYTES: Final = 32
FRAME_HEADER_BYTES: Final = 24
PAGE_SIZES: Final = {512 << step for step in range(8)}  # of SQLite


class WriteAheadLog:
    """The log as the writing connection sees it."""

    def __init__(self, writer: Connection, patience_s: float) -> None:
        self.pages = 0
        self._writer = writer
        self._patience_s = patience_s
        self._checkpoint_at = sizes.CHECKPOINT_PAGES
        self._kept = False  # after a failed checkpoint
        writer.set_wal_hook(self._count_pages)
        run(writer, f"PRAGMA journal_size_limit = {sizes.LOG_BYTES}")

    @property
    def is_long(self) -> bool:
        return self.pages >= self._checkpoint_at and not self._kept

    def shorten(self) -> None:
        """Copy the log into the file as far as readers allow; a very long log is restarted."""
        # Readers may hold up the copying. So the longer the log is, the later the next attempt comes.
        self._checkpoint_at = self.pages + max(sizes.CHECKPOINT_PAGES, self.pages // 4)
        try:
            if self.pages >= sizes.RESTART_PAGES:
                self.restart()
            else:
                self._writer.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        except apsw.BusyError:
            pass  # another process is checkpointing, or a read takes long
        except apsw.IOError:
            # A checkpoint that readers hold up copies a part of the log and does not sync it. A failed sync loses that
            # part, and the next checkpoint would not copy it again. The log still has it. So the log is kept as it
            # is; the first process that opens the file again copies all of it.
            self._kept = True
            self._writer.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
            raise

    def restart(self) -> None:
        """Copy all of the log, so that new readers do not need it, and wait for the readers that still do."""
        self._writer.set_busy_timeout(int(sizes.RESTART_PATIENCE_S * 1000))
        try:
            self._writer.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_RESTART)
        finally:
            self._writer.set_busy_timeout(int(self._patience_s * 1000))

    def _count_pages(self, connection: apsw.Connection, name: str, pages: int) -> int:
        """SQLite calls this after each commit."""
        if pages < self.pages:  # SQLite has started the log again
            self._checkpoint_at = sizes.CHECKPOINT_PAGES
        self.pages = pages
        return apsw.SQLITE_OK


def damaged_frame(path: str) -> int | None:
    """The number of the first damaged frame of a write-ahead log; None if its frames are as they were written.

    SQLite ignores a damaged frame, and all frames behind it, when it opens a log after a crash. A crash can leave one
    commit behind a frame that was never written. It cannot leave two: the first was synced. A process that writes to
    the log meanwhile can show a frame that is half written, so a damaged frame has to be found twice.
    """
    found = _damaged_frame(path)
    while found is not None:
        again = _damaged_frame(path)
        if again == found:
            return found[1]
        found = again
    return None


def _damaged_frame(path: str) -> tuple[bytes, int] | None:
    """The header of the log, and the number of its first frame that does not agree with its checksum."""
    if not os.path.exists(path):
        return None
    with open(path, "rb") as file:  # SQLite holds no locks on the log itself, so closing it drops none
        header = file.read(LOG_HEADER_BYTES)
        if len(header) < LOG_HEADER_BYTES:
            return None
        magic, _, page_bytes = unpack_from(">3I", header)
        if page_bytes not in PAGE_SIZES:
            page_bytes = sizes.PAGE_BYTES
        salts, order = header[16:24], ">" if magic & 1 else "<"
        state = checksum(header[:24], (0, 0), order)
        damaged, commits_behind = None if state == unpack_from(">2I", header, 24) else 1, 0
        number = 0
        while len(frame := file.read(FRAME_HEADER_BYTES + page_bytes)) == FRAME_HEADER_BYTES + page_bytes:
            number += 1
            of_this_log = frame[8:16] == salts
            if damaged is None:
                state = checksum(frame[FRAME_HEADER_BYTES:], checksum(frame[:8], state, order), order)
                if not of_this_log or state != unpack_from(">2I", frame, 16):
                    damaged = number
            if damaged is not None and of_this_log and unpack_from(">I", frame, 4) != (0,):
                commits_behind += 1
    return (header, damaged) if damaged is not None and commits_behind > 1 else None


def checksum(content: bytes, state: tuple[int, int] = (0, 0), order: str = "<") -> tuple[int, int]:
    """As SQLite defines it for the write-ahead log, and with the default arguments for pages."""
    one, two = state
    words = unpack(f"{order}{len(content) // 4}I", content)
    for first, second in zip(words[::2], words[1::2], strict=True):
        one = (one + first + two) & 0xFFFFFFFF
        two = (two + second + one) & 0xFFFFFFFF
    return one, two
