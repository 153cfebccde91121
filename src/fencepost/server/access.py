"""What a caller may do: rights, and a scope that limits the caller to some events.

A scope names tags, types, or both. Inside are the events that have at least one of its tags and whose type is one of
its types; a scope without tags, or without types, does not limit by them. A caller sees the store as if it held
nothing
else: reads, subscriptions and conditions are narrowed to the scope, and a head is the position of the last event
inside. A caller may append only events inside, and use only checkpoints whose names begin with the name of its key.

Narrowing turns each item of a query into the items that match its events inside the scope, so the engine does the work
and no event outside is read. tests/server/test_scopes.py holds that answers do not depend on events outside.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Final

from ..errors import AccessDenied, InvalidInput
from ..model import AppendCondition, Event, Query, QueryItem

# What an operator tells a consumer. The other records about consumers are made by the processes that run them.
COMMANDS: Final = frozenset(
    {
        "fencepost.ConsumerPaused",
        "fencepost.ConsumerReset",
        "fencepost.ConsumerResumed",
        "fencepost.DeadLetterDiscarded",
        "fencepost.PartitionsChanged",
        "fencepost.ReplayRequested",
        "fencepost.StepRequested",
    }
)
OWN_TYPES: Final = "fencepost."


class Unauthenticated(AccessDenied):
    """No API key was sent, or one that is unknown, revoked or expired."""


class Right(Enum):
    READ = "read"
    APPEND = "append"
    ADMIN = "admin"


ALL_RIGHTS: Final = frozenset(Right)


@dataclass(frozen=True)
class Scope:
    """The events that a caller may know about; the default is all of them."""

    tags: frozenset[str] = frozenset()
    types: frozenset[str] = frozenset()

    @property
    def is_limited(self) -> bool:
        return bool(self.tags or self.types)

    def contains(self, event: Event) -> bool:
        return (not self.tags or not self.tags.isdisjoint(event.tags)) and (not self.types or event.type in self.types)

    def narrowed(self, query: Query | None) -> Query | None:
        """The query for its matches inside the scope; None if it can have none."""
        query = Query.all() if query is None else query
        if not self.is_limited:
            return query
        items = dict.fromkeys(each for item in query.items for each in self._items(item))
        return Query(items) if items else None

    def _items(self, item: QueryItem) -> Iterable[QueryItem]:
        types = (item.types & self.types if item.types else self.types) if self.types else item.types
        if self.types and not types:
            return
        if not self.tags or not self.tags.isdisjoint(item.tags):
            yield QueryItem(types=types, tags=item.tags)
            return
        for tag in sorted(self.tags):
            yield QueryItem(types=types, tags=item.tags | {tag})


@dataclass(frozen=True)
class Access:
    """A caller: the name of its key, and what the key allows."""

    name: str = ""
    rights: frozenset[Right] = ALL_RIGHTS
    scope: Scope = Scope()

    def check(self, right: Right) -> None:
        if right not in self.rights:
            raise AccessDenied(f"the API key {self.name!r} has no right to {right.value}")

    def check_unlimited(self, what: str) -> None:
        if self.scope.is_limited:
            raise AccessDenied(f"the API key {self.name!r} is limited to a scope, and {what} concerns the whole store")

    def check_events(self, events: Iterable[Event]) -> None:
        """Refuse events outside the scope, and events that control consumers to keys that may not do that.

        A consumer is controlled by events. A command among them needs the right `admin`, as the same command over HTTP
        does. A key with a scope may append no such event at all, unless its scope names the type.
        """
        limited = self.scope.is_limited
        if not limited and Right.ADMIN in self.rights:
            return
        for index, event in enumerate(events):
            if limited and not self.scope.contains(event):
                raise AccessDenied(f"events[{index}]: the scope of the API key {self.name!r} does not contain it")
            if event.type.startswith(OWN_TYPES):
                if limited and event.type not in self.scope.types:
                    raise AccessDenied(
                        f"events[{index}]: the type {event.type!r} controls consumers, and the scope of the API key "
                        f"{self.name!r} does not name it"
                    )
                if event.type in COMMANDS and Right.ADMIN not in self.rights:
                    raise AccessDenied(
                        f"events[{index}]: {event.type!r} is a command to a consumer, and the API key {self.name!r} "
                        "has no right to admin"
                    )

    def checkpoint(self, name: str) -> str:
        """The checkpoint that the caller means. Callers with a scope share no checkpoints."""
        return f"{self.name}/{name}" if self.scope.is_limited else name

    def visible_name(self, stored: str) -> str:
        return stored.removeprefix(f"{self.name}/") if self.scope.is_limited else stored

    def narrowed(self, conditions: Iterable[AppendCondition]) -> list[AppendCondition | None]:
        """Each condition for the events inside the scope; None for one that can never fail."""
        narrowed: list[AppendCondition | None] = []
        for index, condition in enumerate(conditions):
            try:
                query = self.scope.narrowed(condition.fail_if_events_match)
            except InvalidInput as error:
                raise InvalidInput(f"condition[{index}]", f"{error.problem} (within the scope of the key)") from None
            narrowed.append(None if query is None else AppendCondition(query, after=condition.after))
        return narrowed


ANYONE: Final = Access()
