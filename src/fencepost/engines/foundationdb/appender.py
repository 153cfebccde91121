"""One append: its draft, its judgement and its tries, until the outcome is known.

Every try reads and writes the append's token, so of all tries at most one is stored (docs/decisions/041). The tests of
unknown results in tests/foundationdb/test_engine.py check this.

Once the caller has been told, the token is of no use, and one of the next appends of this process clears it. A process
that is killed leaves tokens behind. Opening a store clears those older than an hour, counted in the cluster's versions.
An append must not miss its token because it was swept: a process can be suspended between two tries. So an append whose
first try began an hour ago gives up, with an unknown outcome, rather than trust that its token is absent. Within the
hour, no sweep that the last try can see has cleared the token, and a sweep that it cannot see yet conflicts with it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from time import monotonic
from typing import Final

from ...core.observers import Observation, has_observers
from ...core.verdicts import Append, Verdict, revisions_of
from ...errors import StoreUnavailable
from ...model import Placed
from .binding import Connection, Future, Transaction
from .draft import Draft
from .judgement import Judgement
from .layout import Keys, position_of_value, version_of
from .observations import AppendTried
from .pages import head_of
from .transactions import RangeReader, Steps, Tries, result

CLEARED: Final = 16  # tokens of earlier appends that an append takes along
SWEPT: Final = 256  # tokens of each partition that one opening looks at
LASTING_VERSIONS: Final = 3_600 * 1_000_000  # an hour


class Appender:
    """See `engine` for why an append is stored at most once, whatever becomes of its tries."""

    def __init__(
        self,
        append: Append,
        keys: Keys,
        connection: Connection,
        token: bytes,
        partition: int,
        tokens: Tokens,
        transaction_bytes: int,
    ) -> None:
        self._append = append
        self._keys = keys
        self._connection = connection
        self._tokens = tokens
        self._judgement = Judgement(append, keys, connection)
        self._draft = Draft(
            append,
            keys,
            token,
            partition=partition,
            reads=self._judgement.buckets.sized(),
            transaction_bytes=transaction_bytes,
        )
        self._version: Future | None = None  # at which the first try reads, or the first one that got a version
        self._stored = False
        self._token_found = False
        self._judged_s = 0.0
        self._commit_s = 0.0

    def steps(self, tries: Tries, report: Callable[[Observation], None]) -> Steps[Verdict]:
        cleared = self._tokens.take()
        outcome = "failed"
        try:
            verdict = yield from tries.run(lambda transaction: self._try(transaction, tries.number, cleared))
            outcome = "stored" if self._stored else "refused"
        finally:
            # A token that this append has stored is cleared later; those that it has not cleared, too.
            self._tokens.add([self._draft.token] if self._stored else cleared)
            if has_observers():
                seconds = self._judged_s, self._commit_s
                report(AppendTried(outcome, tuple(tries.codes), self._token_found, self._judgement.pages, *seconds))
        return verdict

    def _try(self, transaction: Transaction, number: int, cleared: list[bytes]) -> Steps[Verdict]:
        began = monotonic()
        # Not waited for here: whatever is read or committed waits for it in the client, without a callback of ours.
        version = transaction.get_read_version()
        if number > 0:
            placed = yield from self._find_token(transaction, version)
            if placed is not None:
                return placed
        if self._version is None:
            self._version = version
        verdict = yield from self._judgement.verdict(transaction)
        if verdict is not None:
            return verdict
        head = 0
        if not self._append.events:
            head = yield from head_of(transaction, self._keys)
        self._judged_s += monotonic() - began
        return (yield from self._commit(transaction, number, cleared, head))

    def _commit(self, transaction: Transaction, number: int, cleared: list[bytes], head: int) -> Steps[Placed]:
        judgement = self._judgement
        writes = self._draft.writes(judgement.buckets.keys(number), judgement.changes, cleared)
        self._connection.write(transaction, writes)
        stamp = transaction.get_versionstamp()
        began = monotonic()
        try:
            yield from result(transaction.commit())
        finally:
            self._commit_s += monotonic() - began
        self._stored = True
        if not self._append.events:
            return self._placed(head, head)
        yield stamp
        assert stamp.value is not None
        first = position_of_value(stamp.value + self._draft.first_place)
        return self._placed(first, first + len(self._append.events) - 1)

    def _find_token(self, transaction: Transaction, version: Future) -> Steps[Placed | None]:
        """Where an earlier try has stored the append, if one has."""
        token = transaction.get(self._draft.token)
        yield token
        if token.value is None:
            current: int = yield from result(version)
            first = self._first_version()
            if first is not None and current - first >= LASTING_VERSIONS:
                raise StoreUnavailable(
                    "the append's outcome is unknown: it began over an hour ago, and another process may have cleared "
                    "its token; append again with the same event ids to find out"
                )
            return None
        self._stored = self._token_found = True
        if not self._append.events:
            head = yield from head_of(transaction, self._keys)
            return self._placed(head, head)
        last = position_of_value(token.value)
        return self._placed(last - len(self._append.events) + 1, last)

    def _placed(self, first: int, last: int) -> Placed:
        """The result, with the revisions that the last try has worked out.

        They are those of the try that was stored. A try that was stored after the last one began to read saw the same
        records, because it would have been a conflict otherwise; one that was stored before was found by its token.
        """
        return Placed(first, last, revisions=revisions_of(self._append, self._judgement.changes))

    def _first_version(self) -> int | None:
        """The read version of the first try that got one. Without one a try cannot have committed."""
        if self._version is not None and self._version.is_ready():
            with suppress(self._connection.error):
                first: int = self._version.wait()
                return first
        self._version = None
        return None


class Tokens:
    """The tokens of stored appends: cleared along with later appends, and swept when their process has died."""

    def __init__(self, keys: Keys) -> None:
        self._keys = keys
        self._told: deque[bytes] = deque()  # tokens of appends whose callers have been told

    def __bool__(self) -> bool:
        return bool(self._told)

    def take(self) -> list[bytes]:
        """Some tokens for an append to clear. Put them back with `add` if the append fails."""
        taken: list[bytes] = []
        with suppress(IndexError):  # another thread took the last one
            while self._told and len(taken) < CLEARED:
                taken.append(self._told.popleft())
        return taken

    def add(self, tokens: Iterable[bytes]) -> None:
        self._told.extend(tokens)

    def clear(self, transaction: Transaction) -> Steps[None]:
        """Clear all of them."""
        for token in list(self._told):
            transaction.clear(token)
        yield from result(transaction.commit())

    def sweep(self, connection: Connection, transaction: Transaction) -> Steps[int]:
        """Clear tokens that processes which ended long ago have left behind, and return their number."""
        version = transaction.get_read_version()
        reader = RangeReader(connection, transaction)
        reads = [reader.begin(tokens, tokens + b"\xff", SWEPT) for tokens in self._keys.tokens]
        oldest = (yield from result(version)) - LASTING_VERSIONS
        swept = 0
        for read in reads:
            rows = yield from read.rows()
            for row in rows:
                if version_of(position_of_value(row.value)) < oldest:
                    transaction.clear(row.key)
                    swept += 1
        if swept:
            yield from result(transaction.commit())
        return swept
