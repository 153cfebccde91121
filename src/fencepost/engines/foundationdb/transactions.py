"""How a call is carried out: in its turn, in steps that wait for futures, in one transaction after another.

A computation is a generator that yields each future before it takes the future's result. `run` blocks the calling
thread until the future is ready. `run_async` awaits it: the client's network thread calls back, and the callback wakes
the event loop. So a thread waits for one call, and an event loop for any number of them. A range read is begun at once
and taken reply by reply, so several are begun before the first is waited for.

FoundationDB gives a transaction five seconds from its read version to its commit. If a process begins thousands at
once, none is done in time, and all of them begin again. So a call waits for its turn before it takes a read version
(tests/foundationdb/test_bursts.py checks this; docs/decisions/095 has the figures).

Threads wait through `fencepost.core.interrupts`, not through the binding: after a Ctrl-C in the binding's own `wait`,
the next wait of the same thread ends too early (tests/foundationdb/test_simulated_client.py shows it).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Generator
from contextlib import suppress
from math import inf
from threading import Lock
from time import monotonic
from typing import Any, Final, TypeAlias, TypeVar
from weakref import WeakKeyDictionary, ref

from ...core.interrupts import Wakeup
from ...errors import StoreError, StoreUnavailable
from .binding import Connection, Future, KeyValue, Reads, Reply, Transaction, code_of, text_of

TOO_OLD: Final = 1007
NOT_COMMITTED: Final = 1020
TIMED_OUT: Final = 1031
THROTTLED: Final = frozenset({1042, 1051, 1078, 1213, 1223})
TIMEOUTS: Final = 3  # transactions of one call that time out before the call is given up

Result = TypeVar("Result")
Steps: TypeAlias = Generator[Future, None, Result]


def result(future: Future) -> Steps[Any]:
    """Wait for one future, and return its result."""
    yield future
    return future.wait()


def run(steps: Steps[Result]) -> Result:
    """Carry out the steps in this thread."""
    try:
        while True:
            _block(next(steps))
    except StopIteration as ended:
        result: Result = ended.value
        return result
    except BaseException:
        steps.close()
        raise


async def run_async(steps: Steps[Result]) -> Result:
    """Carry out the steps on the running event loop."""
    try:
        while True:
            future = next(steps)
            if not future.is_ready():
                await _ready(future)
    except StopIteration as ended:
        result: Result = ended.value
        return result
    except BaseException:
        steps.close()
        raise


def _block(future: Future) -> None:
    if future.is_ready():
        return
    wakeup = Wakeup()
    future.on_ready(lambda _: wakeup.set())
    while not future.is_ready():
        wakeup.wait()  # it may end early, because a signal was handled


async def _ready(future: Future) -> None:
    loop = asyncio.get_running_loop()
    wakeups = _wakeups.get(loop)
    if wakeups is None:
        wakeups = _wakeups[loop] = LoopWakeups(loop)
    ready: asyncio.Future[None] = loop.create_future()
    future.on_ready(lambda _: wakeups.add(ready))
    await ready


class LoopWakeups:
    """Wakes tasks of an event loop from the network thread: one call of the loop for all futures that are ready."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = ref(loop)
        self._ready: deque[asyncio.Future[None]] = deque()
        self._called = False

    def add(self, ready: asyncio.Future[None]) -> None:
        self._ready.append(ready)
        loop = self._loop()
        if not self._called and loop is not None:
            self._called = True
            with suppress(RuntimeError):  # the loop was closed, and nothing waits any more
                loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        self._called = False  # before the queue is emptied, so that what is added from now on calls again
        while self._ready:
            ready = self._ready.popleft()
            if not ready.done():
                ready.set_result(None)


_wakeups: WeakKeyDictionary[asyncio.AbstractEventLoop, LoopWakeups] = WeakKeyDictionary()


class RangeRead:
    """A range read under way. If one of its replies fails, it fails as a whole, and the next try begins it again."""

    def __init__(self, reader: RangeReader, begin: bytes, end: bytes, limit: int = 0, reverse: bool = False) -> None:
        self.transaction = reader.transaction
        self._begin_range = reader.connection.begin_range
        self._reads = reader.reads  # the client cancels the read when its transaction is collected
        self._range = begin, end, limit, reverse
        self._reply = self._begin_range(self._reads, begin, end, limit, reverse)

    def rows(self) -> Steps[list[KeyValue]]:
        begin, end, limit, reverse = self._range
        found: list[KeyValue] = []
        while True:
            reply: Reply = yield from result(self._reply)
            rows, count, more = reply
            found += rows
            if not more or not count or limit == count:
                return found
            limit = limit - count if limit else 0
            begin, end = (begin, rows[-1].key) if reverse else (rows[-1].key + b"\0", end)
            self._reply = self._begin_range(self._reads, begin, end, limit, reverse)


class RangeReader:
    """Begins the range reads of a call, by snapshot, in whichever of its transactions is under way."""

    reads: Reads

    def __init__(self, connection: Connection, transaction: Transaction | None = None) -> None:
        self.connection = connection
        self.transaction = 0  # its number; `on_error` makes another transaction of the same object
        self.begun = 0
        if transaction is not None:
            self.use(transaction)

    def use(self, transaction: Transaction) -> None:
        """Read in this transaction from now on. The reads that are under way are void."""
        self.reads = transaction.snapshot
        self.transaction += 1

    def begin(self, begin: bytes, end: bytes, limit: int = 0, reverse: bool = False) -> RangeRead:
        """Begin to read the keys from `begin` up to, and without, `end`: at most `limit`, or all of them if it is 0."""
        self.begun += 1
        return RangeRead(self, begin, end, limit, reverse)


class Turns:
    """At most `limit` calls have a transaction under way. The others wait for their turn, in their order."""

    def __init__(self, limit: int) -> None:
        self._lock = Lock()
        self._free = limit
        self._waiting: deque[Turn] = deque()
        self._answered_at = 0.0

    def take(self, turn: Turn, *, again: bool) -> None:
        """Give the call its turn, or put it into the queue; in front of the others if it has had its turn before."""
        with self._lock:
            turn.held = self._free > 0
            if turn.held:
                self._free -= 1
            else:
                turn.waits = True
                (self._waiting.appendleft if again else self._waiting.append)(turn)

    def give_back(self, turn: Turn) -> None:
        """Pass the turn on to the next call, or leave the queue. Idempotent."""
        with self._lock:
            turn.waits = False
            if not turn.held:
                return
            turn.held = False
            following = self._next()
            if following is None:
                self._free += 1
                return
            following.waits, following.held = False, True
        following.call_back()

    def note_answer(self) -> None:
        self._answered_at = monotonic()

    def note_silence(self, since: float) -> None:
        """The cluster has not answered since then, for two timeouts: calls that have waited for longer fail, too.

        Otherwise each of them would try in its turn, for half a minute, and a long queue would take hours to fail.
        """
        with self._lock:
            if self._answered_at >= since:
                return
            failed = [turn for turn in self._waiting if turn.waits and turn.since <= since]
            for turn in failed:
                turn.waits, turn.failed = False, True
            self._waiting = deque(turn for turn in self._waiting if turn.waits)
        for turn in failed:
            turn.call_back()

    def _next(self) -> Turn | None:
        while self._waiting:
            turn = self._waiting.popleft()
            if turn.waits:
                return turn
        return None


class Turn:
    """The turn of one call: a future that is ready when the call may have a transaction under way."""

    def __init__(self, turns: Turns) -> None:
        self.turns = turns
        self.since = monotonic()
        self.held = self.waits = self.failed = False
        self._callback: Callable[[Any], None] | None = None

    def take(self, *, again: bool = False) -> Steps[None]:
        if again:
            self.since = inf  # an earlier try may have been stored, so this call fails of its own tries only
        self.turns.take(self, again=again)
        if not self.held:
            yield self
            self.wait()

    def give_back(self) -> None:
        self.turns.give_back(self)

    def is_ready(self) -> bool:
        return not self.waits

    def on_ready(self, callback: Callable[[Any], None]) -> None:
        self._callback = callback
        if not self.waits:  # its turn came meanwhile; to be called twice is harmless
            callback(self)

    def call_back(self) -> None:
        if self._callback is not None:
            self._callback(self)

    def wait(self) -> None:
        if self.failed:
            raise StoreUnavailable(
                "FoundationDB did not answer in time, and this call was still waiting for its turn, so nothing was "
                "changed; is the cluster reachable?"
            )

    def cancel(self) -> None:
        self.give_back()


def in_turn(turn: Turn, begin: Callable[[], Steps[Result]]) -> Steps[Result]:
    """Carry out the steps that `begin` makes, once it is their turn."""
    try:
        yield from turn.take()
        return (yield from begin())
    finally:
        turn.give_back()


class Tries:
    """One call's transactions, one after another, until one has succeeded or the call is given up.

    `on_error` knows what is worth another try, waits a little and makes the transaction as new. It cannot revive a
    transaction that has timed out; that one is replaced, a few times. An error that is not worth another try comes out
    as a `StoreError`, never as a verdict. While a call waits before another try it gives its turn to others, so that
    calls which conflict with each other do not hold up all the rest.
    """

    def __init__(
        self,
        connection: Connection,
        failed: Callable[[int, int], None] = lambda code, number: None,
        turn: Turn | None = None,
    ) -> None:
        """`failed` is told the error code and the number of each try that failed."""
        self._connection = connection
        self._failed = failed
        self._turn = turn
        self._timeouts = 0
        self._began = monotonic()
        self.codes: list[int] = []
        self.transaction = connection.begin()

    @property
    def number(self) -> int:
        """Of the try, from 0. What was begun in an earlier one is void."""
        return len(self.codes)

    def run(self, body: Callable[[Transaction], Steps[Result]]) -> Steps[Result]:
        """Do what may be done more than once, until it has succeeded."""
        while True:
            try:
                done = yield from body(self.transaction)
            except self._connection.error as error:
                yield from self.recover(error)
            else:
                if self._turn is not None:
                    self._turn.turns.note_answer()
                return done

    def recover(self, error: Exception) -> Steps[None]:
        """Get ready for another try, or raise what the call failed of."""
        code = code_of(error)
        self._failed(code, self.number)
        self.codes.append(code)
        if code != TIMED_OUT and (yield from self._wait_to_retry(error)):
            return
        self._timeouts += 1
        if self._timeouts == TIMEOUTS:
            if self._turn is not None and set(self.codes) == {TIMED_OUT}:
                self._turn.turns.note_silence(self._began + self._connection.timeout_s)
            raise _failure(error, self.codes, timed_out=True) from error
        self.transaction = self._connection.begin()

    def _wait_to_retry(self, error: Exception) -> Steps[bool]:
        """Whether the transaction can be used again; if not, its time was over meanwhile."""
        if self._turn is not None:
            self._turn.give_back()
        future = self.transaction.on_error(error)
        yield future
        try:
            future.wait()
        except self._connection.error as final:
            if code_of(final) != TIMED_OUT:
                raise _failure(final, self.codes, timed_out=False) from error
            recovered = False
        else:
            recovered = True
        if self._turn is not None:
            yield from self._turn.take(again=True)
        return recovered


def _failure(error: Exception, codes: list[int], *, timed_out: bool) -> StoreError:
    """What the call failed of, by what most of its tries failed of."""
    tries = len(codes)
    conflicts, too_old = codes.count(NOT_COMMITTED), codes.count(TOO_OLD)
    throttled = sum(code in THROTTLED for code in codes)
    if 2 * conflicts > tries:
        return StoreUnavailable(
            f"contention: {conflicts} of {tries} tries conflicted with concurrent appends that the conditions "
            "concern; let fewer callers append under the same conditions at once, or narrow the conditions"
        )
    if 2 * throttled > tries:
        return StoreUnavailable(
            f"FoundationDB throttled {throttled} of {tries} tries ({text_of(error)}): the cluster has too much work"
        )
    if 2 * too_old > tries or set(codes) == {TOO_OLD, TIMED_OUT}:
        return StoreUnavailable(
            f"{too_old} of {tries} tries took longer than the 5 s that FoundationDB gives a transaction: too many "
            "calls are under way, or a condition takes longer to judge than a transaction may last; let fewer calls "
            "run at once (the option max_transactions bounds those of one process), or narrow the condition"
        )
    if timed_out:
        return StoreUnavailable(
            f"FoundationDB did not answer in time ({text_of(error)}): the cluster is not reachable, or there are too "
            "many calls under way at once"
        )
    kind = StoreUnavailable if 1_000 <= code_of(error) < 2_000 else StoreError
    return kind(f"FoundationDB failed: {text_of(error)}")
