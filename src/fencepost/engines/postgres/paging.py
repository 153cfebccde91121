"""The pages of a reading, apart from how the server is waited for: what to ask next, and what the answer says.

Most queries name a tag in each of their items, and most tags have few events: then the events of one tag of
each item are asked for, and that is all. Where they are many and few of them match, or several items have more
than a page, the server is asked for the matches themselves, which it finds by leaping.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from ...errors import StoreUnavailable
from ...model import Query, SequencedEvent
from .calls import Call
from .wire import LAST_POSITION, encode_items

FIRST_PAGE_EVENTS: Final = 256
PAGE_EVENTS: Final = 4_096
PAGE_BYTES: Final = 4 * 2**20  # what a page is meant to hold; its events are counted by the sizes of the last page's


class Paging:
    """One reading: `request`, and `receive` what the server answers, until it has `ended`.

    `upto` may be above the head; `reach`, known after the first page, is not. `reached` is a position that the
    server must have, since it was the head once.
    """

    def __init__(
        self,
        call: Call,
        query: Query,
        *,
        after: int,
        upto: int,
        limit: int | None,
        backwards: bool,
        reached: int = 0,
    ) -> None:
        self._call = call  # of the function `page`
        self._items = encode_items(query)
        self._by_tags = all(item.tags for item in query.items)
        self._item_count = len(query.items)
        # Positions above the widest that PostgreSQL has may be asked for; there are none.
        self._after = min(after, LAST_POSITION)
        self._upto = min(upto, LAST_POSITION)
        self._reached = reached
        self._backwards = backwards
        self._rest = limit
        self._page_events = FIRST_PAGE_EVENTS
        self._most = 0
        self.reach = 0
        self.ended = False

    def request(self) -> tuple[Call, Sequence[bytes | None]]:
        """What to call for the next page."""
        self._most = self._page_events
        if self._rest is not None and not (self._by_tags and self._item_count > 1):
            self._most = min(self._most, self._rest)
        bounds = b"%d" % self._after, b"%d" % self._upto, b"%d" % self._most
        return self._call, (self._items, *bounds, _boolean(self._backwards), _boolean(self._by_tags))

    def receive(self, rows: Sequence[Sequence[Any]]) -> list[SequencedEvent]:
        """The events of the page, perhaps none although there are more to come."""
        self._check_head(rows[0][0])
        if self._by_tags and self._item_count > 1:
            return self._received_of_items(rows)
        walked = rows if rows[0][2] is not None else ()
        events = []
        last = 0
        for _, _, position, type_, tags, data, recorded_at, id_, metadata in walked:
            # Without a type it does not match. Two tags of one event may have the same hash: then it comes twice.
            if type_ is not None and position != last:
                events.append(SequencedEvent(position, type_, frozenset(tags), data, recorded_at, id_, metadata))
                last = position
        self._count(events)
        if len(walked) < self._most:
            self.ended = True
        else:
            self._go_on_behind(walked[-1][2])
            if self._by_tags and len(events) * 4 < len(walked):
                self._by_tags = False
            self._page_events = _next_page_events(events, len(walked))
        return events

    def _received_of_items(self, rows: Sequence[Sequence[Any]]) -> list[SequencedEvent]:
        if len(rows) >= self._most and self._has_more(rows):
            self._by_tags = False
            return []
        matching = {row[2]: row for row in rows if row[3] is not None}
        events = [
            SequencedEvent(position, type_, frozenset(tags), data, recorded_at, id_, metadata)
            for _, (_, _, position, type_, tags, data, recorded_at, id_, metadata) in sorted(
                matching.items(), reverse=self._backwards
            )
        ]
        if self._rest is not None:
            del events[self._rest :]
        self._count(events)
        self.ended = True
        return events

    def _has_more(self, rows: Sequence[Sequence[Any]]) -> bool:
        """Whether one of the items may have events beyond this page."""
        counts: dict[int, int] = {}
        for row in rows:
            counts[row[1]] = counts.get(row[1], 0) + 1
        return max(counts.values()) >= self._most

    def _check_head(self, head: int) -> None:
        if self._reached > head:
            raise StoreUnavailable(
                "this server lags behind the one that was read before: let all connections lead to the same one "
                f"(it has no position {self._reached} yet)"
            )
        if self._reached == 0:
            self.reach = self._upto = min(self._upto, head)
            self._reached = self.reach

    def _count(self, events: Sequence[SequencedEvent]) -> None:
        if self._rest is not None:
            self._rest -= len(events)
            self.ended = self._rest == 0

    def _go_on_behind(self, position: int) -> None:
        if self._backwards:
            self._upto = position - 1
        else:
            self._after = position
        if self._after >= self._upto:
            self.ended = True


def _next_page_events(events: Sequence[SequencedEvent], walked: int) -> int:
    """As many as are likely to fill a page, and no more than four times as many as before."""
    size = sum(len(event.data) for event in events) // max(len(events), 1) + 100  # what the rest takes, roughly
    return max(1, min(PAGE_EVENTS, 4 * walked, PAGE_BYTES // size))


def _boolean(value: bool) -> bytes:
    return b"true" if value else b"false"
