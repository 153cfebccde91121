"""Decisions: read, decide, append, retry, written as the rule alone.

    @decision
    def withdraw(balance: Balance, *, withdrawal_id: str, amount: int) -> WithdrawalMade:
        if balance.amount < amount:
            raise InsufficientFunds(balance.amount)
        return WithdrawalMade(balance.wallet_id, withdrawal_id, amount)

    withdraw(store, Balance("w1"), withdrawal_id="x", amount=50)

The function is given its projections as of one head, and what it returns is appended under the
condition that no event of their boundary came after that head. On a conflict all of it happens
again, with fresh projections: a decision is only ever made on what is still true when it is
stored. Projections annotated `Unchecked[...]` are read but not checked.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import update_wrapper
from types import NoneType
from typing import Annotated, Any, Final, Generic, ParamSpec, TypeVar, get_args, get_origin, overload
from uuid import UUID, uuid4

import msgspec

from ..aio import AsyncEventStore
from ..errors import AppendRefused, ConditionFailed, InvalidInput, StoreUnavailable
from ..model import AppendCondition, Event, Placed, Query, SequencedEvent
from ..store import EventStore
from .boundary import query_of
from .contexts import current_metadata
from .errors import DefinitionError, RetriesExhausted
from .events import Declaration, encode
from .hints import alternatives, evaluated, names_around
from .idempotency import Once, Onceness, once_of
from .projections import Projection
from .reading import Known, know
from .retry import Retry
from .snapshots import Cached, Unkept
from .steps import Append, Await, Course, Read, Sleep, drive, drive_async

P = ParamSpec("P")
T = TypeVar("T")

# What may be a projection, or may hold some.
MAY_HOLD: Final = (Projection, list, tuple, dict)

# What a rule cannot act with: given nothing else, it decides and does nothing besides.
VALUES: Final = (Projection, str, int, float, bytes, NoneType, Decimal, UUID, date, time, timedelta, Enum)

UNCHECKED: Final = "fencepost: unchecked"

Unchecked = Annotated[T, UNCHECKED]
"""A projection that informs a decision, but whose events do not conflict with it."""


class Decided(msgspec.Struct, frozen=True):
    """What came of a decision: its events, and where they are.

    `already` says that it was taken before: these are the events of the first time, and nothing
    was written now. A decision for nothing has no events; `position` is then the head it saw.
    """

    events: tuple[Any, ...]
    first: int
    position: int
    already: bool = False

    @property
    def event(self) -> Any:
        """The only event."""
        (only,) = self.events
        return only


class Decision(Generic[P]):
    """A function that decides, callable with a store. Made by `decision`."""

    def __init__(
        self,
        function: Callable[P, Any],
        once: Callable[..., Onceness] | None,
        retry: Retry,
        visible: Mapping[str, Any],
    ) -> None:
        update_wrapper(self, function)
        self.function = function
        self.retry = retry
        self._visible = visible
        self.name = function.__qualname__
        self._is_async = inspect.iscoroutinefunction(function)
        self._parameters = Parameters(function)
        hints = _hints(function, visible)
        self._unchecked = {name for name, hint in hints.items() if _is_unchecked(hint)}
        self._returned = {each.type: each for each in _declarations(hints.get("return"))}
        self._once = once
        self._once_names = () if once is None else tuple(inspect.signature(once).parameters)
        unknown = set(self._once_names) - self._parameters.defaults.keys()
        if unknown:
            raise DefinitionError(f"{self.name}: once asks for {sorted(unknown)}, which are none of its parameters")

    @overload
    def __call__(self, store: EventStore | Cached[EventStore], /, *args: P.args, **kwargs: P.kwargs) -> Decided: ...
    @overload
    def __call__(
        self, store: AsyncEventStore | Cached[AsyncEventStore], /, *args: P.args, **kwargs: P.kwargs
    ) -> Coroutine[Any, Any, Decided]: ...
    def __call__(self, store: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Take the decision on the store; `once=` says how to know that it was taken before."""
        cached = None
        if isinstance(store, Cached):
            cached, store = store, store.store
        course = self.course(args, kwargs, cached)
        return drive_async(store, course) if isinstance(store, AsyncEventStore) else drive(store, course)

    def retrying(self, retry: Retry) -> Decision[P]:
        """The same rule, retried in another way."""
        return Decision(self.function, self._once, retry, self._visible)

    def course(self, args: tuple[Any, ...], kwargs: dict[str, Any], cached: Cached[Any] | None) -> Course[Decided]:
        """The decision from the first read to the last append, as steps to be taken by a driver.

        Snapshots are kept when it is over: in the same store they may be in its boundary, and conflict with it.
        """
        if cached is None:
            return (yield from self._course(args, kwargs, None, {}))
        unkept: Unkept = {}
        try:
            decided = yield from self._course(args, kwargs, cached, unkept)
        except Exception:
            yield from cached.keep(unkept)
            raise
        yield from cached.keep(unkept)
        return decided

    def _course(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], cached: Cached[Any] | None, unkept: Unkept
    ) -> Course[Decided]:
        given = kwargs.pop("once", None)
        once = once_of(given) if given is not None else self._once_for(args, kwargs)
        arguments = Arguments(args, kwargs, self._parameters, self._unchecked)
        templates = arguments.projections
        boundary = query_of(templates) if templates else None
        checked = arguments.checked
        condition = boundary if len(checked) == len(templates) else query_of(checked) if checked else None
        # A rule that can do nothing but decide may be asked before it is known that it was asked before.
        search_first = self._is_async or not (cached is None or _are_values(args, kwargs))
        attempt = 0
        while True:
            attempt += 1
            if boundary is not None:
                known = yield from know(templates, boundary, once, cached, search_first)
                unkept.update(known.unkept)
                if known.earlier:
                    return self._earlier(known.earlier, once, templates)
                given_args, given_kwargs = arguments.replaced(known.projections)
            else:
                known, given_args, given_kwargs = Known([], 0, searched=False), args, kwargs
            try:
                made = self.function(*given_args, **given_kwargs)
                if self._is_async:
                    made = yield Await(made)
                events = (made,) if hasattr(made, "__event__") else _as_events(made, self.name)
                append = self._append(events, condition, known.head, once) if events else None
            except Exception:
                earlier = yield from _overlooked(known, once)
                if not earlier:
                    raise
                return self._earlier(earlier, once, templates)
            if append is None:
                earlier = yield from _overlooked(known, once)
                return self._earlier(earlier, once, templates) if earlier else Decided((), known.head, known.head)
            try:
                if self.retry.unavailable:
                    attempt, placed = yield from self._insisted(append, attempt)
                else:
                    placed = yield append
            except ConditionFailed as conflict:
                if attempt >= self.retry.attempts:
                    raise RetriesExhausted.of(self.name, attempt, conflict) from conflict
                yield Sleep(self.retry.wait_s(attempt))
                continue
            except (InvalidInput, AppendRefused):  # for what the events are, whatever was decided the first time
                earlier = yield from _overlooked(known, once)
                if not earlier:
                    raise
                return self._earlier(earlier, once, templates)
            if placed.already:
                earlier = yield from _stored_before(append, placed, once)
                return self._earlier(earlier, once, templates)
            return Decided(events, placed.first, placed.last)

    def _append(self, events: Sequence[Any], checked: Query | None, head: int, once: Once | None) -> Append:
        metadata = current_metadata()
        if once is None:
            stored = [encode(event, metadata) for event in events]
        else:
            stored = [encode(event, metadata, once.mark) for event in events]
            once.check(self.name, stored)
        if self.retry.unavailable:
            stored = [
                Event(each.type, data=each.data, tags=each.tags, id=each.id or uuid4(), metadata=each.metadata)
                for each in stored
            ]
        condition = AppendCondition(checked, head) if checked is not None else None
        return Append(stored, condition, once.query if once is not None else None)

    def _insisted(self, append: Append, attempt: int) -> Course[tuple[int, Placed]]:
        """Append, and append again as long as the store is out of reach and attempts are left."""
        resent = False
        while True:
            try:
                placed = yield append
            except StoreUnavailable:
                if attempt >= self.retry.attempts:
                    raise
                yield Sleep(self.retry.wait_s(attempt))
                attempt, resent = attempt + 1, True
                continue
            if placed.already and resent:
                # Either an earlier attempt had arrived after all, or `once` found somebody else's.
                events, _ = yield Read(Query.all(), placed.first - 1, placed.first)
                if events[0].id == append.events[0].id:
                    placed = Placed(placed.first, placed.last)
            return attempt, placed

    def _once_for(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Once | None:
        if self._once is None:
            return None
        names = self._once_names
        try:
            values = dict(zip(names, map(kwargs.__getitem__, names), strict=True))
        except KeyError:  # given by position, or left to its default
            values = {name: self._parameters.value(name, args, kwargs) for name in self._once_names}
        return once_of(self._once(**values))

    def _earlier(self, stored: Sequence[SequencedEvent], once: Once | None, templates: Sequence[Projection]) -> Decided:
        """The result of the first time, read from what it wrote."""
        declared: dict[str, Declaration[Any]] = dict(self._returned)
        for template in templates:
            for type, bound in template.definition.by_type.items():
                if bound.declaration is not None:
                    declared.setdefault(type, bound.declaration)
        if once is not None and once.declaration is not None:
            declared[once.declaration.type] = once.declaration
        events = [declared[each.type].decode(each) if each.type in declared else each for each in stored]
        return Decided(tuple(events), stored[0].position, stored[-1].position, already=True)


@overload
def decision(function: Callable[P, Any], /) -> Decision[P]: ...
@overload
def decision(
    *, once: Callable[..., Onceness] | None = None, retry: Retry = ...
) -> Callable[[Callable[P, Any]], Decision[P]]: ...
def decision(
    function: Any = None,
    /,
    *,
    once: Callable[..., Onceness] | None = None,
    retry: Retry = Retry(),  # noqa: B008
) -> Any:
    """Make a decision of a function from projections and arguments to events.

    The function returns an event, several, or None, or raises. `once` is a function of some of
    its parameters, by name, that says how to know that the decision was taken before:
    `once=lambda withdrawal_id: WithdrawalMade.having(withdrawal_id=withdrawal_id)`. A call may give
    `once=` directly instead: the same, or a command id.
    """
    visible = names_around(1)
    if function is None:
        return lambda given: Decision(given, once, retry, visible)
    return Decision(function, once, retry, visible)


class Parameters:
    """The names of a decision's parameters, and which argument belongs to which."""

    def __init__(self, function: Callable[..., Any]) -> None:
        parameters = inspect.signature(function).parameters
        if "once" in parameters:
            raise DefinitionError(f"{function.__qualname__}: the parameter 'once' is taken; name it otherwise")
        self.defaults = {name: each.default for name, each in parameters.items()}
        self._places = [name for name, each in parameters.items() if each.kind <= each.VAR_POSITIONAL]

    def at(self, index: int) -> str:
        """The parameter of a positional argument; all that go into *args have the last one."""
        return self._places[min(index, len(self._places) - 1)] if self._places else ""

    def value(self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        if name in kwargs:
            return kwargs[name]
        index = self._places.index(name) if name in self._places else len(args)
        return args[index] if index < len(args) else self.defaults[name]


class Arguments:
    """The arguments of a call, and the projections among them: by themselves or in a list, tuple or dict."""

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

    def replaced(self, projections: Sequence[Projection]) -> tuple[Sequence[Any], dict[str, Any]]:
        """The arguments with the given projections in the places of the templates."""
        if self._nested:
            twins = {id(template): twin for template, twin in zip(self.projections, projections, strict=True)}
            return _replaced(self._args, twins), _replaced(self._kwargs, twins)
        args: list[Any] = list(self._args)
        kwargs = dict(self._kwargs)
        for place, projection in zip(self._places, projections, strict=True):
            if isinstance(place, int):
                args[place] = projection
            else:
                kwargs[place] = projection
        return args, kwargs


def _may_hold(value: Any) -> bool:
    """Remembered by its class, since it is asked of every argument."""
    kind = type(value)
    known = _HOLDING.get(kind)
    if known is None:
        known = _HOLDING[kind] = issubclass(kind, MAY_HOLD)
    return known


_HOLDING: Final[dict[Any, bool]] = {}


def _replaced(value: Any, twins: Mapping[int, Projection]) -> Any:
    if isinstance(value, Projection):
        return twins[id(value)]
    if type(value) is dict:
        return {name: _replaced(each, twins) for name, each in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_replaced(each, twins) for each in value)
    return value


def _are_values(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    return all(isinstance(each, VALUES) for each in (*args, *kwargs.values()))


def _overlooked(known: Known, once: Once | None) -> Course[list[SequencedEvent]]:
    """The events of an earlier time, where that was not looked for before the rule was asked."""
    if once is None or known.searched:
        return []
    earlier, _ = yield Read(once.query)
    return earlier  # type: ignore[no-any-return]


def _stored_before(append: Append, placed: Placed, once: Once | None) -> Course[list[SequencedEvent]]:
    """The events that the append has found stored: by what `once` looks for, or else by their ids."""
    if once is not None:
        earlier, _ = yield Read(once.query)
        if earlier:
            return earlier  # type: ignore[no-any-return]
    ids = {event.id for event in append.events}
    around, _ = yield Read(Query.all(), placed.first - 1, placed.last)
    return [event for event in around if event.id in ids]


def _as_events(made: Any, name: str) -> tuple[Any, ...]:
    if made is None:
        return ()
    if isinstance(made, Event):
        return (made,)
    if isinstance(made, (list, tuple)) or inspect.isgenerator(made):
        return tuple(made)
    raise DefinitionError(f"{name}: a decision returns an event, a list of events or None, not {type(made).__name__}")


def _hints(function: Callable[..., Any], visible: Mapping[str, Any]) -> dict[str, Any]:
    """The annotations that can be evaluated; the others, of names for type checkers alone, do not matter."""
    hints = {}
    for name, annotation in function.__annotations__.items():
        try:
            hints[name] = evaluated(annotation, visible, function.__qualname__)
        except DefinitionError:
            # Silently taking an unchecked projection for a checked one would be safe; the reverse is not possible.
            continue
    return hints


def _is_unchecked(hint: object) -> bool:
    if get_origin(hint) is Annotated:
        return UNCHECKED in get_args(hint)[1:]
    return any(map(_is_unchecked, get_args(hint)))


def _declarations(hint: object) -> Iterable[Declaration[Any]]:
    """The events that an annotation of what is returned speaks of."""
    for member in alternatives(hint):
        if isinstance(member, type) and hasattr(member, "__event__"):
            yield member.__event__
        for argument in get_args(member):
            yield from _declarations(argument)
