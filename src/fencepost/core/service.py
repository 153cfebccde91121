"""The store beneath its two faces, `EventStore` and, with `async_service`, `AsyncEventStore`.

It puts the parts together: appends go through group commit to the engine, verdicts become results or errors, readings
begin, and one follower serves all subscriptions. Callers have checked the arguments. What the engine can do is decided
once, in the constructor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Final

from ..errors import CheckpointBehind, ConditionFailed, IdsOverlap, StoreClosed, StoreCorrupt, StoreError
from ..model import Placed, Query, RecordedAppend, SequencedEvent
from ..observing import Observation, has_observers, notify
from ..processes import Owner
from .batching import Batcher
from .engine import Capability, Engine, ReadStart, supported
from .judging import Append, Behind, Conflicting, Failed, Overlapping, Verdict
from .subscriptions import Feed, Follower

# A batch takes waiting appends up to this many events: enough to spread one sync over many callers, few enough that no
# caller waits long. An append of more events is a batch of its own.
BATCH_EVENTS: Final = 4_096


@dataclass(frozen=True, slots=True)
class BatchCommitted(Observation):
    """A batch of appends was committed. The observers of the engine are notified, in the thread that committed.

    `stored` counts the appends that wrote something. The others were refused, or were stored before.
    """

    appends: int
    events: int
    stored: int
    elapsed_s: float

    @classmethod
    def of(cls, appends: Sequence[Append], verdicts: Sequence[Verdict], began: float) -> BatchCommitted:
        stored = sum(isinstance(verdict, Placed) and not verdict.already for verdict in verdicts)
        return cls(len(appends), sum(len(append.events) for append in appends), stored, perf_counter() - began)


class GroupCommit(Batcher[Append, Verdict]):
    """Batches the appends of concurrent callers. `commit` stores one batch and returns its verdicts."""

    def __init__(self, commit: Callable[[Sequence[Append]], Sequence[Verdict]]) -> None:
        super().__init__(commit, most=BATCH_EVENTS, size=lambda append: len(append.events))


class StoreService:
    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.capabilities = supported(engine)
        self._capable: Any = engine  # `supported` has checked that it has the methods for its capabilities
        self._begins = Capability.BEGIN in self.capabilities
        self._group = GroupCommit(self._commit_batch) if Capability.GROUP_COMMIT in self.capabilities else None
        self._follower = Follower(engine)
        self._owner = Owner()
        self._closed = False

    def check_open(self) -> None:
        if self._closed:
            raise StoreClosed("the store is closed")
        self._owner.check()

    def append(self, append: Append) -> Placed:
        verdict = self.commit(append)
        return verdict if isinstance(verdict, Placed) else self.result(verdict)

    def commit(self, append: Append) -> Verdict:
        return self._commit_batch((append,))[0] if self._group is None else self._group.run(append)

    def commit_each(self, appends: Sequence[Append]) -> list[Verdict]:
        """Commit independent appends in order, in as few batches as possible."""
        return list(self._commit_batch(appends)) if self._group is None else self._group.run_all(appends)

    def _commit_batch(self, appends: Sequence[Append]) -> Sequence[Verdict]:
        if not has_observers():
            return self.engine.commit(appends)
        began = perf_counter()
        verdicts = self.engine.commit(appends)
        notify(self.engine, BatchCommitted.of(appends, verdicts, began))
        return verdicts

    def result(self, verdict: Verdict) -> Placed:
        """The result of an append, or the error that the verdict means."""
        if isinstance(verdict, Placed):
            return verdict
        if isinstance(verdict, Conflicting):
            raise ConditionFailed(verdict.condition, verdict.conflict or self._event_at(verdict.position))
        if isinstance(verdict, Overlapping):
            raise IdsOverlap(verdict.stored, verdict.position, verdict.missing)
        if isinstance(verdict, Failed):
            raise verdict.error
        assert isinstance(verdict, Behind)
        raise CheckpointBehind(verdict.name, verdict.position, verdict.current)

    def begin(self, query: Query, *, after: int, upto: int | None, limit: int | None, backwards: bool) -> ReadStart:
        if self._begins:
            start: ReadStart = self._capable.begin(query, after=after, upto=upto, limit=limit, backwards=backwards)
            return start
        last = self._bounded(upto)
        return ReadStart(last, (), self.engine.scan(query, after=after, upto=last, limit=limit, backwards=backwards))

    def feed(self, query: Query, after: int, on_ready: Callable[[], None]) -> Feed:
        self.check_open()
        return Feed(self.engine, self._follower, query, after, on_ready)

    def recorded(self, after: int, upto: int | None) -> Iterator[Sequence[RecordedAppend]]:
        """Pages of recorded appends."""
        if Capability.RECORD not in self.capabilities:
            raise StoreError("this engine does not record the conditions of appends")
        pages: Iterator[Sequence[RecordedAppend]] = self._capable.recorded(after=after, upto=self._bounded(upto))
        return pages

    def restore(self, events: Sequence[SequencedEvent], appends: Sequence[RecordedAppend]) -> None:
        if Capability.RESTORE not in self.capabilities:
            raise StoreError("this engine assigns positions itself, so it cannot restore another store's events")
        if events:
            self._capable.restore(events, appends)

    def close(self) -> None:
        """End all subscriptions and release the storage. Idempotent, and without effect in a forked child."""
        if not self._closed and self._owner.is_this_process:
            self._closed = True
            self._follower.close()
            self.engine.close()

    def _bounded(self, upto: int | None) -> int:
        head = self.engine.head()
        return head if upto is None else min(upto, head)

    def _event_at(self, position: int) -> SequencedEvent:
        for page in self.engine.scan(Query.all(), after=position - 1, upto=position):
            return page[0]
        raise StoreCorrupt(f"the event at position {position} is in the index but not in the log")
