"""Once: how a decision knows that it was taken before.

A `Once` is a query for the events of the first time. It is searched over the whole log, in the
read of the decision and again, atomically, by the append: so of two requests that race, one
writes and the other is told what the first one wrote.

There are two kinds. By the event: `WithdrawalMade.having(withdrawal_id="x")` finds the event
that the business itself identifies. By a command id, any string or UUID: the events are tagged
with it, `command_id:...`, for commands whose events have no such name of their own.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, TypeAlias, TypeVar
from uuid import UUID

import msgspec

from ..model import Event, Query, QueryItem, SequencedEvent, query_of_items
from .errors import DefinitionError
from .tags import tag_text

AnyEvent = TypeVar("AnyEvent", Event, SequencedEvent)

COMMAND_ID: Final = "command_id"


class Once(msgspec.Struct, frozen=True):
    """What to look for, and the class of event that it is, if that is known.

    `mark` is the tag that makes a decision's events be found again, where they have none themselves.
    """

    item: QueryItem
    declaration: Any = None  # a Declaration
    mark: str | None = None

    @property
    def query(self) -> Query:
        return query_of_items((self.item,))

    def among(self, events: Iterable[AnyEvent]) -> list[AnyEvent]:
        """Those that are looked for. Tags are compared only where the type is right, as decoding them takes long."""
        tags, types = self.item.tags, self.item.types
        return [event for event in events if (not types or event.type in types) and tags <= event.tags]

    def check(self, decision: str, events: Iterable[Event]) -> None:
        """A decision whose events its own `once` does not find would be taken again and again."""
        if self.among(events):
            return
        sought = f"{'|'.join(self.item.types) or 'any event'} with {sorted(self.item.tags)}"
        raise DefinitionError(f"{decision}: once looks for {sought}, but no event of this decision is one")


# What `once=` accepts.
Onceness: TypeAlias = Once | str | UUID


def once_of(given: Onceness) -> Once:
    if isinstance(given, Once):
        return given
    if not isinstance(given, (str, UUID)):
        kind = type(given).__name__
        raise DefinitionError(f"once: a command id or an event's having(...) is needed, not {kind}")
    text = tag_text(COMMAND_ID, given)
    return Once(QueryItem(tags=(text,)), mark=text)
