"""The postings of the newest events, in memory.

Nearly every condition asks about recent events, so the tail answers nearly all of them without I/O. It holds the
postings of every event above its floor; the postings up to the floor are in the generations on disk. A tail that has
grown long is written there in one sorted pass, and a new tail begins. The tail also keeps the events themselves,
unless they are large, because recent events are read most.

Only the committing thread adds events. Other threads search at the same time, up to a committed position, and do not
see the events that are staged above it. tests/sqlite/test_tail.py and test_matching.py check this.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator
from typing import Final

from ...model import Query, QueryItem
from . import sizes
from .layout import DATA, Row
from .search import EVERY, Run, list_run, search

NOTHING: Final[list[int]] = []


class Tail:
    def __init__(self, floor: int) -> None:
        self.floor = floor
        self.head = floor
        self._lists: dict[str, dict[str, list[int]]] = {EVERY: {}}
        self._positions: dict[bytes, int] = {}
        self._added: list[tuple[str, Collection[str], bytes | None]] = []
        self._stored: list[Row | None] = []

    def __len__(self) -> int:
        return len(self._added)

    def add(self, type: str, tags: Collection[str], id: bytes | None, stored: Row | None = None) -> None:
        """Add the event at the next position; `stored` is its row, for readers."""
        self.head = position = self.head + 1
        lists = self._lists
        for term in (*tags, EVERY):
            by_type = lists.get(term)
            if by_type is None:
                lists[term] = {type: [position]}
            elif type in by_type:
                by_type[type].append(position)
            else:
                by_type[type] = [position]
        if id is not None:
            self._positions[id] = position
        self._added.append((type, tags, id))
        self._stored.append(stored if stored is not None and len(stored[DATA]) <= sizes.KEPT_BYTES else None)

    def cut(self, head: int) -> None:
        """Remove everything above `head`."""
        while self.head > head:
            type, tags, id = self._added.pop()
            self._stored.pop()
            for term in (*tags, EVERY):
                by_type = self._lists[term]
                by_type[type].pop()
                if not by_type[type]:
                    del by_type[type]
                    if not by_type and term != EVERY:
                        del self._lists[term]
            if id is not None:
                del self._positions[id]
            self.head -= 1

    def position_of(self, id: bytes) -> int | None:
        return self._positions.get(id)

    def stored(self, position: int) -> Row | None:
        """The row of the event at a position above the floor; None if it is too large to be kept."""
        return self._stored[position - self.floor - 1]

    def positions(self, query: Query, after: int, up_to: int, most: int) -> list[int] | None:
        """The matches with after < position <= up_to, ascending; None if more than `most`. Items have one tag each."""
        found: list[int] = []
        for item in query.items:
            (tag,) = item.tags
            by_type = self._lists.get(tag, {})
            for type in item.types or list(by_type):
                positions = by_type.get(type, NOTHING)
                if positions and positions[-1] > after:
                    found += positions[bisect_right(positions, after) : bisect_right(positions, up_to)]
                    if len(found) > most:
                        return None
        return sorted(set(found))

    def first_match(self, query: Query, after: int) -> int | None:
        """The lowest position above `after` that matches, staged events included."""
        first: int | None = None
        searched: list[QueryItem] = []
        for item in query.items:
            terms = item.tags or (EVERY,)
            if len(terms) == 1 and len(item.types) < 2:
                # The usual shapes need no search: the last position of a list says whether there is a match.
                (term,) = terms
                by_type = self._lists.get(term, {})
                lists: Iterable[list[int]] = (
                    [by_type.get(type, NOTHING) for type in item.types] if item.types else by_type.values()
                )
                for positions in lists:
                    if positions and positions[-1] > after:
                        position = positions[bisect_right(positions, after)]
                        if first is None or position < first:
                            first = position
            else:
                searched.append(item)
        if searched:
            up_to = self.head if first is None else first - 1
            first = next(search(TailPart(self, after, up_to), Query(tuple(searched))), first)
        return first

    def terms(self) -> Iterator[tuple[str, dict[str, list[int]]]]:
        """Every term with its lists, in the order in which SQLite sorts terms."""
        for term in sorted(self._lists):
            yield term, self._lists[term]

    def ids(self) -> Iterator[tuple[bytes, str, int]]:
        """Every id with its type and position, sorted."""
        for id in sorted(self._positions):
            position = self._positions[id]
            yield id, self._added[position - self.floor - 1][0], position


class TailPart:
    """The tail between two positions, as a part to search."""

    def __init__(self, tail: Tail, after: int, up_to: int) -> None:
        self.after = after
        self.up_to = up_to
        self._lists = tail._lists

    def type_key(self, type: str) -> str:
        return type

    def types_of(self, term: str) -> Collection[str]:
        return list(self._lists.get(term, ()))

    def run(self, term: str, type: str, backwards: bool) -> Run:
        return list_run(self._lists.get(term, {}).get(type, NOTHING), self.after, self.up_to, backwards)
