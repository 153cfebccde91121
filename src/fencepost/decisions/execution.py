"""One call of a decision, from its first read to its last append, as a generator of steps.

An attempt reads the boundary and folds the projections, calls the rule, and appends the events that the rule returns,
under the condition that no event of the boundary was stored after the read. On a conflict the call waits for its turn
(see `retry_queues.py`), reads the new events, folds them on top of the previous state, and calls the rule again.

Changes that a rule makes to its projections do not reach the next attempt: tests/decisions/test_retry.py.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar
from uuid import uuid4

import msgspec

from ..errors import AppendRefused, ConditionFailed, InvalidInput, StoreUnavailable
from ..model import AppendCondition, Event, Placed, Query, SequencedEvent
from ..observing import Observation, has_observers
from .arguments import Arguments, are_values
from .contexts import current_metadata
from .errors import DefinitionError, RetriesExhausted
from .events import Declaration, encode
from .idempotency import DIGEST
from .loading import DecisionInput, load, load_newer
from .projections import query_of
from .retry import AT_ONCE
from .retry_queues import Turn, contended_bucket, in_turn
from .snapshots import Cached, UnsavedSnapshots
from .steps import AppendEvents, AwaitRule, Notify, ReadEvents, Sleep, Steps

if TYPE_CHECKING:
    from .decorator import Decision

E_co = TypeVar("E_co", covariant=True)

log: Final = logging.getLogger("fencepost.decisions")


class Decided(msgspec.Struct, Generic[E_co], frozen=True):
    """The result of a decision: its events, and their first and last position.

    If `already` is True, an earlier call took the decision: these are the events of that call, and this call wrote
    nothing. If the rule returned no event, `events` is empty and `position` is the head that the decision read.
    """

    events: tuple[E_co, ...]
    first: int
    position: int
    already: bool = False

    @property
    def event(self) -> E_co:
        """The only event. Raises ValueError if the decision has no event or several."""
        if len(self.events) != 1:
            found = f"{len(self.events)} events" if self.events else "no event"
            raise ValueError(f".event: the decision has {found}, not exactly 1; use .events")
        return self.events[0]


@dataclass(frozen=True, slots=True)
class ConflictMet(Observation):
    """The append of an attempt was refused because of an event that was stored after the attempt's read.

    `attempt` counts from 1. `conflict` is the event, `boundary` the query that it matches, and `after` the position up
    to which the attempt had read. `elapsed_s` is the time since the call.
    """

    decision: str
    attempt: int
    boundary: Query
    after: int
    conflict: SequencedEvent
    elapsed_s: float


@dataclass(frozen=True, slots=True)
class DecisionEnded(Observation):
    """A call of a decision has ended, after `attempts` and `elapsed_s`.

    It returned `decided`, or it raised `error`: an exception of its rule, `RetriesExhausted`, or an error of the store.
    """

    decision: str
    attempts: int
    elapsed_s: float
    decided: Decided[object] | None = None
    error: Exception | None = None

    @property
    def exhausted(self) -> bool:
        """Whether the call ended because every attempt met a conflict."""
        return isinstance(self.error, RetriesExhausted)


class Execution:
    """One call of a decision: its arguments, the number of the current attempt, and its turn in a retry queue."""

    def __init__(
        self, decision: Decision[..., Any], cached: Cached[Any] | None, checkpoint: tuple[str, int] | None = None
    ) -> None:
        self._decision = decision
        self._name = decision.name
        self._retry = decision.retry
        self._cached = cached
        self._checkpoint = checkpoint
        self._attempt = 0
        self._turn: Turn | None = None
        self._unsaved: UnsavedSnapshots = {}

    def steps(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Steps[Decided[Any]]:
        """Make all attempts, then notify observers and store snapshots."""
        self._began = monotonic()
        try:
            self._begin(args, kwargs)
            decided = yield from self._attempts()
            if self._checkpoint is not None and (decided.already or not decided.events):
                yield AppendEvents([], checkpoint=self._checkpoint)  # no append has carried it
        except Exception as error:
            yield from self._end(None, error)
            raise
        yield from self._end(decided, None)
        return decided

    def _end(self, decided: Decided[Any] | None, error: Exception | None) -> Steps[None]:
        """Notify observers, then store the snapshots.

        Snapshots come last: in the same store they may match the boundary and would conflict with the decision.
        """
        if has_observers():
            yield Notify(DecisionEnded(self._name, self._attempt, self._elapsed_s(), decided, error))
        if self._unsaved and self._cached is not None:
            yield from self._cached.keep(self._unsaved)

    def _begin(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        decision, cached = self._decision, self._cached
        self._once = decision.once_for(args, kwargs)
        self._arguments = Arguments(args, kwargs, decision.parameters, decision.unchecked)
        templates, checked = self._arguments.projections, self._arguments.checked
        self._boundary = query_of(templates) if templates else None
        if len(checked) == len(templates):
            self._condition = self._boundary
        else:
            self._condition = query_of(checked) if checked else None
        # A pure rule can run before the idempotency lookup, because running it twice has no side effects.
        self._search_first = decision.is_async or not (cached is None or are_values(args, kwargs))

    def _attempts(self) -> Steps[Decided[Any]]:
        if self._boundary is None:
            known = DecisionInput([], 0, searched=False)
        else:
            templates = self._arguments.projections
            known = yield from load(templates, self._boundary, self._once, self._cached, self._search_first)
            self._unsaved.update(known.unsaved)
        try:
            while True:
                self._attempt += 1
                outcome = yield from self._decide(known)
                if isinstance(outcome, Decided):
                    return outcome
                yield from self._note(outcome)
                yield from self._wait(outcome)
                assert self._boundary is not None
                known = yield from load_newer(known, self._boundary, self._once)
        finally:
            if self._turn is not None:
                self._turn.leave()

    def _decide(self, known: DecisionInput) -> Steps[Decided[Any] | ConditionFailed]:
        """Make one attempt. Returns its result, or the conflict that refused its append. Raises the rule's errors."""
        if known.earlier:
            return self._earlier(known.earlier)
        args, kwargs = self._arguments.replaced(known.projections)
        try:
            if self._turn is None and not self._decision.is_async:
                made = self._decision.function(*args, **kwargs)
            else:
                made = yield from self._asked(args, kwargs)
            events = (made,) if hasattr(made, "__event__") else _as_events(made, self._name)
            append = self._append(events, known.head) if events else None
        except Exception:
            earlier = yield from self._overlooked(known)
            if not earlier:
                raise
            return self._earlier(earlier)
        if append is None:
            earlier = yield from self._overlooked(known)
            return self._earlier(earlier) if earlier else Decided((), known.head, known.head)
        try:
            placed = (yield from self._insisted(append)) if self._retry.unavailable else (yield append)
        except ConditionFailed as conflict:
            return conflict
        except (InvalidInput, AppendRefused):  # an earlier call may have succeeded with other events: its result counts
            earlier = yield from self._overlooked(known)
            if not earlier:
                raise
            return self._earlier(earlier)
        if placed.already:
            return self._earlier((yield from self._stored_before(append, placed)))
        return Decided(events, placed.first, placed.last)

    def _asked(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Steps[Any]:
        """Call the rule, and await it if it is an `async def`."""
        with in_turn(self._turn):
            made = self._decision.function(*args, **kwargs)
            return (yield AwaitRule(made)) if self._decision.is_async else made

    def _append(self, events: Sequence[Any], head: int) -> AppendEvents:
        metadata, once = current_metadata(), self._once
        if once is None:
            stored = [encode(event, metadata) for event in events]
        else:
            stored = [encode(event, metadata, once.tag) for event in events]
            once.check(self._name, stored)
        if self._retry.unavailable or (once is not None and once.digest is not None):
            stored = [self._sealed(event) for event in stored]
        condition = AppendCondition(self._condition, head) if self._condition is not None else None
        return AppendEvents(stored, condition, once.query if once is not None else None, self._checkpoint)

    def _sealed(self, event: Event) -> Event:
        """Add an id to the event if the append may be sent again, and the digest of the command to its metadata."""
        id, metadata = event.id, event.metadata
        if id is None and self._retry.unavailable:
            id = uuid4()
        if self._once is not None and self._once.digest is not None:
            metadata = {**metadata, DIGEST: self._once.digest}
        return Event(event.type, data=event.data, tags=event.tags, id=id, metadata=metadata)

    def _insisted(self, append: AppendEvents) -> Steps[Placed]:
        """Append, and send the same append again while the store is unavailable and attempts are left."""
        resent = False
        while True:
            try:
                placed = yield append
            except StoreUnavailable:
                if self._retry.is_over(self._attempt, self._elapsed_s()):
                    raise
                yield Sleep(self._retry.wait_s(self._attempt))
                self._attempt += 1
                resent = True
                continue
            if placed.already and resent:
                # Either an earlier attempt was stored and its reply lost, or `once` found another call's events.
                events, _ = yield ReadEvents(Query.all(), placed.first - 1, placed.first)
                if events[0].id == append.events[0].id:
                    placed = Placed(placed.first, placed.last)
            return placed  # type: ignore[no-any-return]

    def _note(self, conflict: ConditionFailed) -> Steps[None]:
        """Log the conflict and notify observers. Raises `RetriesExhausted` if this was the last attempt."""
        attempt, elapsed_s, event = self._attempt, self._elapsed_s(), conflict.conflict
        if log.isEnabledFor(logging.DEBUG):
            met = "%s: attempt %d met a conflict with %s at position %d, after %.1f ms"
            log.debug(met, self._name, attempt, event.type, event.position, elapsed_s * 1000)
        if has_observers():
            condition = conflict.condition
            query, after = condition.fail_if_events_match, condition.after
            yield Notify(ConflictMet(self._name, attempt, query, after, event, elapsed_s))
        if self._retry.is_over(attempt, elapsed_s):
            exhausted = RetriesExhausted(self._name, attempt, elapsed_s, conflict.condition, event)
            log.warning("%s", exhausted)
            raise exhausted from conflict

    def _wait(self, conflict: ConditionFailed) -> Steps[None]:
        """Wait for a turn in the retry queue of the conflict and, from the third conflict on, for a random time."""
        left_s = max(0.0, self._retry.deadline_s - self._elapsed_s())
        bucket = contended_bucket(conflict.condition.fail_if_events_match, conflict.conflict)
        if self._turn is None or not self._turn.held or self._turn.bucket != bucket:
            if self._turn is not None:
                self._turn.leave()
            # If the turn does not come before the deadline, the last attempt is made without a turn.
            self._turn = Turn(bucket, left_s)
            yield self._turn
            left_s = max(0.0, self._retry.deadline_s - self._elapsed_s())
        if self._attempt >= AT_ONCE:
            yield Sleep(min(left_s, self._retry.wait_s(self._attempt - AT_ONCE + 1)))

    def _overlooked(self, known: DecisionInput) -> Steps[Sequence[SequencedEvent]]:
        """Look up `once`, if that was not done before the rule was called."""
        if self._once is None or known.searched:
            return ()
        earlier, _ = yield ReadEvents(self._once.query)
        return earlier  # type: ignore[no-any-return]

    def _stored_before(self, append: AppendEvents, placed: Placed) -> Steps[Sequence[SequencedEvent]]:
        """Read the events that made the append a repetition: those that `once` finds, or else those with its ids."""
        if self._once is not None:
            earlier, _ = yield ReadEvents(self._once.query)
            if earlier:
                return earlier  # type: ignore[no-any-return]
        ids = {event.id for event in append.events}
        around, _ = yield ReadEvents(Query.all(), placed.first - 1, placed.last)
        return [event for event in around if event.id in ids]

    def _earlier(self, stored: Sequence[SequencedEvent]) -> Decided[Any]:
        """The result of the earlier call, decoded from its events; `RequestMismatch` if it was another request."""
        once = self._once
        if once is not None:
            once.check_earlier(self._name, stored)
        # If a type has several classes, the newest version decodes it: during a rolling deployment this rule may
        # still return the old class while the earlier call ran in a process that wrote the new one.
        known: list[Declaration[Any] | None] = [
            None if once is None else once.declaration,
            *self._decision.returned.values(),
        ]
        for template in self._arguments.projections:
            known += [bound.declaration for bound in template.definition.by_type.values()]
        declared: dict[str, Declaration[Any]] = {}
        for each in known:
            if each is not None and (each.type not in declared or declared[each.type].version < each.version):
                declared[each.type] = each
        events = [declared[event.type].decode(event) if event.type in declared else event for event in stored]
        return Decided(tuple(events), stored[0].position, stored[-1].position, already=True)

    def _elapsed_s(self) -> float:
        return monotonic() - self._began


def _as_events(made: Any, name: str) -> tuple[Any, ...]:
    if made is None:
        return ()
    if isinstance(made, Event):
        return (made,)
    if isinstance(made, (list, tuple)) or inspect.isgenerator(made):
        return tuple(made)
    raise DefinitionError(
        f"{name}: a decision must return an event, a list of events or None, not {type(made).__name__}"
    )
