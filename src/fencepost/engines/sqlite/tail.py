"""The newest events' postings, in memory.

Nearly every condition asks about events since a moment ago, so this is where nearly all of them
are answered, with no I/O. The tail holds the postings of every event above its floor; those up to
the floor are in the generations on disk. When it has grown long enough it is written there in
one sorted sweep, and a new tail begins.

The events themselves are kept along, unless they are large: what was written a moment ago is what is read most.

Only the committing thread adds. Others search at the same time, up to a position that is
committed, and see nothing of what has been staged above it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator
from typing import Final, NamedTuple, TypeAlias

from ...model import Query
from .search import EVERY, Run, list_run, search

NOTHING: Final[list[int]] = []
KEPT_BYTES: Final = 1_024  # of data: a larger event is read from the file

# The columns of an event, as `SequencedEvent` takes them.
Stored: TypeAlias = tuple[int, str, str, bytes, int, bytes | None, str | None]


class Tail:
    def __init__(self, floor: int) -> None:
        self.floor = floor
        self.head = floor
        self._lists: dict[str, dict[str, list[int]]] = {EVERY: {}}
        self._positions: dict[bytes, int] = {}
        self._added: list[tuple[str, Collection[str], bytes | None]] = []
        self._stored: list[Stored | None] = []

    def __len__(self) -> int:
        return len(self._added)

    def add(self, type: str, tags: Collection[str], id: bytes | None, stored: Stored | None = None) -> None:
        """The event at the next position; `stored` is what it will be read as."""
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
        self._stored.append(stored if stored is not None and len(stored[3]) <= KEPT_BYTES else None)

    def cut(self, head: int) -> None:
        """Take back everything above `head`."""
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

    def stored(self, position: int) -> Stored | None:
        """The event at the position, which is above the floor, if it is at hand."""
        return self._stored[position - self.floor - 1]

    def positions(self, query: Query, after: int, upto: int, most: int) -> list[int] | None:
        """Those with after < position <= upto that match, ascending; None if they are more. Items have one tag each."""
        found: list[int] = []
        for item in query.items:
            (tag,) = item.tags
            by_type = self._lists.get(tag, {})
            for type in item.types or list(by_type):
                positions = by_type.get(type, NOTHING)
                if positions and positions[-1] > after:
                    found += positions[bisect_right(positions, after) : bisect_right(positions, upto)]
                    if len(found) > most:
                        return None
        return sorted(set(found))

    def first_match(self, query: Query, after: int) -> int | None:
        """The lowest position above `after` that matches, staged events included."""
        first: int | None = None
        for item in query.items:
            terms = item.tags or (EVERY,)
            if len(terms) == 1 and len(item.types) < 2:
                # The usual shapes, without the machinery: the answer is in the last place or nowhere.
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
                found = next(search(TailPart(self, after, self.head), Query((item,))), None)
                if found is not None and (first is None or found < first):
                    first = found
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


class View(NamedTuple):
    """The tail, and the position up to which it is committed.

    `older` is the tail before, which is on disk by now: what a decision has read a moment ago is not far above the
    floor of either. Its head is at or above the floor of the tail.
    """

    tail: Tail
    committed: int
    older: Tail | None

    def grown(self) -> View:
        """With everything committed that was added."""
        return self._replace(committed=self.tail.head)


class TailPart:
    """The tail between two positions, as a part to search."""

    def __init__(self, tail: Tail, after: int, upto: int) -> None:
        self.after = after
        self.upto = upto
        self._lists = tail._lists

    def type_key(self, type: str) -> str:
        return type

    def types_of(self, term: str) -> Collection[str]:
        return list(self._lists.get(term, ()))

    def run(self, term: str, type: str, backwards: bool) -> Run:
        return list_run(self._lists.get(term, {}).get(type, NOTHING), self.after, self.upto, backwards)
