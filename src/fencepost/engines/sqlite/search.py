"""Leapfrog: the positions that match a query, from sorted lists of positions.

A list is known only by its `Run`: a function that returns its next keys from a given key on. A key is a position, or
a negated position when the search goes backwards, so keys always ascend. To intersect several lists, each is asked
for its next key at or above the highest key that the others have reached. So the sparsest list sets the pace, and no
list is read in full.

A query that names many tags would walk along the same lists once for each of its items. It is answered by bitmaps
instead: for one window of positions after the other, each list becomes an integer with one bit for each position, and
the items are intersected with `&`. So each list is read once, whatever the number of items that name it.

The lists are in parts: the tail in memory and the generations on disk. A part knows which types occur with a term, so
an item without types becomes one target for each of those types. tests/sqlite/test_search.py and test_matching.py
compare the result with the definition of matching.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from heapq import merge
from itertools import groupby
from typing import Final, Protocol, TypeAlias, TypeVar

from ...model import Query, QueryItem
from . import sizes

Key = TypeVar("Key", bound=Hashable)

Run: TypeAlias = Callable[[int, int], list[int]]
"""`run(key, count)`: up to `count` keys at or above `key`, ascending; fewer only at the end."""

EVERY: Final = ""  # the term that every event has; no tag is empty


class Part(Protocol[Key]):
    """An index of the events with after < position <= up_to."""

    @property
    def after(self) -> int: ...

    @property
    def up_to(self) -> int: ...

    def type_key(self, type: str) -> Key | None:
        """The part's own key for the type; None if it has no events of that type."""

    def types_of(self, term: str) -> Collection[Key]:
        """The types of the events that have the term."""

    def run(self, term: str, type: Key, backwards: bool) -> Run:
        """The positions of the events with this term and type, as keys."""


def search(part: Part[Key], query: Query, *, backwards: bool = False) -> Iterator[int]:
    """The keys of the part's events that match the query; ascending, each once."""
    start = -part.up_to if backwards else part.after + 1
    targets = list(_targets(part, query.items))
    if sum(len(terms) for terms, _ in targets if len(terms) > 1) > sizes.LEAPFROG_TERMS:
        return _search_by_bitmaps(part, targets, backwards)
    found = [intersection([part.run(term, type, backwards) for term in terms], start) for terms, type in targets]
    if len(found) == 1:
        return found[0]
    return (key for key, _ in groupby(merge(*found)))


def _targets(part: Part[Key], items: Iterable[QueryItem]) -> Iterator[tuple[tuple[str, ...], Key]]:
    """The terms and the type of each list, or group of lists to intersect, that the search has to read."""
    seen = set()
    known: dict[str, Collection[Key]] = {}  # items share terms, and a part may run a statement to find its types
    for item in items:
        terms = tuple(sorted(item.tags)) or (EVERY,)
        types: Iterable[Key | None]
        if item.types:
            types = {part.type_key(type) for type in item.types}
        else:
            # A matching event has all of the tags and one type, so its type occurs with each of the tags.
            found: set[Key] = _types_of_all(part, terms, known)
            types = found
        for type in types:
            if type is not None and (terms, type) not in seen:
                seen.add((terms, type))
                yield terms, type


def _types_of_all(part: Part[Key], terms: Iterable[str], known: dict[str, Collection[Key]]) -> set[Key]:
    """The types that occur with each of the terms; stops at the first term that leaves none."""
    types: set[Key] | None = None
    for term in terms:
        if term not in known:
            known[term] = part.types_of(term)
        types = set(known[term]) if types is None else types.intersection(known[term])
        if not types:
            break
    assert types is not None, "an item has at least one term"
    return types


def _search_by_bitmaps(part: Part[Key], targets: list[tuple[tuple[str, ...], Key]], backwards: bool) -> Iterator[int]:
    """What `search` returns, by reading each list once for each window of positions."""
    runs = {(term, type): part.run(term, type, backwards) for terms, type in targets for term in terms}
    first, last = (-part.up_to, -part.after - 1) if backwards else (part.after + 1, part.up_to)
    start, width = first, sizes.MANY
    while start <= last:
        stop = min(start + width, last + 1)
        bitmaps: dict[tuple[str, Key], int] = {}
        found = 0
        for terms, type in targets:
            common = -1  # all bits are set
            # The lists that were read for other items come first: the others may then not be needed at all.
            for key in sorted(((term, type) for term in terms), key=lambda key: key not in bitmaps):
                if key not in bitmaps:
                    bitmaps[key] = _bitmap(runs[key], start, stop)
                common &= bitmaps[key]
                if not common:
                    break
            found |= common
        while found:
            lowest = found & -found
            yield start + lowest.bit_length() - 1
            found ^= lowest
        start, width = stop, min(2 * width, sizes.WINDOW)


def _bitmap(run: Run, start: int, stop: int) -> int:
    """The keys of the run from `start` to below `stop`: key `start + n` is bit n."""
    bits = bytearray((stop - start + 7) // 8)
    key, count = start, sizes.FEW
    while key < stop:
        keys = run(key, count)
        for each in keys:
            if each >= stop:
                return int.from_bytes(bits, "little")
            bits[(each - start) >> 3] |= 1 << ((each - start) & 7)
        if len(keys) < count:
            break
        key, count = keys[-1] + 1, min(2 * count, sizes.MANY)
    return int.from_bytes(bits, "little")


def list_run(positions: Sequence[int], after: int, up_to: int, backwards: bool) -> Run:
    """The run of a list in memory. Another thread may append positions above `up_to` meanwhile."""

    def forwards_from(key: int, count: int) -> list[int]:
        start = bisect_left(positions, key)
        keys = list(positions[start : start + count])
        if keys and keys[-1] > up_to:
            del keys[bisect_right(keys, up_to) :]
        return keys

    def backwards_from(key: int, count: int) -> list[int]:
        end = bisect_right(positions, -key)
        start = max(end - count, bisect_right(positions, after))
        return [-position for position in reversed(positions[start:end])]

    return backwards_from if backwards else forwards_from


def intersection(runs: list[Run], start: int) -> Iterator[int]:
    """The keys that are in all of the runs."""
    if len(runs) == 1:
        yield from _whole(runs[0], start)
        return
    cursors = [Cursor(run) for run in runs]
    key = start
    while True:
        highest: int | None = key
        for cursor in cursors:
            highest = cursor.seek(key)
            if highest is None:
                return
            if highest > key:
                break
        else:
            yield key
            highest = key + 1
        assert highest is not None
        key = highest


def _whole(run: Run, start: int) -> Iterator[int]:
    count = sizes.FEW
    while keys := run(start, count):
        yield from keys
        if len(keys) < count:
            return
        start, count = keys[-1] + 1, min(2 * count, sizes.MANY)


class Cursor:
    """A place in a run that only moves forward, with some keys read ahead."""

    __slots__ = ("_count", "_ended", "_index", "_keys", "_run")

    def __init__(self, run: Run) -> None:
        self._run = run
        self._keys: list[int] = []
        self._index = 0
        self._count = sizes.FEW
        self._ended = False

    def seek(self, key: int) -> int | None:
        """The first key at or above `key`, which must not be lower than in the last call."""
        if not self._keys or self._keys[-1] < key:
            if self._ended:
                return None
            self._keys, self._index = self._run(key, self._count), 0
            self._ended = len(self._keys) < self._count
            self._count = min(2 * self._count, sizes.MANY)
            if not self._keys:
                return None
        self._index = bisect_left(self._keys, key, self._index)
        return self._keys[self._index]
