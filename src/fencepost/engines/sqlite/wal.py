"""Keeps SQLite's write-ahead log short, between commits.

A commit only counts the pages of the log. The next commit copies the log into the file first if it has grown long:
a failed copy must not look like a failed commit. tests/sqlite/test_log.py holds the bound under steady readers,
tests/crash/test_failed_sync.py that a failed copy loses nothing.
"""

from __future__ import annotations

import apsw

from . import sizes
from .connections import run
from .forks import Connection


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
