"""Handlers: the methods of a projection, each for the events that its parameter is annotated with.

    @on
    def _(self, event: DepositMade) -> None: ...

Handlers have no name worth thinking of, so all of them may be called `_`. They are collected
while the class body runs and end up in the projection's definition, by type of event.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, overload

from ..model import SequencedEvent
from .errors import DefinitionError
from .events import Declaration, declaration_of
from .hints import alternatives, evaluated, names_around

if TYPE_CHECKING:
    from .projections import Projection

Method = TypeVar("Method", bound=Callable[..., None])


@dataclass(frozen=True, slots=True)
class Handler:
    """A method, what it handles, and in which part of the projection's scope."""

    method: Callable[..., None]
    declarations: tuple[Declaration[Any], ...]  # none: every type that has no handler of its own
    scope: tuple[str, ...] | None  # None: the whole scope
    takes_stored: bool


class Bound:
    """A handler for one type of event, in a projection whose scope is known."""

    __slots__ = ("declaration", "handle", "scope")

    handle: Callable[[Projection, SequencedEvent], None]
    """Decode the event and give it to the method."""

    def __init__(self, handler: Handler, declaration: Declaration[Any] | None, scope: tuple[str, ...]) -> None:
        self.declaration = declaration
        self.scope = scope
        method = handler.method
        # One function for each shape of handler, chosen now and not for every event.
        if declaration is None:
            self.handle = method if not handler.takes_stored else lambda self, stored: method(self, stored, stored)
            return
        decode, read = declaration.decode, declaration.read
        if handler.takes_stored:
            self.handle = lambda self, stored: method(self, decode(stored), stored)
        elif declaration.version > 1:
            self.handle = lambda self, stored: method(self, decode(stored))
        else:

            def handle(self: Projection, stored: SequencedEvent) -> None:
                # Nearly all events: of the only version, without metadata that could say otherwise.
                try:
                    event = read(stored.data) if stored._metadata is None else decode(stored)
                except (ValueError, LookupError, TypeError):
                    event = decode(stored)  # which says what does not fit
                method(self, event)

            self.handle = handle


class Body(dict[str, Any]):
    """The namespace of a class body: keeps every handler, though one name hides another."""

    def __init__(self) -> None:
        super().__init__()
        self.handlers: list[Handler] = []

    def __setitem__(self, name: str, value: Any) -> None:
        if isinstance(value, Handler):
            self.handlers.append(value)
            value = value.method
        super().__setitem__(name, value)


@overload
def on(method: Method, /) -> Method: ...
@overload
def on(*, scope: tuple[str, ...]) -> Callable[[Method], Method]: ...
def on(method: Any = None, /, *, scope: tuple[str, ...] | None = None) -> Any:
    """Declare a method of a projection to handle the events that its parameter is annotated with.

    The annotation is an event class, a union of them, or `SequencedEvent` for every other event
    in the scope, of whatever type. A second parameter gets the stored event, with its position
    and time. `scope` names the parameters of the projection that these events are tagged with,
    where that is not all of them.
    """
    visible = names_around(1)

    def declare(method: Callable[..., None]) -> Any:
        where = method.__qualname__
        parameters = list(inspect.signature(method).parameters.values())
        if len(parameters) not in (2, 3):
            raise DefinitionError(f"{where}: a handler takes self and the event, and the stored event if it likes")
        if parameters[1].annotation is inspect.Parameter.empty:
            raise DefinitionError(f"{where}: annotate {parameters[1].name!r} with the event that is handled")
        handled = alternatives(evaluated(parameters[1].annotation, visible, where))
        declarations = () if handled == (SequencedEvent,) else tuple(map(declaration_of, handled))
        return Handler(method, declarations, scope, takes_stored=len(parameters) == 3)

    return declare if method is None else declare(method)
