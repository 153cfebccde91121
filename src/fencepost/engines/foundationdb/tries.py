"""One call's transactions, one after another, until one has succeeded or the call is given up.

`on_error` knows what is worth another try, waits a little and makes the transaction as new. It cannot revive a
transaction that has timed out; that one is replaced, a few times. An error that is not worth another try comes out as a
`StoreError`, never as a verdict. The error of a call that ran out of time says why: conflicts with concurrent appends,
a throttling cluster, or no answer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ...errors import StoreError, StoreUnavailable
from .binding import Connection, Transaction
from .waiting import Result, Steps

NOT_COMMITTED: Final = 1020
TIMED_OUT: Final = 1031
THROTTLED: Final = frozenset({1042, 1051, 1078, 1213, 1223, 1235})
TIMEOUTS: Final = 3  # transactions of one call that time out before the call is given up


class Tries:
    def __init__(self, connection: Connection, failed: Callable[[int, int], None] = lambda code, number: None) -> None:
        """`failed` is told the error code and the number of each try that failed."""
        self._connection = connection
        self._failed = failed
        self._timeouts = 0
        self.codes: list[int] = []
        self.transaction = connection.begin()

    @property
    def number(self) -> int:
        """Of the try, from 0. What was begun in an earlier one is void."""
        return len(self.codes)

    def recover(self, error: Exception) -> Steps[None]:
        """Get ready for another try, or raise what the call failed of."""
        code = getattr(error, "code", 0)
        self._failed(code, self.number)
        self.codes.append(code)
        if code != TIMED_OUT:
            future = self.transaction.on_error(error)
            yield future
            try:
                future.wait()
            except self._connection.error as final:
                if getattr(final, "code", 0) != TIMED_OUT:
                    raise _failure(final, self.codes) from error
                # The time was over while the client waited before the next try.
            else:
                return
        self._timeouts += 1
        if self._timeouts == TIMEOUTS:
            raise _failure(error, self.codes) from error
        self.transaction = self._connection.begin()

    def run(self, body: Callable[[Transaction], Steps[Result]]) -> Steps[Result]:
        """Do what may be done more than once, until it has succeeded."""
        while True:
            try:
                return (yield from body(self.transaction))
            except self._connection.error as error:
                yield from self.recover(error)


def _failure(error: Exception, codes: list[int]) -> StoreError:
    code = getattr(error, "code", 0)
    conflicts = codes.count(NOT_COMMITTED)
    throttled = sum(code in THROTTLED for code in codes)
    if 2 * conflicts > len(codes):
        return StoreUnavailable(
            f"contention: {conflicts} of {len(codes)} tries conflicted with concurrent appends that the conditions "
            "concern; let fewer callers append under the same conditions at once, or narrow the conditions"
        )
    if 2 * throttled > len(codes):
        return StoreUnavailable(
            f"FoundationDB throttled {throttled} of {len(codes)} tries ({error}): the cluster has too much work"
        )
    if code == TIMED_OUT:
        return StoreUnavailable(f"FoundationDB did not answer in time ({error}); is the cluster reachable?")
    kind = StoreUnavailable if 1_000 <= code < 2_000 else StoreError
    return kind(f"FoundationDB failed: {error}")
