"""A projection's definition: what its class declares, and the boundary that follows from it.

The class declares which event types it handles with which methods, which parameters are its scope and which tags they
stand for, and which fields are its state. The boundary has one query item for each set of scope parameters that
handlers use, with the types handled in that scope. A class with a handler whose events could never match is refused
when the class is defined.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import product
from typing import Any, Final

from ..model import QueryItem, SequencedEvent
from .errors import DefinitionError
from .events import Declaration
from .handlers import BoundHandler, Handler

ITEMS_REMEMBERED: Final = 4_096

# The event type of stored snapshots.
SNAPSHOT_TYPE: Final = "fencepost.Snapshot"


@dataclass(slots=True)
class Definition:
    """What a projection class declares.

    `scope` maps parameters to the names of their tags, and `scope_types` to their types. `state` maps the fields that
    events change to their types. `factories` make the initial values of mutable fields. `reads_exactly` is True if
    every event that matches the boundary has a handler. It is False if the item for every type also matches events
    that are handled by name in another scope, or snapshots.
    """

    name: str
    handlers: tuple[Handler, ...]
    scope: Mapping[str, str]
    state: Mapping[str, Any]
    factories: Mapping[str, Callable[[], Any]]
    version: int = 1
    snapshot_every: int | None = None
    scope_types: Mapping[str, Any] = field(default_factory=dict)
    by_type: dict[str, BoundHandler] = field(default_factory=dict)
    every: BoundHandler | None = None
    reads_exactly: bool = field(init=False)
    _parts: dict[tuple[str, ...], frozenset[str]] = field(default_factory=dict)
    items: Callable[[tuple[str, ...]], tuple[QueryItem, ...]] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        # Cached, because services use the same few scopes repeatedly.
        self.items = lru_cache(ITEMS_REMEMBERED)(self._made_items)
        for handler in self.handlers:
            self._bind(handler)
        self._check_scope()
        if self.every is not None:
            self._parts[self.every.scope] = frozenset()
        for type, bound in self.by_type.items():
            # Types with the same scope share a query item. The item for every type covers types handled by name.
            if self.every is None or not set(self.every.scope) <= set(bound.scope):
                self._parts[bound.scope] = self._parts.get(bound.scope, frozenset()) | {type}
        every = self.every
        self.reads_exactly = every is None or (
            every.scope != () and all(set(bound.scope) <= set(every.scope) for bound in self.by_type.values())
        )

    @property
    def types(self) -> frozenset[str]:
        """The types handled by name. If `every` is set, all other types are handled as well."""
        return frozenset(self.by_type)

    def handler(self, type: str) -> BoundHandler | None:
        # Stored snapshots are not events of the log: handling them would change the state that they describe.
        return self.by_type.get(type, self.every if type != SNAPSHOT_TYPE else None)

    def _made_items(self, tags: tuple[str, ...]) -> tuple[QueryItem, ...]:
        """The boundary as query items, for the given tags in the order of the parameters."""
        by_parameter = dict(zip(self.scope, tags, strict=True))
        return tuple(
            QueryItem(types=types, tags=[by_parameter[parameter] for parameter in part])
            for part, types in self._parts.items()
        )

    def scopes_of(self, event: SequencedEvent) -> Iterator[dict[str, str]]:
        """The scope of each instance that handles the event; a transfer between two wallets has two."""
        bound = self.handler(event.type)
        if bound is None:
            return
        if bound.scope != tuple(self.scope):
            where = f"{self.name}: {event.type!r} is handled in the partial scope {bound.scope}"
            raise DefinitionError(f"{where}, so the event does not say which instances handle it")
        prefixes = [f"{self.scope[parameter]}:" for parameter in bound.scope]
        values = [sorted(tag[len(prefix) :] for tag in event.tags if tag.startswith(prefix)) for prefix in prefixes]
        for combination in product(*values):
            yield dict(zip(bound.scope, combination, strict=True))

    def _bind(self, handler: Handler) -> None:
        scope = tuple(self.scope) if handler.scope is None else tuple(handler.scope)
        for parameter in scope:
            if parameter not in self.scope:
                raise DefinitionError(
                    f"{self.name}: @on(scope=...): {parameter!r} is not one of its parameters {list(self.scope)}"
                )
        if not handler.declarations:
            self.every = BoundHandler(handler, None, scope)
        for declaration in handler.declarations:
            self._check_tags(declaration, scope)
            # A subclass replaces handlers of its parents: the last handler wins.
            self.by_type[declaration.type] = BoundHandler(handler, declaration, scope)

    def _check_tags(self, declaration: Declaration[Any], scope: tuple[str, ...]) -> None:
        for parameter in scope:
            if self.scope[parameter] not in declaration.tag_names:
                raise DefinitionError(
                    f"{self.name} is scoped by {parameter!r}, but {declaration.type} has no tag "
                    f"{self.scope[parameter]!r}, so no event would ever match; add the tag to the event, or name the "
                    "parameters that the event is tagged with in @on(scope=(...))"
                )

    def _check_scope(self) -> None:
        bounds = [*self.by_type.values(), *([self.every] if self.every else [])]
        for parameter in self.scope:
            if bounds and not any(parameter in bound.scope for bound in bounds):
                raise DefinitionError(f"{self.name}: no handler uses the parameter {parameter!r}")
