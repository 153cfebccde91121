"""The default engine: one SQLite file, shared by any number of threads and processes.

An append takes no lock while it is judged. The batch is judged against the tail, then inserted
at the next positions by one statement, which is also the transaction and the sync. If another
process has committed meanwhile, that statement fails on the primary key `position`: the tail
catches up, the batch is judged again and inserted again. So a verdict always rests on every
event below the positions that it leads to.

Reading takes no lock either.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from itertools import count
from math import inf
from time import monotonic
from typing import Final

import apsw

from ...commit import Append, Verdict, judge, records_of
from ...errors import StoreClosed
from ...gathering import Gathering, Turns
from ...model import Query, RecordedAppend, SequencedEvent, decode_tags
from .drafts import Draft, Row, checkpoint_of, checksum
from .files import Readers, connect, prepare_file, roll_back, run, storage_errors, transaction, value
from .generations import ROWS, Types, indexed_upto, insert_many, write_tail
from .merging import merge_step
from .reading import HEAD, UNINDEXED_EVENTS, Begun, Pages, Read, ShortReads
from .recording import begin_to_record, insert_records, read_records
from .restoring import check_restored
from .tail import KEPT_BYTES, Tail, View

TAIL_EVENTS: Final = 4_096  # a longer tail is written to disk: others wait meanwhile, and who opens the file reads it
ALERT_BATCHES: Final = 16  # for so many batches after another process has appended, it is looked for before judging
OPTIMISTIC_TRIES: Final = 3  # then the write lock is taken first, so that busy writers cannot starve this one
# So much of the write-ahead log, 4 MiB, is copied into the file in one go. A log that is soon written
# from its beginning again stays short, and to sync what is overwritten is cheaper than to sync what grows.
CHECKPOINT_PAGES: Final = 1_000
READS: Final = 16  # so many short reads are done in one go for those who wait
MERGE_REST: Final = 3  # after a step of merging, so many times its duration belong to the callers
POLL_S: Final = 0.01  # how often a waiting reader looks for other processes' commits

NEWER: Final = """
SELECT type, tags, id, position, iif(length(data) <= ?, data, NULL), recorded_at, metadata
FROM events WHERE position > ? ORDER BY position
"""


class SqliteEngine:
    group_commit: Final = True

    def __init__(
        self,
        path: str,
        *,
        create: bool = True,
        patience_s: float = 10.0,
        record_conditions: bool = False,
        vfs: str | None = None,
    ) -> None:
        self._path = path
        self._records_conditions = record_conditions
        with storage_errors(path):
            prepare_file(path, create=create, timeout_s=patience_s, vfs=vfs)
            self._writer = connect(path, timeout_s=patience_s, cache_kib=65_536, vfs=vfs)
            self._writer.set_wal_hook(self._count_wal_pages)
            if record_conditions:
                begin_to_record(self._writer)
            floor = indexed_upto(self._writer)
        self._readers = Readers(path, timeout_s=patience_s, vfs=vfs)
        self._types = Types()
        self._pages = Pages(self._readers, self._types, self._view_near)
        self._short = ShortReads(self._readers, self._types, self._view_without_waiting)
        self._reads = Gathering(self._short.begin, most=READS)
        self._turns: Turns[Read, Begun] = Turns(self._short.begin, most=READS)
        self._writing = threading.Lock()  # whoever changes the tail, or uses the writing connection
        self._view = View(Tail(floor), floor, None)
        self._wal_pages = 0
        self._keeps_log = False  # after a failed checkpoint
        self._wrote_tail = False  # after the last commit
        self._merge_at = 0.0  # when the next step of merging is due
        self._alert = 0
        self._changing = threading.Lock()  # taken by itself: an interrupt in a condition's own `with` would keep it
        self._changed = threading.Condition(self._changing)
        self._interrupted = False
        self._closed = False

    def commit(self, appends: Sequence[Append]) -> Sequence[Verdict]:
        with self._writing, storage_errors(self._path):
            if self._closed:
                raise StoreClosed("the store is closed")
            try:
                self._recover()
                self._tidy_up()
                verdicts = self._commit(appends)
            except BaseException:
                roll_back(self._writer)  # an interrupt may come even as a transaction is being ended
                raise
        with self._changing:
            self._changed.notify_all()
        return verdicts

    def begin(
        self, query: Query, *, after: int, upto: int | None, limit: int | None, backwards: bool
    ) -> tuple[int, Iterator[Sequence[SequencedEvent]]]:
        """As `Beginning.begin`. A short reading is done here and now, together with those of other threads."""
        reach, page = self._reads.ask(Read(query, after, upto, limit, backwards))
        if page is None:
            return reach, self.scan(query, after=after, upto=reach, limit=limit, backwards=backwards)
        return reach, iter([page] if page else ())

    async def begin_awaiting(
        self, query: Query, *, after: int, upto: int | None, limit: int | None, backwards: bool
    ) -> tuple[int, Iterator[Sequence[SequencedEvent]], bool] | None:
        """On the loop itself, if it is short: it takes a fraction of the time that it takes to get to a thread."""
        reach, page = await self._turns.ask(Read(query, after, upto, limit, backwards))
        return None if page is None else (reach, iter([page] if page else ()), True)

    def scan(
        self, query: Query, *, after: int, upto: int, limit: int | None = None, backwards: bool = False
    ) -> Iterator[Sequence[SequencedEvent]]:
        return self._pages.scan(query, after, upto, limit, backwards)

    def head(self) -> int:
        with self._readers.lend() as connection:
            return value(connection, HEAD) or 0

    def wait(self, after: int, timeout_s: float) -> int:
        deadline = monotonic() + timeout_s
        with self._changing:
            self._interrupted = False
        while True:
            head = self.head()
            rest_s = deadline - monotonic()
            if head > after or rest_s <= 0 or self._interrupted:
                return head
            # Our own commits wake us; other processes' have to be looked for.
            with self._changing:
                self._changed.wait(min(POLL_S, rest_s))

    def interrupt(self) -> None:
        with self._changing:
            self._interrupted = True
            self._changed.notify_all()

    def checkpoint(self, name: str) -> int:
        with self._readers.lend() as connection:
            return checkpoint_of(connection, name)

    def close(self) -> None:
        with self._writing:
            if not self._closed:
                self._closed = True
                self._readers.close()
                self._writer.close()

    def recorded(self, *, after: int, upto: int) -> Iterator[Sequence[RecordedAppend]]:
        return read_records(self._readers, after, upto)

    def restore(self, events: Sequence[SequencedEvent], appends: Sequence[RecordedAppend] = ()) -> None:
        with self._writing, storage_errors(self._path):
            if self._closed:
                raise StoreClosed("the store is closed")
            try:
                self._recover()
                self._tidy_up()
                if appends:
                    begin_to_record(self._writer)
                self._restore(events, appends)
            except BaseException:
                roll_back(self._writer)
                raise
        with self._changing:
            self._changed.notify_all()

    # Committing, by one thread at a time, under the lock.

    def _commit(self, appends: Sequence[Append]) -> list[Verdict]:
        # A checkpoint is no event: no position would collide if another process moved it meanwhile.
        locked = any(append.checkpoint is not None for append in appends)
        if self._alert and not locked:
            self._look_around()
        for attempt in count():
            tail, committed, _ = self._view
            try:
                if locked or attempt >= OPTIMISTIC_TRIES:
                    with transaction(self._writer):
                        self._catch_up()
                        tail, committed, _ = self._view
                        verdicts = self._judge_and_store(appends, tail)
                else:
                    verdicts = self._judge_and_store(appends, tail)
            except Overtaken:
                self._alert = ALERT_BATCHES
                self._take_back(tail, committed)
                self._catch_up()
            except Exception:
                self._take_back(tail, committed)
                raise
            except BaseException:
                self._begin_anew(tail)  # an interrupt may have come in the middle of an addition
                raise
            else:
                self._view = self._view.grown()
                return verdicts
        raise AssertionError("unreachable")

    def _look_around(self) -> None:
        """While others append as well, catching up costs less than to judge a batch that will collide."""
        before = self._view.committed
        self._catch_up()
        self._alert = ALERT_BATCHES if self._view.committed > before else self._alert - 1

    def _judge_and_store(self, appends: Sequence[Append], tail: Tail) -> list[Verdict]:
        draft = Draft(tail, self._view.older, self._writer, self._types)
        verdicts = judge(appends, draft)
        if draft.rows:
            self._insert(draft.rows, records_of(appends, verdicts) if self._records_conditions else ())
        elif not self._writer.in_transaction and (value(self._writer, HEAD) or 0) > draft.head():
            raise Overtaken  # nothing to insert means nothing to collide with
        for name, position in draft.checkpoints.items():
            run(self._writer, "INSERT OR REPLACE INTO checkpoints VALUES (?, ?)", (name, str(position)))
        return verdicts

    def _insert(self, rows: list[Row], records: Sequence[RecordedAppend]) -> None:
        try:
            if (records or len(rows) > ROWS) and not self._writer.in_transaction:
                with transaction(self._writer):
                    insert_many(self._writer, "events", rows)
                    insert_records(self._writer, records)
            else:
                insert_many(self._writer, "events", rows)
                if records:
                    insert_records(self._writer, records)
        except apsw.ConstraintError as error:
            if error.extendedresult != apsw.SQLITE_CONSTRAINT_PRIMARYKEY:  # type: ignore[attr-defined]
                raise
            raise Overtaken from None

    def _restore(self, events: Sequence[SequencedEvent], appends: Sequence[RecordedAppend]) -> None:
        tail, committed, _ = self._view
        try:
            with transaction(self._writer):
                self._catch_up()
                tail, committed, _ = self._view
                check_restored(self._writer, tail, events)
                rows: list[Row] = []
                for event in events:
                    content = event.stored
                    tail.add(event.type, event.tags, content[5], content)
                    rows.append((*content, checksum(*content)))
                self._insert(rows, appends)
        except Exception:
            self._take_back(tail, committed)
            raise
        except BaseException:
            self._begin_anew(tail)
            raise
        self._view = self._view.grown()

    def _catch_up(self) -> None:
        """Bring the tail to where the file is: other processes may have appended, or shortened it."""
        tail, committed, older = self._view
        indexed = indexed_upto(self._writer)
        if indexed > tail.floor:
            older = tail if committed >= indexed else None
            tail, committed = Tail(indexed), indexed
        try:
            for type, tags, id, *others in self._writer.execute(NEWER, (KEPT_BYTES, committed)):
                position, data, recorded_at, metadata = others
                stored = None if data is None else (position, type, tags, data, recorded_at, id, metadata)
                tail.add(type, decode_tags(tags), id, stored)
        except BaseException:
            self._begin_anew(tail)
            raise
        self._view = View(tail, tail.head, older)

    def _take_back(self, tail: Tail, committed: int) -> None:
        """Cut what was staged; an interrupt in the middle of it finds another tail in force."""
        view = self._view
        self._begin_anew(tail)
        tail.cut(committed)
        self._view = view

    def _recover(self) -> None:
        """Done first by whoever has taken the lock: an interrupt may have come to its last holder between two steps."""
        roll_back(self._writer)
        tail, committed, _ = self._view
        if tail.head != committed:
            self._begin_anew(tail)

    def _begin_anew(self, tail: Tail) -> None:
        """Drop a tail that may be half changed; the next commit collides, and so reads it from the file."""
        self._view = View(Tail(tail.floor), tail.floor, None)

    def _tidy_up(self) -> None:
        """What keeps the file fast, between two commits and in small pieces."""
        tail = self._view.tail
        writes = len(tail) >= TAIL_EVENTS
        if writes:
            with transaction(self._writer):
                if indexed_upto(self._writer) == tail.floor:
                    write_tail(self._writer, self._types, tail)
            self._catch_up()
            self._merge_at = 0.0
        # That was the longest piece, and others wait: the rest comes after the next commit, large as that may be.
        waits, self._wrote_tail = writes and not self._wrote_tail, writes
        if self._wal_pages >= CHECKPOINT_PAGES and not self._keeps_log and not waits:
            self._wal_pages = 0
            self._checkpoint_log()
        if monotonic() >= self._merge_at and not waits:
            began = monotonic()
            more = merge_step(self._writer)
            self._merge_at = monotonic() + (monotonic() - began) * MERGE_REST if more else inf

    def _checkpoint_log(self) -> None:
        try:
            self._writer.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        except apsw.BusyError:
            pass  # another process is at it
        except apsw.IOError:
            # A checkpoint that readers hold up copies a part and does not sync it; a failed sync loses
            # that part too, and the next checkpoint would not copy it again. The log still has it: it
            # is kept as it is, and copied as a whole when the file is opened again by the first to do so.
            self._keeps_log = True
            self._writer.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
            raise

    def _count_wal_pages(self, connection: apsw.Connection, name: str, pages: int) -> int:
        """SQLite calls this after each commit. Checkpointing here would let its failure look like the commit's."""
        self._wal_pages = pages
        return apsw.SQLITE_OK

    # The tail as readers need it.

    def _view_without_waiting(self, upto: int) -> View:
        """A view of the tail, brought up to date if another process has appended, unless somebody is writing."""
        # Who begins to write between the two is waited for after all: a lock that is tried and then kept apart from
        # a `with` could be lost by an interrupt.
        if upto > self._view.committed and not self._writing.locked():
            with self._writing:
                if not self._closed and upto - self._view.committed <= UNINDEXED_EVENTS:
                    self._recover()
                    self._catch_up()
        return self._view

    def _view_near(self, upto: int) -> View:
        """A view of the tail that lacks at most a few of the events up to `upto`."""
        if upto - self._view.committed > UNINDEXED_EVENTS:
            with self._writing, storage_errors(self._path):
                if self._closed:
                    raise StoreClosed("the store is closed")
                self._recover()
                self._catch_up()
        return self._view


class Overtaken(Exception):
    """Another process has committed since the batch was judged."""
