"""One append: its draft, its judgement and its tries, until the outcome is known.

Every try reads and writes the append's token, so of all tries at most one is stored (docs/decisions/041). The tests of
unknown results in tests/foundationdb/test_engine.py hold this.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

from ...core.judging import Append, Verdict
from ...errors import StoreUnavailable
from ...model import Placed
from ...observing import Observation, has_observers
from .binding import Connection, Transaction
from .drafts import Draft
from .judging import Judgement
from .keys import Keys, position_of_value
from .observations import AppendTried
from .scanning import head_of
from .tokens import LASTING_VERSIONS, Tokens
from .tries import Tries
from .waiting import Steps, result


class Appending:
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
        self._first_version: int | None = None  # at which the first try read
        self._stored = False
        self._token_found = False
        self._read_version_s = 0.0
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
                seconds = self._read_version_s, self._commit_s
                report(AppendTried(outcome, tuple(tries.codes), self._token_found, self._judgement.pages, *seconds))
        return verdict

    def _try(self, transaction: Transaction, number: int, cleared: list[bytes]) -> Steps[Verdict]:
        began = monotonic()
        version: int = yield from result(transaction.get_read_version())
        self._read_version_s += monotonic() - began
        if number > 0:
            placed = yield from self._find_token(transaction, version)
            if placed is not None:
                return placed
        if self._first_version is None:
            self._first_version = version
        verdict = yield from self._judgement.verdict(transaction)
        if verdict is not None:
            return verdict
        head = 0
        if not self._append.events:
            head = yield from head_of(transaction, self._keys)
        return (yield from self._commit(transaction, number, cleared, head))

    def _commit(self, transaction: Transaction, number: int, cleared: list[bytes], head: int) -> Steps[Placed]:
        self._draft.write(transaction, self._judgement.buckets.keys(number))
        for key in cleared:
            transaction.clear(key)
        stamp = transaction.get_versionstamp()
        began = monotonic()
        try:
            yield from result(transaction.commit())
        finally:
            self._commit_s += monotonic() - began
        self._stored = True
        if not self._append.events:
            return Placed(head, head)
        yield stamp
        assert stamp.value is not None
        first = position_of_value(stamp.value + self._draft.first_place)
        return Placed(first, first + len(self._append.events) - 1)

    def _find_token(self, transaction: Transaction, version: int) -> Steps[Placed | None]:
        """Where an earlier try has stored the append, if one has."""
        token = transaction.get(self._draft.token)
        yield token
        if token.value is None:
            if self._first_version is not None and version - self._first_version >= LASTING_VERSIONS:
                raise StoreUnavailable(
                    "the append's outcome is unknown: it began over an hour ago, and another process may have cleared "
                    "its token; append again with the same event ids to find out"
                )
            return None
        self._stored = self._token_found = True
        if not self._append.events:
            head = yield from head_of(transaction, self._keys)
            return Placed(head, head)
        last = position_of_value(token.value)
        return Placed(last - len(self._append.events) + 1, last)
