"""The default engine: one SQLite file, shared by any number of threads and processes.

This module opens the file and connects the parts: `committer` writes, `scans` and `short_reads` read. Writing is done
by one thread of this process at a time. Reading takes no lock, and neither does judging a batch.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from functools import partial
from time import monotonic
from typing import Final

import apsw

from ...core.engine import Capability, InThread, ReadStart
from ...core.group_commit import Batcher, LoopBatcher
from ...core.interrupts import Waiters
from ...core.verdicts import Append, Verdict
from ...errors import StoreClosed, StoreReadOnly, StoreUnavailable
from ...model import Query, Record, RecordedAppend, SequencedEvent
from . import sizes
from .committer import Committer
from .connections import connect, storage_errors
from .event_rows import EventRows, Head, check_end
from .files import EmptyFile, prepare_file, resolved
from .forks import Connection, check_identity
from .generations import Types, indexed_up_to
from .page_checksums import name_damage
from .readers import Readers
from .readonly import cannot_write, refusal
from .recorded_appends import create_appends_table, read_appends
from .records import read_record, read_records
from .scans import Scans
from .shared_tail import SharedTail, View
from .short_reads import Read, ShortRead, ShortReads

WRITER_CACHE_KIB: Final = 65_536


class SqliteEngine:
    capabilities: Final = (
        Capability.GROUP_COMMIT
        | Capability.BEGIN
        | Capability.ASYNC_READ
        | Capability.RECORDED_APPENDS
        | Capability.RESTORE
    )

    def __init__(
        self,
        path: str,
        *,
        create: bool = True,
        read_only: bool = False,
        patience_s: float = 10.0,
        record_conditions: bool = False,
        vfs: str | None = None,
    ) -> None:
        self._path = path = resolved(path)
        self._read_only = read_only
        self._patience_s = patience_s
        self._records_conditions = record_conditions
        self._vfs = vfs
        self._errors = storage_errors(path)
        self._writing = threading.Lock()  # held by the thread that changes the tail or uses the writing connection
        self._readers = Readers(path, timeout_s=patience_s, vfs=vfs)
        self._types = Types()
        self._head = Head(path)
        self._tail = SharedTail(path)
        self._committer: Committer | None = None  # None while the file cannot be written
        with self._errors:
            self._tail.reset(self._open(create))
        rows = EventRows(path)
        self._scans = Scans(self._readers, rows, self._types, self._view_near)
        self._short = ShortReads(self._readers, rows, self._head, self._types, self._view_without_waiting)
        self._reads = Batcher(self._short.begin, most=sizes.SHORT_READS)
        self._loop_reads: LoopBatcher[Read, ShortRead] = LoopBatcher(self._short.begin, most=sizes.SHORT_READS)
        self._changed = Waiters()
        self._commits = 0  # by this process: a waiting reader that is woken need not poll the file
        self._interrupts = 0
        self._news_at = monotonic()  # when a waiting reader last found a new head
        self._closed = False

    @property
    def path(self) -> str:
        """The path of the file, from the root and without links, found when the store was opened."""
        return self._path

    def commit(self, appends: Sequence[Append]) -> Sequence[Verdict]:
        with self._writing, self._errors:
            committer = self._writable()
            check_identity(self._path, committer.writer, "nothing was written")
            verdicts = committer.commit(appends)
            self._check_stored(committer)
        self._notify()
        return verdicts

    def restore(self, events: Sequence[SequencedEvent], appends: Sequence[RecordedAppend] = ()) -> None:
        with self._writing, self._errors:
            committer = self._writable()
            check_identity(self._path, committer.writer, "nothing was written")
            committer.restore(events, appends)
            self._check_stored(committer)
        self._notify()

    def begin(self, query: Query, *, after: int, up_to: int | None, limit: int | None, backwards: bool) -> ReadStart:
        """Complete a short read at once, together with those of other threads."""
        read = Read(query, after, up_to, limit, backwards)
        return self._begun(read, *self._reads.run(read))

    async def begin_async(
        self, query: Query, *, after: int, up_to: int | None, limit: int | None, backwards: bool, in_thread: InThread
    ) -> ReadStart:
        """Complete a short read on the event loop itself: a thread switch takes several times as long."""
        read = Read(query, after, up_to, limit, backwards)
        begun = self._begun(read, *await self._loop_reads.submit(read))
        return begun if begun.rest is None else await in_thread(begun.with_first_page)

    def _begun(self, read: Read, reach: int, page: Sequence[SequencedEvent] | None) -> ReadStart:
        if page is not None:
            return ReadStart(reach, page, None)
        pages = self.scan(read.query, after=read.after, up_to=reach, limit=read.limit, backwards=read.backwards)
        return ReadStart(reach, (), pages)

    def scan(
        self, query: Query, *, after: int, up_to: int, limit: int | None = None, backwards: bool = False
    ) -> Iterator[Sequence[SequencedEvent]]:
        return self._scans.scan(query, after, up_to, limit, backwards)

    def head(self) -> int:
        return self._readers.run(self._checked_head)

    def wait(self, after: int, timeout_s: float) -> int:
        deadline = monotonic() + timeout_s
        interrupts = self._interrupts
        while True:
            commits = self._commits
            head = self._readers.run(self._head.poll)
            now = monotonic()
            if head > after:
                self._news_at = now
            if head > after or now >= deadline or self._interrupts > interrupts:
                return head
            # Commits of this process wake the waiter; those of other processes have to be polled for.
            poll_s = sizes.POLL_S if now - self._news_at < sizes.QUIET_S else sizes.QUIET_POLL_S
            self._changed.wait_for(partial(self._has_news, commits, interrupts), min(poll_s, deadline - now))

    def interrupt(self) -> None:
        self._interrupts += 1
        self._changed.notify_all()

    def record(self, key: str) -> Record | None:
        return self._readers.run(lambda connection: read_record(connection, key))

    def records(self, prefix: str, *, after: str, limit: int) -> Sequence[Record]:
        return self._readers.run(lambda connection: read_records(connection, prefix, after, limit))

    def recorded(self, *, after: int, up_to: int) -> Iterator[Sequence[RecordedAppend]]:
        return read_appends(self._readers, after, up_to)

    def close(self) -> None:
        with self._writing:
            if not self._closed:
                self._closed = True
                self._readers.close()
                if self._committer is not None:
                    self._committer.close()

    def _check_stored(self, committer: Committer) -> None:
        """Raise StoreUnavailable if what was committed is in a file that no other process will find."""
        check_identity(self._path, committer.writer, "what was appended is in the file that was there before")
        if not os.path.exists(f"{self._path}-wal"):
            raise StoreUnavailable(f"{self._path}: its write-ahead log was deleted; what was appended is lost")

    def _checked_head(self, connection: Connection) -> int:
        check_identity(self._path, connection, "its head is not known")
        return self._head.read(connection)

    def _has_news(self, commits: int, interrupts: int) -> bool:
        return self._commits > commits or self._interrupts > interrupts

    def _notify(self) -> None:
        self._commits += 1
        self._changed.notify_all()

    # Opening.

    def _open(self, create: bool) -> int:
        """Open the file, for writing if possible; returns the last position that is in a generation."""
        if self._read_only:
            return self._open_to_read()
        try:
            self._committer = self._open_to_write(create)
        except apsw.Error as error:
            if not cannot_write(error):
                raise
            try:
                return self._open_to_read()
            except EmptyFile:  # the store could not be created
                raise error from None
        with self._readers.lend():
            pass  # there is one connection for reading, even if this process gives up its privileges
        return indexed_up_to(self._committer.writer)

    def _open_to_read(self) -> int:
        self._readers.read_only = True
        with self._readers.lend() as connection:
            check_end(connection, self._path)
            return indexed_up_to(connection)

    def _open_to_write(self, create: bool) -> Committer:
        prepare_file(self._path, create=create, timeout_s=self._patience_s, vfs=self._vfs)
        writer = connect(self._path, timeout_s=self._patience_s, cache_kib=WRITER_CACHE_KIB, vfs=self._vfs)
        try:
            writer.lock = self._writing
            with name_damage(self._path, writer):
                if self._records_conditions:
                    create_appends_table(writer)
                check_end(writer, self._path)
            committer = Committer(
                writer,
                self._tail,
                self._types,
                self._head,
                patience_s=self._patience_s,
                record_conditions=self._records_conditions,
            )
        except BaseException:
            writer.close()
            raise
        self._errors.connection = writer
        return committer

    def _writable(self) -> Committer:
        """The committer, for a thread that holds the lock. The file may have become writable since it was opened."""
        if self._closed:
            raise StoreClosed("the store is closed")
        if self._committer is None:
            if self._read_only:
                raise StoreReadOnly(f"{self._path}: opened for reading only; to append, open it without ?mode=ro")
            try:
                self._committer = self._open_to_write(create=False)
            except apsw.Error as error:
                raise (refusal(self._path, error) if cannot_write(error) else error) from error
            self._readers.read_only = False
        return self._committer

    # The tail as readers need it.

    def _view_without_waiting(self, up_to: int) -> View:
        """The tail, brought up to date if another process has appended, unless a thread of this one is writing."""
        # A thread that begins to write between the two lines is waited for after all. A lock that is acquired outside
        # of a `with` could be left held by an interrupt.
        if up_to > self._tail.view.committed and not self._writing.locked():
            with self._writing:
                if not self._closed and up_to - self._tail.view.committed <= sizes.UNINDEXED_EVENTS:
                    self._catch_up_to_read()
        return self._tail.view

    def _view_near(self, up_to: int) -> View:
        """The tail, lacking at most UNINDEXED_EVENTS of the events up to `up_to`."""
        if up_to - self._tail.view.committed > sizes.UNINDEXED_EVENTS:
            with self._writing, self._errors:
                if self._closed:
                    raise StoreClosed("the store is closed")
                self._catch_up_to_read()
        return self._tail.view

    def _catch_up_to_read(self) -> None:
        if self._committer is not None:
            self._committer.recover()
            self._tail.catch_up(self._committer.writer)
        else:
            self._tail.recover()
            with self._readers.lend() as connection:
                self._tail.catch_up(connection)
