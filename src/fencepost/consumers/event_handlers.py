"""Handlers of a consumer: functions, each for the events that its first parameter is annotated with.

    def occupancy(event: StudentSubscribed, tx: sqlite3.Connection) -> None: ...

The annotation is an event class, a union of them, or `SequencedEvent` for every event. A further parameter that is
annotated `SequencedEvent` gets the stored event; any other one gets the transaction of the target. The consumer's query
follows from the handlers, so an event that a handler exists for is always read.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from .. import Query, SequencedEvent
from ..decisions import DefinitionError
from ..decisions.inspection import Declaration, alternatives, declaration_of, evaluate, location_of
from .control_state import is_control

Invoke = Callable[[SequencedEvent, Any], Any]


class EventHandler:
    """A function and what it takes."""

    def __init__(self, function: Callable[..., Any], visible: Mapping[str, Any]) -> None:
        self.function = function
        self.where = location_of(function)
        parameters = list(inspect.signature(function).parameters.values())
        if not 1 <= len(parameters) <= 3:
            raise DefinitionError(
                f"{self.where}: a handler takes the event and, optionally, the transaction and the stored event"
            )
        first = parameters[0]
        if first.annotation is first.empty:
            raise DefinitionError(f"{self.where}: annotate {first.name!r} with the event that is handled")
        handled = alternatives(evaluate(first.annotation, visible, self.where))
        self.declarations: tuple[Declaration[Any], ...] = (
            () if handled == (SequencedEvent,) else tuple(map(declaration_of, handled))
        )
        hints = [evaluate(parameter.annotation, visible, self.where) for parameter in parameters[1:]]
        self.stored_at = [index for index, hint in enumerate(hints) if hint is SequencedEvent]
        self.takes_transaction = len(hints) > len(self.stored_at)
        if len(hints) - len(self.stored_at) > 1:
            raise DefinitionError(
                f"{self.where}: two parameters would get the transaction; annotate one SequencedEvent"
            )

    def invoke(self, declaration: Declaration[Any] | None) -> Invoke:
        """The call for stored events of one type: one function per shape of handler, chosen before any event."""
        function = self.function
        decode: Callable[[SequencedEvent], Any] = _as_it_is if declaration is None else declaration.decode
        if declaration is not None and declaration.version == 1:
            if not self.stored_at and not self.takes_transaction:
                return _directly(function, declaration)
            decode = _quickly(declaration)
        if not self.stored_at and not self.takes_transaction:
            return lambda stored, tx: function(decode(stored))
        if not self.stored_at:
            return lambda stored, tx: function(decode(stored), tx)
        if not self.takes_transaction:
            return lambda stored, tx: function(decode(stored), stored)
        if self.stored_at == [0]:
            return lambda stored, tx: function(decode(stored), stored, tx)
        return lambda stored, tx: function(decode(stored), tx, stored)


def _quickly(declaration: Declaration[Any]) -> Callable[[SequencedEvent], Any]:
    """Decode nearly all events directly: those without metadata, which are of the only version."""
    read, decode = declaration.read, declaration.decode

    def decoded(stored: SequencedEvent) -> Any:
        if stored.raw_metadata is not None:
            return decode(stored)
        try:
            return read(stored.data)
        except Exception:
            return decode(stored)  # which says what does not fit

    return decoded


def _directly(function: Callable[[Any], Any], declaration: Declaration[Any]) -> Invoke:
    """As `_quickly`, for handlers that take the event alone, without a call in between."""
    read, decode = declaration.read, declaration.decode

    def call(stored: SequencedEvent, tx: Any) -> Any:
        if stored.raw_metadata is not None:
            return function(decode(stored))
        try:
            event = read(stored.data)
        except Exception:
            event = decode(stored)
        return function(event)

    return call


def _as_it_is(stored: SequencedEvent) -> SequencedEvent:
    return stored


def _ignore(stored: SequencedEvent, tx: Any) -> None:
    """What has no handler, such as the records about consumers, for a handler of every event."""


class Handlers(dict[str, Invoke]):
    """The handlers of one consumer: the call for each stored type, and the query that finds their events."""

    def __init__(self, owner: str) -> None:
        super().__init__()
        self._owner = owner
        self._by_type: dict[str, EventHandler] = {}
        self._every: EventHandler | None = None

    def add(self, handler: EventHandler) -> None:
        if not handler.declarations:
            if self._every is not None:
                raise DefinitionError(
                    f"{self._owner}: 2 handlers for every event, {self._every.where} and {handler.where}"
                )
            self._every = handler
        for declaration in handler.declarations:
            known = self._by_type.get(declaration.type)
            if known is not None:
                both = f"{known.where} and {handler.where}"
                raise DefinitionError(f"{self._owner}: 2 handlers for the stored type {declaration.type!r}, {both}")
            self._by_type[declaration.type] = handler
            self[declaration.type] = handler.invoke(declaration)

    def query(self, tags: Iterable[str]) -> Query:
        """Every event that has a handler and these tags."""
        if self._every is not None:
            return Query.of(tags=tags)
        return Query.of(types=self._by_type, tags=tags)

    def __missing__(self, type: str) -> Invoke:
        handler = self.of(type)
        self[type] = call = _ignore if handler is None else handler.invoke(None)
        return call

    def of(self, type: str) -> EventHandler | None:
        """The handler of a stored type. The records of consumers themselves are not handled as every other event."""
        found = self._by_type.get(type)
        return found if found is not None or is_control(type) else self._every

    def all(self) -> list[EventHandler]:
        """Each handler once, in the order of their declaration."""
        found = dict.fromkeys((*self._by_type.values(), self._every))
        return [handler for handler in found if handler is not None]
