"""The engine: one transaction an append, tried until its outcome is known.

A try judges the past, writes, and commits with the conflict keys of its buckets. A conflict that the
database reports is not a verdict: the next try judges again. It finds the event that is in
the way, or it finds none and commits. If the outcome of a commit is unknown, or its client gave up while it
was still under way, the next try finds the append's token among the stored ones or not, and so
knows; and since every try reads and writes the token, of all tries at most one can be stored,
whenever the others may arrive.

Every call is a generator of steps (see `transactions`), so threads and event loops run the same code.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import count
from time import monotonic
from typing import Final

from ...core.engine import Capability, InThread, ReadStart
from ...core.interrupts import Waiters
from ...core.observers import has_observers, notify
from ...core.record_keys import key_range
from ...core.verdicts import Append, Failed, Verdict
from ...errors import FencepostError, InvalidInput, StoreCorrupt, StoreError
from ...model import MAX_POSITION, Query, Record, SequencedEvent
from .appender import Appender, Tokens
from .binding import Connection, Future, Transaction, code_of
from .draft import MAX_TRANSACTION_BYTES, TRANSACTION_BYTES
from .layout import (
    PARTITIONS,
    Keys,
    Namespace,
    checked_partitions,
    format_of,
    last_position_at,
    partitions_in,
)
from .observations import TryFailed, WatchFellBack
from .pages import FirstPage, Read, head_of, scan
from .transactions import RangeReader, Result, Steps, Tries, Turn, Turns, in_turn, result, run, run_async

NAMESPACE: Final = "default"
MAX_TRANSACTIONS: Final = 256
LOOK_AGAIN_S: Final = 0.1  # where no watch is available, or one fires without a change


class FoundationDBEngine:
    """`partitions` is for a store that does not exist yet: how many partitions its log has.

    `max_transactions` is how many appends, and how many reads besides them, have a transaction under way at once. What
    waits for a new head, or reads further pages, is not counted, so neither reads nor subscriptions wait for appends.
    """

    # The database itself batches concurrent commits.
    capabilities: Final = Capability.BEGIN | Capability.ASYNC_READ | Capability.ASYNC_COMMIT

    def __init__(
        self,
        connection: Connection,
        *,
        namespace: str = NAMESPACE,
        partitions: int | None = None,
        transaction_bytes: int = TRANSACTION_BYTES,
        max_transactions: int = MAX_TRANSACTIONS,
    ) -> None:
        if not (isinstance(transaction_bytes, int) and 1 <= transaction_bytes <= MAX_TRANSACTION_BYTES):
            raise InvalidInput("transaction_bytes", f"1 to {MAX_TRANSACTION_BYTES} are needed: {transaction_bytes!r}")
        if not (isinstance(max_transactions, int) and max_transactions >= 1):
            raise InvalidInput("max_transactions", f"a number of at least 1 is needed: {max_transactions!r}")
        wanted = None if partitions is None else checked_partitions(partitions)
        self._connection = connection
        self._transaction_bytes = transaction_bytes
        self._changed = Waiters()
        self._interrupts = 0
        self._fell_back = False  # from watches to looking again and again; observers are told once
        self._partitions = count()
        self._appends, self._reads = Turns(max_transactions), Turns(max_transactions)
        names = Namespace(namespace)
        found = self._run(lambda transaction: self._open_format(transaction, names, wanted or PARTITIONS))
        if wanted not in (None, found):
            raise InvalidInput("partitions", f"the store exists and has {found} partitions, not {wanted}")
        self._keys = Keys(namespace, found)
        self._tokens = Tokens(self._keys)
        self._run(self._check_version)
        with suppress(StoreError):  # what is left behind are a few small keys
            self._run(lambda transaction: self._tokens.sweep(connection, transaction))

    def commit(self, appends: Sequence[Append]) -> Sequence[Verdict]:
        if len(appends) == 1:
            return [run(self._append(appends[0]))]
        return [self._commit_alone(append) for append in appends]

    async def commit_async(self, appends: Sequence[Append], in_thread: InThread) -> Sequence[Verdict]:
        return [await run_async(self._append(append)) for append in appends]

    def begin(self, query: Query, *, after: int, up_to: int | None, limit: int | None, backwards: bool) -> ReadStart:
        return run(self._begin(Read(query, after, MAX_POSITION if up_to is None else up_to, limit, backwards)))

    async def begin_async(
        self, query: Query, *, after: int, up_to: int | None, limit: int | None, backwards: bool, in_thread: InThread
    ) -> ReadStart:
        read = Read(query, after, MAX_POSITION if up_to is None else up_to, limit, backwards)
        return await run_async(self._begin(read))

    def scan(
        self, query: Query, *, after: int, up_to: int, limit: int | None = None, backwards: bool = False
    ) -> Iterator[Sequence[SequencedEvent]]:
        return scan(self._connection, self._keys, Read(query, after, up_to, limit, backwards))

    def head(self) -> int:
        return self._run(lambda transaction: head_of(transaction, self._keys))

    def record(self, key: str) -> Record | None:
        stored_at = self._keys.record(key)

        def read(transaction: Transaction) -> Steps[Record | None]:
            value = transaction.snapshot.get(stored_at)
            yield value
            return None if value.value is None else self._keys.record_at(stored_at, value.value)

        return self._run(read)

    def records(self, prefix: str, *, after: str, limit: int) -> Sequence[Record]:
        begin, end = (self._keys.record(key) for key in key_range(prefix, after))

        def read(transaction: Transaction) -> Steps[list[Record]]:
            rows = yield from RangeReader(self._connection, transaction).begin(begin, end, limit).rows()
            return [self._keys.record_at(row.key, row.value) for row in rows]

        return self._run(read)

    def wait(self, after: int, timeout_s: float) -> int:
        interrupts = self._interrupts
        deadline = monotonic() + timeout_s
        while True:
            head, watches = self._run(lambda transaction: self._watch(transaction, after))
            rest_s = deadline - monotonic()
            try:
                if head <= after and rest_s > 0:
                    self._pause(watches, rest_s, interrupts)
                    self._report_failures(watches)
                    head = self.head()
            finally:
                cancel(watches)
            if head > after or monotonic() >= deadline or self._interrupts > interrupts:
                return head
            # A watch may fire for nothing, or fail again and again: this must not spin.
            self._pause([], deadline - monotonic(), interrupts)

    def interrupt(self) -> None:
        self._interrupts += 1
        self._changed.notify_all()

    def close(self) -> None:
        self.interrupt()
        if self._tokens:
            with suppress(StoreError):  # what is left behind are a few small keys
                self._run(self._tokens.clear)

    def clear(self) -> None:
        """Delete everything in the namespace, as if it had never been. For tests."""

        def clear(transaction: Transaction) -> Steps[None]:
            transaction.clear_range(self._keys.prefix, self._keys.prefix + b"\xff")
            yield from result(transaction.commit())

        self._run(clear)

    def _run(self, body: Callable[[Transaction], Steps[Result]]) -> Result:
        return run(self._tries().run(body))

    def _tries(self, turn: Turn | None = None) -> Tries:
        return Tries(self._connection, self._report_failure, turn)

    def _report_failure(self, code: int, number: int) -> None:
        if has_observers():
            notify(self, TryFailed(code, number))

    def _commit_alone(self, append: Append) -> Verdict:
        """Commit one append of several. Each is a transaction of its own, so its error is its own."""
        try:
            return run(self._append(append))
        except FencepostError as error:
            return Failed(error)

    def _append(self, append: Append) -> Steps[Verdict]:
        turn = Turn(self._appends)

        def begin() -> Steps[Verdict]:
            partition = next(self._partitions) % len(self._keys.partitions)
            appender = Appender(
                append, self._keys, self._connection, os.urandom(16), partition, self._tokens, self._transaction_bytes
            )
            return appender.steps(self._tries(turn), lambda observation: notify(self, observation))

        return in_turn(turn, begin)

    def _begin(self, read: Read) -> Steps[ReadStart]:
        first = FirstPage(self._connection, self._keys, read)
        turn = Turn(self._reads)
        page = yield from in_turn(turn, lambda: self._tries(turn).run(first.page))
        assert first.head is not None
        return ReadStart(min(read.up_to, first.head), page, first.others())

    def _open_format(self, transaction: Transaction, names: Namespace, partitions: int) -> Steps[int]:
        """The number of partitions of the store, which is created if it does not exist."""
        found = transaction.get(names.format)
        yield found
        if found.value is not None:
            return partitions_in(found.value)
        transaction.set(names.format, format_of(partitions))
        yield from result(transaction.commit())
        return partitions

    def _check_version(self, transaction: Transaction) -> Steps[None]:
        """After a restore into a new cluster, positions would go back."""
        version = transaction.get_read_version()
        head = yield from head_of(transaction, self._keys)
        if head > last_position_at((yield from result(version))):
            raise StoreCorrupt(
                "the cluster's version is behind the store's head: advance it with fdbcli advanceversion"
            )

    def _watch(self, transaction: Transaction, after: int) -> Steps[tuple[int, list[Future]]]:
        """The head and, unless it is above `after`, watches that begin where this reading ended."""
        head = yield from head_of(transaction, self._keys)
        if head > after:
            return head, []
        watches: list[Future] = []
        try:
            watches += (transaction.watch(key) for key in self._keys.heads)
            yield from result(transaction.commit())
        except self._connection.error:
            cancel(watches)
            raise
        return head, watches

    def _pause(self, watches: Sequence[Future], timeout_s: float, interrupts: int) -> None:
        """Wait until a watch is ready, `interrupt` is called or the time is over; without watches, a short time."""
        for watch in watches:
            watch.on_ready(lambda _: self._changed.notify_all())
        self._changed.wait_for(
            lambda: self._interrupts > interrupts or any(watch.is_ready() for watch in watches),
            timeout_s if watches else min(LOOK_AGAIN_S, timeout_s),
        )

    def _report_failures(self, watches: Sequence[Future]) -> None:
        """Tell observers when watches begin to fail, as each may at once or long after it was set up."""
        codes = []
        for watch in watches:
            if watch.is_ready():
                try:
                    watch.wait()
                except self._connection.error as error:
                    codes.append(code_of(error))
        if codes and not self._fell_back and has_observers():
            notify(self, WatchFellBack(codes[0]))
        self._fell_back = bool(codes)


def cancel(watches: Sequence[Future]) -> None:
    """A watch outlives its transaction, and the number of watches of a client is limited."""
    for watch in watches:
        watch.cancel()
