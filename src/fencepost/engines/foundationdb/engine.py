"""The engine: one transaction an append, tried until its outcome is known.

A try judges the past, writes, and commits with the conflict keys of its buckets. If the database
reports a conflict, that is no verdict: the next try judges again and finds the event that is in
the way, or none and commits. If the outcome of a commit is unknown, or its client gave up while it
was still under way, the next try finds the append's token among the stored ones or not, and so
knows; and since every try reads and writes the token, of all tries at most one can be stored,
whenever the others may arrive. Tokens are cleared along with later appends.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from time import monotonic
from typing import Final

from ...commit import Append, Verdict
from ...errors import FormatUnsupported, InvalidInput, StoreCorrupt, StoreError
from ...model import Placed, Query, SequencedEvent
from .binding import Connection, Future, Transaction, Tries
from .drafts import Draft
from .judging import Judgement
from .keys import FORMAT, Keys, last_position_at, position_of_value
from .scanning import scan

NAMESPACE: Final = "default"
CLEARED: Final = 16  # tokens of earlier appends that an append takes along
TOO_MANY_WATCHES: Final = 1032
LOOK_AGAIN_S: Final = 0.1  # where no watch can be had, or one fires for nothing


class FoundationDBEngine:
    group_commit: Final = False  # the database batches what comes from many callers by itself

    def __init__(self, connection: Connection, *, namespace: str = NAMESPACE) -> None:
        if not isinstance(namespace, str):
            raise InvalidInput("namespace", f"a str is needed, not {type(namespace).__name__}")
        self._connection = connection
        self._keys = Keys(namespace)
        self._told: deque[bytes] = deque()  # tokens of appends whose callers have been told
        self._waiters: set[Waiter] = set()
        self._lock = threading.Lock()
        Tries(connection).run(self._check_format)

    def commit(self, appends: Sequence[Append]) -> Sequence[Verdict]:
        return [self._commit(append) for append in appends]

    def scan(
        self, query: Query, *, after: int, upto: int, limit: int | None = None, backwards: bool = False
    ) -> Iterator[Sequence[SequencedEvent]]:
        return scan(self._connection, self._keys, query, after, upto, limit, backwards)

    def head(self) -> int:
        return Tries(self._connection).run(self._head)

    def checkpoint(self, name: str) -> int:
        key = self._keys.checkpoint(name)
        return position_of_value(Tries(self._connection).run(lambda transaction: transaction.snapshot.get(key).value))

    def wait(self, after: int, timeout_s: float) -> int:
        waiter = Waiter()
        with self._lock:
            self._waiters.add(waiter)
        deadline = monotonic() + timeout_s
        try:
            while True:
                head, watch = Tries(self._connection).run(lambda transaction: self._watch(transaction, after))
                rest_s = deadline - monotonic()
                if head <= after and rest_s > 0:
                    waiter.wait(watch, rest_s)
                    head = self.head()
                elif watch is not None:
                    watch.cancel()  # a watch outlives its transaction, and there is room for so many only
                if head > after or monotonic() >= deadline or waiter.interrupted:
                    return head
                # A watch may fire for nothing, or fail again and again: this must not spin.
                waiter.wait(None, deadline - monotonic())
        finally:
            with self._lock:
                self._waiters.remove(waiter)

    def interrupt(self) -> None:
        with self._lock:
            for waiter in self._waiters:
                waiter.interrupt()

    def close(self) -> None:
        self.interrupt()
        if not self._told:
            return
        with suppress(StoreError):  # what is left behind are a few small keys
            Tries(self._connection).run(self._clear_tokens)

    def clear(self) -> None:
        """Delete everything in the namespace, as if it had never been. For tests."""

        def clear(transaction: Transaction) -> None:
            transaction.clear_range(self._keys.prefix, self._keys.prefix + b"\xff")
            transaction.commit().wait()

        Tries(self._connection).run(clear)

    def _check_format(self, transaction: Transaction) -> None:
        found = transaction.get(self._keys.format).value
        if found is None:
            transaction.set(self._keys.format, FORMAT)
            transaction.commit().wait()
        elif found != FORMAT:
            raise FormatUnsupported(f"the store has format {found!r:.80}, this version of Fencepost knows {FORMAT!r}")
        elif self._head(transaction) > last_position_at(transaction.get_read_version().wait()):
            # As after a restore into a new cluster: positions would go back.
            raise StoreCorrupt(
                "the cluster's version is behind the store's head: advance it with fdbcli advanceversion"
            )

    def _commit(self, append: Append) -> Verdict:
        draft = Draft(append, self._keys, os.urandom(16))
        judgement = Judgement(append, self._keys)
        cleared = self._take_tokens()
        tries = Tries(self._connection)
        try:
            while True:
                try:
                    verdict, stored = self._try(tries.transaction, append, draft, judgement, cleared, tries.number > 0)
                    break
                except self._connection.error as error:
                    tries.recover(error)
        except BaseException:
            self._told.extend(cleared)
            raise
        self._told.extend([draft.token] if stored else cleared)
        return verdict

    def _try(
        self,
        transaction: Transaction,
        append: Append,
        draft: Draft,
        judgement: Judgement,
        cleared: Sequence[bytes],
        again: bool,
    ) -> tuple[Verdict, bool]:
        """The verdict, and whether it is that the append is now stored."""
        if again:
            token = transaction.get(draft.token).value
            if token is not None:
                return self._placed(append, token, transaction), True
        verdict = judgement.verdict(transaction)
        if verdict is not None:
            return verdict, False
        before = 0 if append.events else self._head(transaction)
        draft.write(transaction)
        for key in cleared:
            transaction.clear(key)
        stamp = transaction.get_versionstamp()
        transaction.commit().wait()
        if not append.events:
            return Placed(before, before), True
        assert stamp.value is not None
        first = int.from_bytes(stamp.value, "big") << 16
        return Placed(first, first + len(append.events) - 1), True

    def _placed(self, append: Append, token: bytes, transaction: Transaction) -> Placed:
        """Where an append is that an earlier try has stored."""
        if not append.events:
            head = self._head(transaction)
            return Placed(head, head)
        last = position_of_value(token)
        return Placed(last - len(append.events) + 1, last)

    def _head(self, transaction: Transaction) -> int:
        return position_of_value(transaction.snapshot.get(self._keys.head).value)

    def _watch(self, transaction: Transaction, after: int) -> tuple[int, Future | None]:
        """The head and, unless it is above `after`, a watch that begins where this reading ended."""
        head = self._head(transaction)
        if head > after:
            return head, None
        watch = transaction.watch(self._keys.head)
        try:
            transaction.commit().wait()
        except self._connection.error as error:
            if getattr(error, "code", 0) != TOO_MANY_WATCHES:
                raise
            return head, None
        return head, watch

    def _take_tokens(self) -> list[bytes]:
        taken: list[bytes] = []
        with suppress(IndexError):
            while len(taken) < CLEARED:
                taken.append(self._told.popleft())
        return taken

    def _clear_tokens(self, transaction: Transaction) -> None:
        for token in list(self._told):
            transaction.clear(token)
        transaction.commit().wait()


class Waiter:
    """One call of `wait`, which a watch or an interrupt wakes."""

    def __init__(self) -> None:
        self._wake = threading.Event()
        self.interrupted = False

    def wait(self, watch: Future | None, timeout_s: float) -> None:
        # A new event each time: a watch that is cancelled becomes ready too, and must not wake the next one.
        wake = self._wake = threading.Event()
        if self.interrupted:
            wake.set()
        if watch is None:
            wake.wait(min(LOOK_AGAIN_S, timeout_s))
            return
        watch.on_ready(lambda _: wake.set())
        wake.wait(timeout_s)
        watch.cancel()

    def interrupt(self) -> None:
        self.interrupted = True
        self._wake.set()
