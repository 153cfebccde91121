"""A projection's definition: what can be known of the class before any event is read.

Which types it handles and with which methods, which parameters scope it and which tags they
stand for, and which fields are its state. From these follows the boundary: for each part of the
scope, the types that are handled in it. A definition under which a handled event could never be
found is refused when the class is made.
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
from .handlers import Bound, Handler

ITEMS_REMEMBERED: Final = 4_096

# The type of the events that snapshots are kept as.
SNAPSHOT_TYPE: Final = "fencepost.Snapshot"


@dataclass(slots=True)
class Definition:
    """What is known of a projection class.

    `scope` maps the parameters to the names of their tags; `state` maps the fields that events
    change to their types; `factories` make the values of those that cannot be shared; `scope_types`
    maps the parameters to their types. `reads_exactly` says that whatever the boundary's items find
    is handled: not so if the item for every type finds events that are handled by name, in a narrower
    scope or another, or finds snapshots.
    """

    name: str
    handlers: tuple[Handler, ...]
    scope: Mapping[str, str]
    state: Mapping[str, Any]
    factories: Mapping[str, Callable[[], Any]]
    version: int = 1
    snapshot_every: int | None = None
    scope_types: Mapping[str, Any] = field(default_factory=dict)
    by_type: dict[str, Bound] = field(default_factory=dict)
    every: Bound | None = None
    reads_exactly: bool = field(init=False)
    _parts: dict[tuple[str, ...], frozenset[str]] = field(default_factory=dict)
    _items: Callable[[tuple[str, ...]], tuple[QueryItem, ...]] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._items = lru_cache(ITEMS_REMEMBERED)(self._made_items)
        for handler in self.handlers:
            self._bind(handler)
        self._check_scope()
        if self.every is not None:
            self._parts[self.every.scope] = frozenset()
        for type, bound in self.by_type.items():
            # Types that share their part of the scope share an item of the query, and an item for
            # every type covers those that are handled by name.
            if self.every is None or not set(self.every.scope) <= set(bound.scope):
                self._parts[bound.scope] = self._parts.get(bound.scope, frozenset()) | {type}
        every = self.every
        self.reads_exactly = every is None or (
            every.scope != () and all(set(bound.scope) <= set(every.scope) for bound in self.by_type.values())
        )

    @property
    def types(self) -> frozenset[str]:
        """The types handled by name; when `every` is set, all others are handled as well."""
        return frozenset(self.by_type)

    def handler(self, type: str) -> Bound | None:
        # Snapshots that are kept in the log do not count as events of it: they would change the state that they are of.
        return self.by_type.get(type, self.every if type != SNAPSHOT_TYPE else None)

    def items(self, tags: tuple[str, ...]) -> tuple[QueryItem, ...]:
        """The boundary, given the tags of the parameters in their order."""
        # Remembered, since services ask for the same few scopes again and again.
        return self._items(tags)

    def _made_items(self, tags: tuple[str, ...]) -> tuple[QueryItem, ...]:
        by_parameter = dict(zip(self.scope, tags, strict=True))
        return tuple(
            QueryItem(types=types, tags=[by_parameter[parameter] for parameter in part])
            for part, types in self._parts.items()
        )

    def scopes_of(self, event: SequencedEvent) -> Iterator[dict[str, str]]:
        """The scope of each instance that the event concerns, to make it with: a transfer concerns two wallets."""
        bound = self.handler(event.type)
        if bound is None:
            return
        if bound.scope != tuple(self.scope):
            where = f"{self.name}: {event.type!r} is handled in the scope {bound.scope}"
            raise DefinitionError(f"{where}, so it does not name the instances that it concerns")
        prefixes = [f"{self.scope[parameter]}:" for parameter in bound.scope]
        values = [sorted(tag[len(prefix) :] for tag in event.tags if tag.startswith(prefix)) for prefix in prefixes]
        for combination in product(*values):
            yield dict(zip(bound.scope, combination, strict=True))

    def _bind(self, handler: Handler) -> None:
        scope = tuple(self.scope) if handler.scope is None else tuple(handler.scope)
        for parameter in scope:
            if parameter not in self.scope:
                raise DefinitionError(f"{self.name}: the scope {parameter!r} is none of {list(self.scope)}")
        if not handler.declarations:
            self.every = Bound(handler, None, scope)
        for declaration in handler.declarations:
            self._check_tags(declaration, scope)
            # What a subclass handles again, it handles anew: the last handler counts.
            self.by_type[declaration.type] = Bound(handler, declaration, scope)

    def _check_tags(self, declaration: Declaration[Any], scope: tuple[str, ...]) -> None:
        for parameter in scope:
            if self.scope[parameter] not in declaration.tag_names:
                raise DefinitionError(
                    f"{self.name} is scoped by {parameter!r}, but {declaration.type} has no tag "
                    f"{self.scope[parameter]!r}, so none would ever be found; give it the tag, or say "
                    "@on(scope=(...)) with the parameters that it is tagged with"
                )

    def _check_scope(self) -> None:
        bounds = [*self.by_type.values(), *([self.every] if self.every else [])]
        for parameter in self.scope:
            if bounds and not any(parameter in bound.scope for bound in bounds):
                raise DefinitionError(f"{self.name}: no handler uses the parameter {parameter!r}")
