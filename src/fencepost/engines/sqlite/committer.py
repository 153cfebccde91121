"""Commits batches without a lock, and keeps the file in good shape between commits.

A batch is judged against the tail, then inserted at the next positions by one statement, which is also the
transaction and the sync. If another process has committed meanwhile, the statement fails on the primary key
`position`: the tail catches up, and the batch is judged and inserted again. So a verdict always takes every event
below the inserted positions into account. models/ and tests/sqlite/test_handles.py check this.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from math import inf
from time import monotonic
from typing import Final, TypeVar

import apsw

from ...core.verdicts import Append, Verdict, judge, recorded_appends_of
from ...errors import InvalidInput
from ...model import RecordedAppend, SequencedEvent
from . import sizes
from .connections import roll_back, run, transaction, value
from .event_rows import Head
from .forks import Connection
from .generations import Types, index_events, indexed_up_to, insert_many, merge_step, write_tail
from .layout import ID, POSITION, Row
from .ledger import BatchLedger
from .recorded_appends import create_appends_table, insert_recorded_appends
from .records import write_records
from .shared_tail import SharedTail
from .tail import Tail
from .write_ahead_log import WriteAheadLog

Result = TypeVar("Result")

# All ids in one statement, in the order of the index: one statement for each id would take as long as all the rest.
FIRST_STORED: Final = """
SELECT postings.term FROM carray(?) AS wanted CROSS JOIN generations CROSS JOIN postings
ON postings.generation = generations.generation AND postings.term = wanted.value
WHERE generations.state = 'ready' LIMIT 1
"""


class Overtaken(Exception):
    """Another process has committed since the batch was judged."""


class Committer:
    """Writes over one connection. The caller holds the lock that guards the connection and the tail."""

    def __init__(
        self,
        writer: Connection,
        tail: SharedTail,
        types: Types,
        head: Head,
        *,
        patience_s: float,
        record_conditions: bool,
    ) -> None:
        self.writer = writer
        self.log = WriteAheadLog(writer, patience_s)
        self._tail = tail
        self._types = types
        self._head = head
        self._records_conditions = record_conditions
        self._wrote_tail = False  # after the last commit
        self._merge_at = 0.0  # when the next step of merging is due
        self._lookup_s = 0.0  # how long the last restore looked up its ids in the generations
        self._alert = 0  # batches that still look for other processes' commits before judging

    def commit(self, appends: Sequence[Append]) -> list[Verdict]:
        return self._write(lambda: self._commit(appends))

    def restore(self, events: Sequence[SequencedEvent], appends: Sequence[RecordedAppend]) -> None:
        """Insert events with the positions and times that they have."""
        self._write(lambda: self._restore(events, appends, [event.stored for event in events]))

    def close(self) -> None:
        """Close the connection, after noting where the log ends: opening the file again compares it."""
        try:
            self.recover()
            self.writer.set_busy_timeout(0)
            run(
                self.writer,
                "UPDATE closed SET head = e.head FROM (SELECT max(position) AS head FROM events) AS e"
                " WHERE e.head > closed.head",
            )
        except apsw.Error:
            pass  # the disk is full, or another process writes: the note of an earlier close stays true
        finally:
            self.writer.close()

    def recover(self) -> None:
        """Clean up after a thread that was interrupted between two steps. Every write begins with this."""
        roll_back(self.writer)
        self._tail.recover()

    def _write(self, action: Callable[[], Result]) -> Result:
        try:
            self.recover()
            self._tidy_up()
            return action()
        except BaseException:
            roll_back(self.writer)  # an interrupt may come even while a transaction is ending
            raise

    def _commit(self, appends: Sequence[Append]) -> list[Verdict]:
        # A record has no position that would collide if another process changed it meanwhile.
        locked = any(append.checkpoint is not None or append.records for append in appends)
        if self._alert and not locked:
            self._look_around()
        for attempt in count():
            tail, committed, _ = self._tail.view
            try:
                if locked or attempt >= sizes.OPTIMISTIC_TRIES:
                    with transaction(self.writer):
                        self._tail.catch_up(self.writer)
                        tail, committed, _ = self._tail.view
                        verdicts = self._judge_and_store(appends, tail)
                else:
                    verdicts = self._judge_and_store(appends, tail)
            except Overtaken:
                self._alert = sizes.ALERT_BATCHES
                self._tail.take_back(tail, committed)
                self._tail.catch_up(self.writer)
            except Exception:
                self._tail.take_back(tail, committed)
                raise
            except BaseException:
                self._tail.reset(tail.floor)  # an interrupt may have come in the middle of an addition
                raise
            else:
                self._tail.mark_committed()
                return verdicts
        raise AssertionError("unreachable")

    def _look_around(self) -> None:
        """While other processes append too, catching up costs less than judging a batch that will collide."""
        before = self._tail.view.committed
        self._tail.catch_up(self.writer)
        self._alert = sizes.ALERT_BATCHES if self._tail.view.committed > before else self._alert - 1

    def _judge_and_store(self, appends: Sequence[Append], tail: Tail) -> list[Verdict]:
        ledger = BatchLedger(tail, self._tail.view.older, self.writer, self._types)
        verdicts = judge(appends, ledger)
        if ledger.rows:
            self._insert(ledger.rows, recorded_appends_of(appends, verdicts) if self._records_conditions else ())
        elif not self.writer.in_transaction and self._head.read(self.writer) > ledger.head():
            raise Overtaken  # a batch that inserts nothing cannot collide, so it has to look
        if ledger.changes:
            write_records(self.writer, ledger.changes)
        return verdicts

    def _insert(self, rows: list[Row], recorded: Sequence[RecordedAppend]) -> None:
        try:
            if (recorded or len(rows) > sizes.INSERT_ROWS) and not self.writer.in_transaction:
                with transaction(self.writer):
                    insert_many(self.writer, "events", rows)
                    insert_recorded_appends(self.writer, recorded)
            else:
                insert_many(self.writer, "events", rows)
                if recorded:
                    insert_recorded_appends(self.writer, recorded)
        except apsw.ConstraintError as error:
            if error.extendedresult != apsw.SQLITE_CONSTRAINT_PRIMARYKEY:  # type: ignore[attr-defined]
                raise
            raise Overtaken from None

    def _restore(self, events: Sequence[SequencedEvent], appends: Sequence[RecordedAppend], rows: list[Row]) -> None:
        self._merge_for(self._lookup_s)
        if appends:
            create_appends_table(self.writer)
        tail, committed, _ = self._tail.view
        try:
            with transaction(self.writer):
                self._tail.catch_up(self.writer)
                tail, committed, _ = self._tail.view
                began = monotonic()
                check_restored(self.writer, tail, rows)
                self._lookup_s = monotonic() - began
                self._insert(rows, appends)
                is_long = len(tail) + len(rows) >= sizes.TAIL_EVENTS
                if is_long:  # then index its events at once, so that no process has to keep them as a tail
                    index_events(self.writer, tail.floor, tail.head + len(rows))
                else:
                    for event, row in zip(events, rows, strict=True):
                        tail.add(event.type, event.tags, event.stored_id, row)
        except Exception:
            self._tail.take_back(tail, committed)
            raise
        except BaseException:
            self._tail.reset(tail.floor)
            raise
        if is_long:
            self._tail.reset(tail.head + len(rows))
            self._merge_at = 0.0
        else:
            self._tail.mark_committed()

    def _merge_for(self, duration_s: float) -> None:
        """Take steps of merging for about this time, if there are any to take.

        One step between commits does not keep up with a restore of many events, and a restore looks up its ids in every
        generation. Merging for as long as these lookups take costs at most as much again, and bounds them.
        """
        deadline = monotonic() + duration_s
        while monotonic() < deadline and self._merge_at < inf:
            self._merge_at = 0.0
            self._tidy_up()

    def _tidy_up(self) -> None:
        """Write a long tail to disk, shorten the log and merge generations: between two commits, in small pieces."""
        tail = self._tail.view.tail
        writes = len(tail) >= sizes.TAIL_EVENTS
        if writes:
            with transaction(self.writer):
                if indexed_up_to(self.writer) == tail.floor:
                    write_tail(self.writer, self._types, tail)
            self._tail.catch_up(self.writer)
            self._merge_at = 0.0
        # Writing the tail is the slowest piece. So the other pieces wait for the next commit, even if the log has
        # grown; but only once, because large commits may fill the tail each time.
        postponed, self._wrote_tail = writes and not self._wrote_tail, writes
        if postponed:
            return
        if self.log.is_long:
            self.log.shorten()
        began = monotonic()
        if began >= self._merge_at:
            more = merge_step(self.writer)
            ended = monotonic()
            self._merge_at = ended + (ended - began) * sizes.MERGE_REST if more else inf


def check_restored(connection: apsw.Connection, tail: Tail, rows: Sequence[Row]) -> None:
    """Refuse events that do not follow the head, or whose ids are stored. In a transaction, with a current tail."""
    for position, row in enumerate(rows, start=tail.head + 1):
        if row[POSITION] != position:
            raise InvalidInput("events", f"position {position} is next, not {row[POSITION]}")
    ids = [row[ID] for row in rows if row[ID] is not None]
    stored = next((id for id in ids if tail.position_of(id) is not None), None)
    if stored is None and ids and tail.floor:
        stored = value(connection, FIRST_STORED, (apsw.carray(tuple(sorted(ids))),))
    if stored is not None:
        raise InvalidInput("events", f"the id {stored.hex()} is stored already")
