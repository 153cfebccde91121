"""The engine: one transaction an append, tried until its outcome is known.

A try judges the past, writes, and commits with the conflict keys of its buckets. A conflict that the
database reports is not a verdict: the next try judges again. It finds the event that is in
the way, or it finds none and commits. If the outcome of a commit is unknown, or its client gave up while it
was still under way, the next try finds the append's token among the stored ones or not, and so
knows; and since every try reads and writes the token, of all tries at most one can be stored,
whenever the others may arrive.

Every call is a generator of steps (see `waiting`), so threads and event loops run the same code.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import count
from time import monotonic
from typing import Final

from ...core.engine import Capability, InThread, ReadStart
from ...core.judging import Append, Failed, Verdict
from ...errors import FencepostError, InvalidInput, StoreCorrupt, StoreError
from ...interrupts import Waiters
from ...model import MAX_POSITION, Query, SequencedEvent
from ...observing import has_observers, notify
from .appending import Appending
from .binding import Connection, Future, Transaction
from .drafts import MAX_TRANSACTION_BYTES, TRANSACTION_BYTES
from .keys import (
    PARTITIONS,
    Keys,
    Namespace,
    checked_partitions,
    format_of,
    last_position_at,
    partitions_in,
    position_of_value,
)
from .observations import TryFailed, WatchFellBack
from .scanning import Read, begin_heads, head_of, highest, pages_of, scan
from .tokens import Tokens
from .tries import Tries
from .waiting import Result, Steps, result, run, run_async

NAMESPACE: Final = "default"
TOO_MANY_WATCHES: Final = 1032
LOOK_AGAIN_S: Final = 0.1  # where no watch is available, or one fires without a change


class FoundationDBEngine:
    """`partitions` is for a store that does not exist yet: how many partitions its log has."""

    # The database itself batches concurrent commits.
    capabilities: Final = Capability.BEGIN | Capability.ASYNC_READ | Capability.ASYNC_COMMIT

    def __init__(
        self,
        connection: Connection,
        *,
        namespace: str = NAMESPACE,
        partitions: int | None = None,
        transaction_bytes: int = TRANSACTION_BYTES,
    ) -> None:
        if not (isinstance(transaction_bytes, int) and 1 <= transaction_bytes <= MAX_TRANSACTION_BYTES):
            raise InvalidInput("transaction_bytes", f"1 to {MAX_TRANSACTION_BYTES} are needed: {transaction_bytes!r}")
        wanted = None if partitions is None else checked_partitions(partitions)
        self._connection = connection
        self._transaction_bytes = transaction_bytes
        self._changed = Waiters()
        self._interrupts = 0
        self._turns = count()
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

    def begin(self, query: Query, *, after: int, upto: int | None, limit: int | None, backwards: bool) -> ReadStart:
        return run(self._begin(Read(query, after, MAX_POSITION if upto is None else upto, limit, backwards)))

    async def begin_async(
        self, query: Query, *, after: int, upto: int | None, limit: int | None, backwards: bool, in_thread: InThread
    ) -> ReadStart:
        read = Read(query, after, MAX_POSITION if upto is None else upto, limit, backwards)
        return await run_async(self._begin(read))

    def scan(
        self, query: Query, *, after: int, upto: int, limit: int | None = None, backwards: bool = False
    ) -> Iterator[Sequence[SequencedEvent]]:
        return scan(self._connection, self._keys, Read(query, after, upto, limit, backwards))

    def head(self) -> int:
        return self._run(lambda transaction: head_of(transaction, self._keys))

    def checkpoint(self, name: str) -> int:
        key = self._keys.checkpoint(name)

        def read(transaction: Transaction) -> Steps[int]:
            value = transaction.snapshot.get(key)
            yield value
            return position_of_value(value.value)

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

    def _tries(self) -> Tries:
        return Tries(self._connection, self._report_failure)

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
        partition = next(self._turns) % len(self._keys.partitions)
        appending = Appending(
            append, self._keys, self._connection, os.urandom(16), partition, self._tokens, self._transaction_bytes
        )
        return (yield from appending.steps(self._tries(), lambda observation: notify(self, observation)))

    def _begin(self, read: Read) -> Steps[ReadStart]:
        """Head and first page in one transaction: what it sees ends at the head."""

        def first_page(transaction: Transaction) -> Steps[tuple[int, list[SequencedEvent]]]:
            heads = begin_heads(transaction, self._keys)
            page = yield from pages_of(self._connection, self._keys, read).page(transaction)
            head = yield from highest(heads)
            return head, page

        head, page = yield from self._tries().run(first_page)
        reach = min(read.upto, head)
        left = None if read.limit is None else read.limit - len(page)
        if not page or left == 0:
            return ReadStart(reach, page, None)
        last = page[-1].position
        after, upto = (read.after, last - 1) if read.backwards else (last, reach)
        rest = read._replace(after=after, upto=upto, limit=left)
        return ReadStart(reach, page, scan(self._connection, self._keys, rest))

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
        except self._connection.error as error:
            cancel(watches)
            if getattr(error, "code", 0) != TOO_MANY_WATCHES:
                raise
            self._report_fallback(TOO_MANY_WATCHES)
            return head, []
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
        """Tell observers of each watch that has failed, which it may do long after it was set up."""
        for watch in watches:
            if watch.is_ready():
                try:
                    watch.wait()
                except self._connection.error as error:
                    self._report_fallback(getattr(error, "code", 0))

    def _report_fallback(self, code: int) -> None:
        if has_observers():
            notify(self, WatchFellBack(code))


def cancel(watches: Sequence[Future]) -> None:
    """A watch outlives its transaction, and the number of watches of a client is limited."""
    for watch in watches:
        watch.cancel()
