"""`Once`: how a decision finds out that an earlier call already took it.

A `Once` is a query for the events of the earlier call. The decision searches the whole log for them in its read, and
the append searches again, atomically. So if two identical requests run at the same time, one writes, and the other
returns the events of the first.

There are two kinds. `having(WithdrawalMade, withdrawal_id="x")` finds an event by its own tags. A command id, any
string or UUID, is added to the events as a tag, for events that no field identifies (see `command_ids.py`).

The events found may belong to a different request with the same identity. For a command id, a digest of the arguments
is compared; for `having`, the fields that `same` names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar

import msgspec

from ..model import Event, Query, QueryItem, SequencedEvent, query_of_items
from .errors import DefinitionError, RequestMismatch

AnyEvent = TypeVar("AnyEvent", Event, SequencedEvent)

# The metadata key of the digest of a command's arguments.
DIGEST: Final = "command_digest"


class Once(msgspec.Struct, frozen=True):
    """A query item for the events of an earlier call, and the declaration that decodes them, if known.

    For a command id, `tag` is the tag that the decision adds to its events, and `digest` the digest of its arguments.
    `fields` are the fields that `same` compares.
    """

    item: QueryItem
    declaration: Any = None  # a Declaration
    tag: str | None = None
    digest: str | None = None
    fields: Mapping[str, Any] | None = None

    @property
    def query(self) -> Query:
        return query_of_items((self.item,))

    def same(self, **fields: Any) -> Once:
        """Also compare these fields. If the event that is found has other values, it belongs to another request."""
        if self.declaration is None:
            raise DefinitionError("same() compares fields of an event, so it needs having(<event class>, ...)")
        if not fields.keys() <= self.declaration.fields.keys():
            unknown = sorted(fields.keys() - self.declaration.fields.keys())
            raise DefinitionError(f"same(): {unknown} are not fields of {self.declaration.type}")
        if self.fields is not None:
            fields = {**self.fields, **fields}
        return Once(self.item, self.declaration, self.tag, self.digest, fields)

    def among(self, events: Iterable[AnyEvent]) -> list[AnyEvent]:
        """The events that match. Compares types first, because decoding the tags is slow."""
        tags, types = self.item.tags, self.item.types
        return [event for event in events if (not types or event.type in types) and tags <= event.tags]

    def check(self, decision: str, events: Iterable[Event]) -> None:
        """Raise `DefinitionError` unless `once` finds one of these new events: a repeated call would write again."""
        if not self.among(events):
            raise DefinitionError(
                f"{decision}: once looks for {self.sought}, but no event that the decision returned matches"
            )

    def check_earlier(self, decision: str, earlier: Sequence[SequencedEvent]) -> None:
        """Raise `RequestMismatch` if the events that were found belong to another request."""
        if self.digest is None and self.fields is None:
            return
        for event in self.among(earlier):
            if self.digest is not None and event.metadata.get(DIGEST) != self.digest:
                raise RequestMismatch(decision, self.sought, event, ())
            if self.fields is not None:
                decoded = self.declaration.decode(event)
                other = tuple(name for name, value in self.fields.items() if getattr(decoded, name) != value)
                if other:
                    raise RequestMismatch(decision, self.sought, event, other)

    @property
    def sought(self) -> str:
        """A description of the query item, for messages."""
        return f"{'|'.join(sorted(self.item.types)) or 'any event'} with {sorted(self.item.tags)}"
