"""The decorator `@on`: declares a method of a projection as the handler of an event class.

    @on
    def _(self, event: DepositMade) -> None: ...

The annotation of the parameter says which events the method handles. The name of a handler does not matter, so all of
them can be called `_`: `ClassBody` collects them while the class body runs.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, overload

from ..model import SequencedEvent
from .errors import DefinitionError
from .events import Declaration, declaration_of
from .hints import alternatives, evaluate, location_of, visible_names

if TYPE_CHECKING:
    from .projections import Projection

Method = TypeVar("Method", bound=Callable[..., None])


@dataclass(frozen=True, slots=True)
class Handler:
    """A method, the events that it handles, and the parameters of the projection's scope that apply to them."""

    method: Callable[..., None]
    declarations: tuple[Declaration[Any], ...]  # empty: every type without a handler of its own
    scope: tuple[str, ...] | None  # None: the whole scope
    takes_stored: bool


class BoundHandler:
    """A handler for one type of event, with the scope parameters that apply to it."""

    __slots__ = ("declaration", "handle", "scope")

    handle: Callable[[Projection, SequencedEvent], None]
    """Decode the event and call the method. An exception of the method gets a note that names the event."""

    def __init__(self, handler: Handler, declaration: Declaration[Any] | None, scope: tuple[str, ...]) -> None:
        self.declaration = declaration
        self.scope = scope
        method = handler.method
        decode: Callable[[SequencedEvent], Any] = (lambda stored: stored) if declaration is None else declaration.decode
        # One function for each kind of handler, so that nothing needs to be decided for each event.
        if handler.takes_stored:

            def handle(self: Projection, stored: SequencedEvent) -> None:
                event = decode(stored)
                try:
                    method(self, event, stored)
                except Exception as error:
                    _note(error, method, stored)
                    raise

        elif declaration is None or declaration.version > 1:

            def handle(self: Projection, stored: SequencedEvent) -> None:
                event = decode(stored)
                try:
                    method(self, event)
                except Exception as error:
                    _note(error, method, stored)
                    raise

        else:
            read = declaration.read

            def handle(self: Projection, stored: SequencedEvent) -> None:
                # The common case: the class has one version, and the event no metadata that could name another.
                try:
                    event = read(stored.data) if stored.raw_metadata is None else decode(stored)
                except Exception:
                    event = decode(stored)  # raises EventUnreadable, which says what does not fit
                try:
                    method(self, event)
                except Exception as error:
                    _note(error, method, stored)
                    raise

        self.handle = handle


def _note(error: Exception, method: Callable[..., None], stored: SequencedEvent) -> None:
    """Add a note that names the event. The exception keeps its type, because callers may catch it."""
    error.add_note(
        f"raised by the handler {location_of(method)} of event {stored.type!r} at position {stored.position}"
    )


class ClassBody(dict[str, Any]):
    """The namespace of a class body. Keeps every handler, even if several have the same name."""

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
    """Declare a method of a projection as the handler of the events that its parameter is annotated with.

    The annotation is an event class, a union of event classes, or `SequencedEvent` for all other events in the scope. A
    second parameter receives the stored event, with its position and time. `scope` names the parameters of the
    projection that these events are tagged with, if not all of them.
    """
    visible = visible_names(1)

    def declare(method: Callable[..., None]) -> Any:
        where = method.__qualname__
        parameters = list(inspect.signature(method).parameters.values())
        if len(parameters) not in (2, 3):
            raise DefinitionError(f"{where}: a handler takes self, the event and, optionally, the stored event")
        if parameters[1].annotation is inspect.Parameter.empty:
            raise DefinitionError(f"{where}: annotate {parameters[1].name!r} with the event class that it handles")
        handled = alternatives(evaluate(parameters[1].annotation, visible, where))
        declarations = () if handled == (SequencedEvent,) else tuple(map(declaration_of, handled))
        return Handler(method, declarations, scope, takes_stored=len(parameters) == 3)

    return declare if method is None else declare(method)
