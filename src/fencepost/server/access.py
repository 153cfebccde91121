"""What a caller may do: rights, and a scope that limits the caller to some events.

A scope names tags, types, or both. Inside are the events that have at least one of its tags and whose type is one of
its types; a scope without tags, or without types, does not limit by them. A caller sees the store as if it held
nothing else: reads, subscriptions and conditions are narrowed to the scope, a head is the position of the last event
inside, and event ids, checkpoints and records are those of the scope. A caller may append only events inside.

Narrowing turns each item of a query into the items that match its events inside the scope, so the engine does the work
and no event outside is read. tests/server/test_scopes.py checks that answers do not depend on events outside.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from hashlib import sha256
from typing import Final
from uuid import UUID

import msgspec

from .. import AppendCondition, Event, Query, QueryItem, Record, SequencedEvent
from ..engine import limits
from ..errors import AccessDenied, InvalidInput

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
SCOPED_NAMES: Final = "fencepost.scope/"  # begins the stored names of the checkpoints and records of scopes
SCOPED_ID: Final = "fencepost.scope.id"  # the entry of the metadata with the id that a caller with a scope gave


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

    @cached_property
    def digest(self) -> bytes:
        """The identity of this scope, whichever keys have it."""
        return sha256(msgspec.json.encode([sorted(self.tags), sorted(self.types)])).digest()

    def stored_id(self, id: UUID) -> UUID:
        """The id under which an event is stored, so that the ids of one scope say nothing about those of another."""
        return UUID(bytes=sha256(self.digest + id.bytes).digest()[:16])

    def stored_events(self, events: Sequence[Event]) -> Sequence[Event]:
        """The events as they are stored: with the scope's own ids, and the given ids in the metadata."""
        if not self.is_limited:
            return events
        for index, event in enumerate(events):
            if SCOPED_ID in event.metadata:
                raise InvalidInput(f"events[{index}].metadata", f"the key {SCOPED_ID!r} is the server's own")
        return [
            event
            if event.id is None
            else Event(
                event.type,
                data=event.data,
                tags=event.tags,
                id=self.stored_id(event.id),
                metadata={**event.metadata, SCOPED_ID: str(event.id)},
            )
            for event in events
        ]

    def ids_of(self, events: Iterable[Event]) -> dict[UUID, UUID]:
        """The ids that the caller gave, by those that are stored."""
        given = [event.id for event in events if event.id is not None]
        return {self.stored_id(id) if self.is_limited else id: id for id in given}

    def shown(self, event: SequencedEvent) -> SequencedEvent:
        """The event as a caller with this scope sees it: with the id that was given."""
        if not self.is_limited or not event.raw_metadata or SCOPED_ID not in event.metadata:
            return event
        metadata = dict(event.metadata)
        id = UUID(metadata.pop(SCOPED_ID))
        return SequencedEvent(
            event.position, event.type, event.raw_tags, event.data, event.raw_recorded_at, id, metadata or None
        )

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
        if len(item.tags) == limits.MAX_TAGS:
            return  # an event that matches has these tags and no other, so none of the scope's
        for tag in sorted(self.tags):
            yield QueryItem(types=types, tags=item.tags | {tag})


@dataclass(frozen=True)
class Access:
    """A caller: the name of its key, and what the key allows."""

    name: str = ""
    rights: frozenset[Right] = ALL_RIGHTS
    scope: Scope = Scope()
    key: str = ""  # the hash of its key

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

    @property
    def own_names(self) -> str:
        """What begins the stored names of the caller's checkpoints and records. Callers of one scope share them."""
        return f"{SCOPED_NAMES}{self.scope.digest.hex()[:32]}/" if self.scope.is_limited else ""

    def stored_name(self, name: str, field: str = "name") -> str:
        """The stored name of the checkpoint or record that the caller means."""
        if not self.scope.is_limited and name.startswith(SCOPED_NAMES):
            raise InvalidInput(field, f"names that begin with {SCOPED_NAMES!r} are those of keys with a scope")
        return self.own_names + name

    def visible_name(self, stored: str) -> str:
        return stored.removeprefix(self.own_names)

    def visible(self, record: Record) -> Record:
        return Record(self.visible_name(record.name), record.value, record.revision)

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
