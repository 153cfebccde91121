"""The pages of a reading: which arguments to send next, and what the answer means. No I/O happens here.

Most queries name a tag in each of their items, and most tags have few events. So a reading first requests the events
of one tag of each item (`by_tags` of the SQL function `page`). If a page of them contains few matches, or if one of
several items has more than a page, the reading requests the matches themselves, which the server finds by leapfrog
search. tests/postgres/test_matching.py and test_index.py compare both ways with `fencepost.buckets.matches`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from ...errors import StoreUnavailable
from ...model import Query, SequencedEvent
from .connection_pool import POSTGRES_EPOCH_US
from .wire import LAST_POSITION, encode_items

FIRST_PAGE_EVENTS: Final = 256
PAGE_EVENTS: Final = 4_096
PAGE_BYTES: Final = 4 * 2**20  # a target: the number of events follows from the average size on the page before


class PagedRead:
    """One reading: send the `arguments`, `receive` the rows, and repeat until it has `ended`.

    `up_to` may be above the head; `reach`, which is known after the first page, is not. `seen_head` is a head that
    was seen before: a server whose head is lower lags behind, or its log went back.
    """

    def __init__(
        self,
        query: Query,
        *,
        after: int,
        up_to: int,
        limit: int | None,
        backwards: bool,
        seen_head: int = 0,
    ) -> None:
        self._items = encode_items(query)
        self._by_tags = all(item.tags for item in query.items)
        self._item_count = len(query.items)
        # The caller may pass positions that do not fit into a bigint. No event has one.
        self._after = min(after, LAST_POSITION)
        self._up_to = min(up_to, LAST_POSITION)
        self._seen_head = seen_head
        self._backwards = backwards
        self._remaining = limit
        self._page_events = FIRST_PAGE_EVENTS
        self._page_limit = 0
        self.reach: int = -1
        self.ended = False

    def arguments(self) -> Sequence[bytes | None]:
        """The arguments of the SQL function `page` for the next page."""
        self._page_limit = self._page_events
        if self._remaining is not None and not (self._by_tags and self._item_count > 1):
            self._page_limit = min(self._page_limit, self._remaining)
        bounds = b"%d" % self._after, b"%d" % self._up_to, b"%d" % self._page_limit
        return self._items, *bounds, _boolean(self._backwards), _boolean(self._by_tags)

    def receive(self, rows: Sequence[Sequence[Any]]) -> list[SequencedEvent]:
        """The events of the page. It may be empty although more events follow."""
        self._check_head(rows[0][0])
        if self._by_tags and self._item_count > 1:
            return self._receive_of_items(rows)
        walked = rows if rows[0][2] is not None else ()
        events = []
        last = 0
        for _, _, position, type_, tags, data, at, id_, metadata in walked:
            # The type is NULL if the event does not match. An event occurs twice if two of its tags have the same hash.
            if type_ is not None and position != last:
                at += POSTGRES_EPOCH_US
                events.append(SequencedEvent(position, type_, frozenset(tags), data, at, id_, metadata))
                last = position
        self._count_down(events)
        if len(walked) < self._page_limit:
            self.ended = True
        else:
            self._continue_beyond(walked[-1][2])
            if self._by_tags and len(events) * 4 < len(walked):
                self._by_tags = False
            self._page_events = _next_page_events(events, len(walked))
        return events

    def _receive_of_items(self, rows: Sequence[Sequence[Any]]) -> list[SequencedEvent]:
        if len(rows) >= self._page_limit and self._has_more(rows):
            self._by_tags = False
            return []
        matching = {row[2]: row for row in rows if row[3] is not None}
        events = [
            SequencedEvent(position, type_, frozenset(tags), data, at + POSTGRES_EPOCH_US, id_, metadata)
            for _, (_, _, position, type_, tags, data, at, id_, metadata) in sorted(
                matching.items(), reverse=self._backwards
            )
        ]
        if self._remaining is not None:
            del events[self._remaining :]
        self._count_down(events)
        self.ended = True
        return events

    def _has_more(self, rows: Sequence[Sequence[Any]]) -> bool:
        """Whether an item may have events beyond this page."""
        counts: dict[int, int] = {}
        for row in rows:
            counts[row[1]] = counts.get(row[1], 0) + 1
        return max(counts.values()) >= self._page_limit

    def _check_head(self, head: int) -> None:
        if self._seen_head > head:
            raise StoreUnavailable(
                f"the head of this server is {head}, and position {self._seen_head} was seen already: the server lags "
                "behind (let all connections of a store lead to the same server), or its log went back"
            )
        if self.reach < 0:
            self.reach = self._up_to = min(self._up_to, head)
            self._seen_head = max(self._seen_head, self.reach)

    def _count_down(self, events: Sequence[SequencedEvent]) -> None:
        if self._remaining is not None:
            self._remaining -= len(events)
            self.ended = self._remaining == 0

    def _continue_beyond(self, position: int) -> None:
        if self._backwards:
            self._up_to = position - 1
        else:
            self._after = position
        if self._after >= self._up_to:
            self.ended = True


def _next_page_events(events: Sequence[SequencedEvent], walked: int) -> int:
    """The number of events that is likely to fill a page, at most four times the number on this one."""
    size = sum(len(event.data) for event in events) // max(len(events), 1) + 100  # an estimate for the other columns
    return max(1, min(PAGE_EVENTS, 4 * walked, PAGE_BYTES // size))


def _boolean(value: bool) -> bytes:
    return b"true" if value else b"false"
