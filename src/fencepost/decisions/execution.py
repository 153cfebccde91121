"""One call of a decision, from its arguments to its last append, as a generator of steps.

An attempt reads the boundary and folds the projections among the arguments, calls the rule, and appends the events that
the rule returns, under the condition that no event of the boundary was stored after the read. On a conflict the call
waits for its turn (see `retry.py`), reads the new events, folds them on top of the previous state, and calls the rule
again. A projection may be an argument itself or an item of a list, tuple or dict.

Changes that a rule makes to its projections do not reach the next attempt: tests/decisions/test_retry.py.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any, Final, Generic, TypeVar, get_args, get_origin
from uuid import uuid4

import msgspec

from ..core.observers import Observation, has_observers
from ..errors import AppendRefused, ConditionFailed, StoreUnavailable
from ..model import AppendCondition, Event, Placed, Query, SequencedEvent
from .annotations import alternatives, evaluate
from .contexts import current_metadata
from .decision_input import DecisionInput, load, load_newer
from .errors import DefinitionError, RetriesExhausted
from .events import Declaration, encode
from .once import DIGEST
from .projections import Projection, query_of
from .retry import AT_ONCE, Turn, contended_bucket, in_turn
from .snapshots import Cached, UnsavedSnapshots
from .steps import AppendEvents, AwaitRule, Notify, ReadEvents, Sleep, Steps

if TYPE_CHECKING:
    from .decorator import Decision


T = TypeVar("T")

# Types of arguments that can be or contain a projection.
MAY_HOLD: Final = (Projection, list, tuple, dict)

UNCHECKED: Final = "fencepost: unchecked"

Unchecked = Annotated[T, UNCHECKED]
"""Annotates a projection that a decision reads without checking: its events do not conflict with the decision."""


class Parameters:
    """The parameters of a decision's function, and which argument belongs to which parameter."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.signature = inspect.signature(function)
        parameters = self.signature.parameters
        for name, each in parameters.items():
            if name in ("once", "checkpoint"):
                problem = f"the keyword {name}= of a call belongs to the decision and never reaches the rule"
                raise DefinitionError(f"{function.__qualname__}: {problem}; rename the parameter {name!r}")
            if each.kind is each.VAR_KEYWORD:
                problem = f"**{name} would hide whether once= and checkpoint= belong to the rule or to the decision"
                raise DefinitionError(f"{function.__qualname__}: {problem}; name the parameters one by one")
        self.defaults = {name: each.default for name, each in parameters.items()}
        self._places = [name for name, each in parameters.items() if each.kind <= each.VAR_POSITIONAL]
        self._index = {name: index for index, name in enumerate(self._places)}

    def at(self, index: int) -> str:
        """The parameter of a positional argument. All arguments in *args belong to the last parameter."""
        return self._places[min(index, len(self._places) - 1)] if self._places else ""

    def value(self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        if name in kwargs:
            return kwargs[name]
        index = self._index.get(name, len(args))
        return args[index] if index < len(args) else self.defaults[name]


class Arguments:
    """The arguments of a call and the projections in them. `checked` are the projections not annotated `Unchecked`."""

    __slots__ = ("_args", "_kwargs", "_nested", "_places", "checked", "projections")

    def __init__(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], parameters: Parameters, unchecked: set[str]
    ) -> None:
        self._args = args
        self._kwargs = kwargs
        self._nested = False
        self._places: list[int | str] = []
        self.projections: list[Projection] = []
        self.checked: list[Projection] = []
        for index, value in enumerate(args):
            if _may_hold(value):
                self._gather(value, index, not unchecked or parameters.at(index) not in unchecked)
        for name, value in kwargs.items():
            if _may_hold(value):
                self._gather(value, name, name not in unchecked)

    def _gather(self, value: Any, place: int | str, checked: bool) -> None:
        if isinstance(value, Projection):
            self._places.append(place)
            self.projections.append(value)
            if checked:
                self.checked.append(value)
            return
        count = len(self.projections)
        for each in value.values() if isinstance(value, dict) else value:
            if _may_hold(each):
                self._gather(each, place, checked)
        self._nested = self._nested or len(self.projections) > count

    def replace_projections(self, projections: Sequence[Projection]) -> tuple[Sequence[Any], dict[str, Any]]:
        """The arguments with each template replaced by the corresponding projection."""
        if self._nested:
            twins = {id(template): twin for template, twin in zip(self.projections, projections, strict=True)}
            return _replace(self._args, twins), _replace(self._kwargs, twins)
        args: list[Any] = list(self._args)
        kwargs = dict(self._kwargs)
        for place, projection in zip(self._places, projections, strict=True):
            if isinstance(place, int):
                args[place] = projection
            else:
                kwargs[place] = projection
        return args, kwargs


def _may_hold(value: Any) -> bool:
    """Whether a value can be or contain a projection. Cached by class, because this runs for every argument."""
    kind = type(value)
    known = _HOLDING.get(kind)
    if known is None:
        known = _HOLDING[kind] = issubclass(kind, MAY_HOLD)
    return known


_HOLDING: Final[dict[Any, bool]] = {}


def _replace(value: Any, twins: Mapping[int, Projection]) -> Any:
    if isinstance(value, Projection):
        return twins[id(value)]
    if type(value) is dict:
        return {name: _replace(each, twins) for name, each in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_replace(each, twins) for each in value)
    return value


def hints_of(function: Callable[..., Any], visible: Mapping[str, Any]) -> dict[str, Any]:
    """The annotations that can be evaluated. Others, such as names imported only for type checking, are left out."""
    hints = {}
    for name, annotation in function.__annotations__.items():
        try:
            hints[name] = evaluate(annotation, visible, function.__qualname__)
        except DefinitionError:
            # Safe: at worst an `Unchecked` projection is checked. A checked one cannot become unchecked.
            continue
    return hints


def is_unchecked(hint: object) -> bool:
    if get_origin(hint) is Annotated:
        return UNCHECKED in get_args(hint)[1:]
    return any(map(is_unchecked, get_args(hint)))


def declarations(hint: object) -> Iterable[Declaration[Any]]:
    """The event classes in a return annotation."""
    for member in alternatives(hint):
        if isinstance(member, type) and hasattr(member, "__event__"):
            yield member.__event__
        for argument in get_args(member):
            yield from declarations(argument)


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
        decision = self._decision
        self._once = decision.once_for(args, kwargs)
        self._arguments = Arguments(args, kwargs, decision.parameters, decision.unchecked)
        templates, checked = self._arguments.projections, self._arguments.checked
        self._boundary = query_of(templates) if templates else None
        if len(checked) == len(templates):
            self._condition = self._boundary
        else:
            self._condition = query_of(checked) if checked else None

    def _attempts(self) -> Steps[Decided[Any]]:
        known = yield from load(self._arguments.projections, self._boundary, self._once, self._cached)
        self._unsaved.update(known.unsaved)
        try:
            while True:
                self._attempt += 1
                outcome = yield from self._decide(known)
                if isinstance(outcome, Decided):
                    return outcome
                yield from self._report_conflict(outcome)
                yield from self._wait(outcome)
                assert self._boundary is not None
                known = yield from load_newer(known, self._boundary, self._once)
        finally:
            if self._turn is not None:
                self._turn.leave()

    def _decide(self, known: DecisionInput) -> Steps[Decided[Any] | ConditionFailed]:
        """Make one attempt. Returns its result, or the conflict that refused its append. Raises the rule's errors."""
        if known.earlier:
            return self._result_of(known.earlier)
        args, kwargs = self._arguments.replace_projections(known.projections)
        if self._turn is None and not self._decision.is_async:
            made = self._decision.function(*args, **kwargs)
        else:
            made = yield from self._call_rule(args, kwargs)
        events = (made,) if hasattr(made, "__event__") else _as_events(made, self._name)
        if not events:
            return Decided((), known.head, known.head)
        append = self._append(events, known.head)
        try:
            placed = (yield from self._append_with_retry(append)) if self._retry.unavailable else (yield append)
        except ConditionFailed as conflict:
            return conflict
        except AppendRefused:  # another call may have stored events with these ids since the read: its result counts
            earlier = () if self._once is None else (yield ReadEvents(self._once.query))[0]
            if not earlier:
                raise
            return self._result_of(earlier)
        if placed.already:
            return self._result_of((yield from self._read_earlier(append, placed)))
        return Decided(events, placed.first, placed.last)

    def _call_rule(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Steps[Any]:
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
            stored = [self._with_id_and_digest(event) for event in stored]
        condition = AppendCondition(self._condition, head) if self._condition is not None else None
        return AppendEvents(stored, condition, once.query if once is not None else None, self._checkpoint)

    def _with_id_and_digest(self, event: Event) -> Event:
        """Add an id to the event if the append may be sent again, and the digest of the command to its metadata."""
        id, metadata = event.id, event.metadata
        if id is None and self._retry.unavailable:
            id = uuid4()
        if self._once is not None and self._once.digest is not None:
            metadata = {**metadata, DIGEST: self._once.digest}
        return Event(event.type, data=event.data, tags=event.tags, id=id, metadata=metadata)

    def _append_with_retry(self, append: AppendEvents) -> Steps[Placed]:
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

    def _report_conflict(self, conflict: ConditionFailed) -> Steps[None]:
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

    def _read_earlier(self, append: AppendEvents, placed: Placed) -> Steps[Sequence[SequencedEvent]]:
        """Read the events that made the append a repetition: those that `once` finds, or else those with its ids."""
        if self._once is not None:
            earlier, _ = yield ReadEvents(self._once.query)
            if earlier:
                return earlier  # type: ignore[no-any-return]
        ids = {event.id for event in append.events}
        around, _ = yield ReadEvents(Query.all(), placed.first - 1, placed.last)
        return [event for event in around if event.id in ids]

    def _result_of(self, stored: Sequence[SequencedEvent]) -> Decided[Any]:
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
