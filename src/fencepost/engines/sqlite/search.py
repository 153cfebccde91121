"""Leapfrog: the positions that match a query, from sorted lists of positions.

A list is known only by its `Run`: a function that gives its next keys from some key on. A key is
a position, or a negated one when going backwards, so that keys always ascend and everything here
is written once. Where several lists must agree, each is asked for its next key at or above what
the others have reached: whoever is sparse makes the others jump, and no list is read in full.

Lists live in parts: the tail in memory and the generations on disk. A part knows the types that
occur with a term, which turns an item without types into targets with one (kernel: a bucket is
tags and a type), so that an item of one tag, with types or without, is never filtered.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from heapq import merge
from itertools import groupby
from typing import Final, Protocol, TypeAlias, TypeVar

from ...model import Query, QueryItem

Key = TypeVar("Key", bound=Hashable)

Run: TypeAlias = Callable[[int, int], list[int]]
"""`run(key, count)`: up to `count` keys at or above `key`, ascending; fewer only at the end."""

EVERY: Final = ""  # the term that every event has; no tag is empty

FEW: Final = 16  # what a run is asked for first, doubled each time, since most searches end soon
MANY: Final = 4_096


class Part(Protocol[Key]):
    """An index of the events with after < position <= upto."""

    @property
    def after(self) -> int: ...

    @property
    def upto(self) -> int: ...

    def type_key(self, type: str) -> Key | None:
        """What the part calls the type; None if it has no events of it."""

    def types_of(self, term: str) -> Collection[Key]:
        """The types of the events that have the term."""

    def run(self, term: str, type: Key, backwards: bool) -> Run:
        """The positions of the events with this term and type, as keys."""


def search(part: Part[Key], query: Query, *, backwards: bool = False) -> Iterator[int]:
    """The keys of the part's events that match the query; ascending, each once."""
    start = -part.upto if backwards else part.after + 1
    found = [
        intersection([part.run(term, type, backwards) for term in terms], start)
        for terms, type in _targets(part, query.items)
    ]
    if len(found) == 1:
        return found[0]
    return (key for key, _ in groupby(merge(*found)))


def _targets(part: Part[Key], items: Iterable[QueryItem]) -> Iterator[tuple[tuple[str, ...], Key]]:
    """The terms and the type of each list, or group of lists, that has to be looked at."""
    seen = set()
    for item in items:
        terms = tuple(sorted(item.tags)) or (EVERY,)
        types: Collection[Key | None]
        if item.types:
            types = {part.type_key(type) for type in item.types}
        else:
            # A matching event has all of the tags and one type: one that each tag occurs with.
            first, *others = (part.types_of(term) for term in terms)
            types = set(first).intersection(*others)
        for type in types:
            if type is not None and (terms, type) not in seen:
                seen.add((terms, type))
                yield terms, type


def list_run(positions: Sequence[int], after: int, upto: int, backwards: bool) -> Run:
    """The run of a list in memory. The list may grow meanwhile, but not below `upto`."""

    def forwards_from(key: int, count: int) -> list[int]:
        start = bisect_left(positions, key)
        keys = list(positions[start : start + count])
        if keys and keys[-1] > upto:
            del keys[bisect_right(keys, upto) :]
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
    count = FEW
    while keys := run(start, count):
        yield from keys
        if len(keys) < count:
            return
        start, count = keys[-1] + 1, min(2 * count, MANY)


class Cursor:
    """A place in a run that only moves on, with some keys read ahead."""

    __slots__ = ("_count", "_ended", "_index", "_keys", "_run")

    def __init__(self, run: Run) -> None:
        self._run = run
        self._keys: list[int] = []
        self._index = 0
        self._count = FEW
        self._ended = False

    def seek(self, key: int) -> int | None:
        """The first key at or above `key`; keys asked for must not descend."""
        if not self._keys or self._keys[-1] < key:
            if self._ended:
                return None
            self._keys, self._index = self._run(key, self._count), 0
            self._ended = len(self._keys) < self._count
            self._count = min(2 * self._count, MANY)
            if not self._keys:
                return None
        self._index = bisect_left(self._keys, key, self._index)
        return self._keys[self._index]
