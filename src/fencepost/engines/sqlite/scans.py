"""Reads of any length, page by page, by any number of threads.

A scan takes no lock and holds no transaction between pages, because the log below a head never changes.
tests/sqlite/test_matching.py compares every page with the definition of matching.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import TypeAlias

from ...buckets import matches
from ...model import Query, SequencedEvent
from . import sizes
from .connections import snapshot
from .event_rows import EventRows
from .generations import Types, ready_parts
from .readers import Readers
from .search import search
from .shared_tail import View
from .tail import Tail, TailPart

Page: TypeAlias = tuple[list[SequencedEvent], int]


class Scans:
    """Scans the log by query.

    A page is a list of events and the position up to which (backwards: down to which) the scan has come.
    `view_near(up_to)` returns a tail that lacks at most UNINDEXED_EVENTS of the events up to there.
    """

    def __init__(self, readers: Readers, rows: EventRows, types: Types, view_near: Callable[[int], View]) -> None:
        self._readers = readers
        self._rows = rows
        self._types = types
        self._view_near = view_near

    def scan(
        self, query: Query, after: int, up_to: int, limit: int | None, backwards: bool
    ) -> Iterator[Sequence[SequencedEvent]]:
        while after < up_to and limit != 0:
            most = sizes.SCAN_EVENTS if limit is None else min(limit, sizes.SCAN_EVENTS)
            if query.matches_all:
                page, seen = self._page_of_all(after, up_to, most, backwards)
            else:
                page, seen = self._page(query, after, up_to, most, backwards)
            if limit is not None:
                limit -= len(page)
            if page:
                yield page
            if backwards:
                up_to = seen
            else:
                after = seen

    def _page_of_all(self, after: int, up_to: int, limit: int, backwards: bool) -> Page:
        with self._readers.lend() as connection:
            page = self._rows.between(connection, after, up_to, limit, backwards)
        return page, _seen(page, after, up_to, limit, backwards)

    def _page(self, query: Query, after: int, up_to: int, limit: int, backwards: bool) -> Page:
        """A page from one of three ranges, which follow each other: the generations on disk, the tail, and the events
        that were committed since the tail was brought up to date.
        """
        tail, committed, _ = self._view_near(up_to)
        if after < tail.floor and (not backwards or up_to <= tail.floor):
            return self._indexed_page(query, after, min(up_to, tail.floor), limit, backwards)
        if after < committed and (not backwards or up_to <= committed):
            return self._tail_page(tail, query, max(after, tail.floor), min(up_to, committed), limit, backwards)
        return self._filtered_page(query, max(after, committed), up_to, limit, backwards)

    def _indexed_page(self, query: Query, after: int, up_to: int, limit: int, backwards: bool) -> Page:
        keys: list[int] = []
        with self._readers.lend() as connection:
            with snapshot(connection):
                for part in ready_parts(connection, self._types, after, up_to, backwards=backwards):
                    keys.extend(islice(search(part, query, backwards=backwards), limit - len(keys)))
                    if len(keys) == limit:
                        break
            page = self._rows.at(connection, keys)
        return page, _seen(page, after, up_to, limit, backwards)

    def _tail_page(self, tail: Tail, query: Query, after: int, up_to: int, limit: int, backwards: bool) -> Page:
        keys = list(islice(search(TailPart(tail, after, up_to), query, backwards=backwards), limit))
        with self._readers.lend() as connection:
            page = self._rows.at(connection, keys)
        return page, _seen(page, after, up_to, limit, backwards)

    def _filtered_page(self, query: Query, after: int, up_to: int, limit: int, backwards: bool) -> Page:
        page, seen = self._page_of_all(after, up_to, sizes.SCAN_EVENTS, backwards)
        found = [event for event in page if matches(event, query)]
        return (found, seen) if len(found) <= limit else (found[:limit], _seen(found[:limit], 0, 0, limit, backwards))


def _seen(page: Sequence[SequencedEvent], after: int, up_to: int, limit: int, backwards: bool) -> int:
    """How far a page has come: to its last event if the limit cut it, otherwise to the end of the range."""
    if len(page) == limit:
        return page[-1].position - 1 if backwards else page[-1].position
    return after if backwards else up_to
