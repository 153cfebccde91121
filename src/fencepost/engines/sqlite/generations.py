"""The postings on disk, in generations.

One ever-growing tree of postings would make each new batch of them touch a page almost anywhere
in the file: slower and slower. So postings are kept by generation, each for a range of positions.
New postings go into the newest generation until it is full; the older ones rest, and a search
asks each of those that its range of positions touches.

So that there are never many, generations of one level are merged into one of the next. That is
the slow part, and it is done in small steps between commits. Each step is a transaction of its
own that leaves a valid file, and where the next one goes on is in the file too: any process can
take it, and a crash costs nothing but the step.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import cache
from itertools import chain
from typing import Any, Final

import apsw

from ...model import Query
from .files import run, value
from .search import EVERY, Run, list_run
from .tail import Tail

GENERATION_EVENTS: Final = 131_072  # what a generation of level 0 holds before the next one begins
MERGED: Final = 8  # so many of one level become one of the next
STEP_POSTINGS: Final = 20_000  # moved or deleted in one step: some ten milliseconds
RARE: Final = 64  # a term with so many postings in a generation is read as a whole
ROWS: Final = 64  # in one INSERT, which is what makes it fast

TYPES_OF: Final = """
WITH RECURSIVE step (type) AS (
    SELECT min(type) FROM postings WHERE generation = ?1 AND term = ?2
    UNION ALL
    SELECT (SELECT min(type) FROM postings WHERE generation = ?1 AND term = ?2 AND type > step.type)
    FROM step WHERE type IS NOT NULL
)
SELECT type FROM step WHERE type IS NOT NULL
"""
WHOLE: Final = "SELECT type, position FROM postings WHERE generation = ? AND term = ? LIMIT ?"
FORWARDS: Final = """
SELECT position FROM postings
WHERE generation = ? AND term = ? AND type = ? AND position BETWEEN ? AND ? ORDER BY position LIMIT ?
"""
SHORT: Final = """
SELECT postings.type, postings.position FROM generations CROSS JOIN postings USING (generation)
WHERE generations.state = 'ready' AND generations.last > ? AND generations.first <= ? AND postings.term = ? LIMIT ?
"""
BACKWARDS: Final = """
SELECT -position FROM postings
WHERE generation = ? AND term = ? AND type = ? AND position > ? AND position <= ? ORDER BY position DESC LIMIT ?
"""


class Types:
    """The numbers of types. They never change, so what is known stays known."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def number(self, connection: apsw.Connection, type: str) -> int | None:
        number = self._numbers.get(type)
        if number is None:
            number = value(connection, "SELECT number FROM types WHERE type = ?", (type,))
            if number is not None:
                self._numbers[type] = number
        return number

    def assign(self, connection: apsw.Connection, type: str) -> int:
        """The type's number, a new one if it has none. In the caller's transaction, so it is not kept."""
        number = self.number(connection, type)
        if number is None:
            run(connection, "INSERT INTO types (type) VALUES (?)", (type,))
            number = connection.last_insert_rowid()
        return number


class GenerationPart:
    """One generation between two positions, as a part to search; valid within one read transaction."""

    def __init__(self, connection: apsw.Connection, types: Types, generation: int, after: int, upto: int) -> None:
        self.after = after
        self.upto = upto
        self._connection = connection
        self._types = types
        self._generation = generation
        self._known: dict[str, dict[int, list[int]] | None] = {}

    def type_key(self, type: str) -> int | None:
        return self._types.number(self._connection, type)

    def types_of(self, term: str) -> Collection[int]:
        whole = self._whole(term)
        if whole is not None:
            return whole
        return [number for (number,) in self._connection.execute(TYPES_OF, (self._generation, term))]

    def run(self, term: str, type: int, backwards: bool) -> Run:
        whole = self._whole(term)
        if whole is not None:
            return list_run(whole.get(type, ()), self.after, self.upto, backwards)
        execute, generation, after, upto = self._connection.execute, self._generation, self.after, self.upto

        def forwards_from(key: int, count: int) -> list[int]:
            return [key for (key,) in execute(FORWARDS, (generation, term, type, key, upto, count))]

        def backwards_from(key: int, count: int) -> list[int]:
            return [key for (key,) in execute(BACKWARDS, (generation, term, type, after, -key, count))]

        return backwards_from if backwards else forwards_from

    def _whole(self, term: str) -> dict[int, list[int]] | None:
        """All positions of a rare term by type, which one statement fetches; None if it is not rare."""
        if term not in self._known:
            rows = [] if term == EVERY else run(self._connection, WHOLE, (self._generation, term, RARE + 1))
            lists: dict[int, list[int]] | None = None
            if term != EVERY and len(rows) <= RARE:
                lists = {}
                for type, position in rows:
                    lists.setdefault(type, []).append(position)
            self._known[term] = lists
        return self._known[term]


def shortlist(
    connection: apsw.Connection, types: Types, query: Query, after: int, upto: int, most: int | None = None
) -> list[int] | None:
    """Positions after < position <= upto among which are all that match the query, ascending; None if it is long.

    A matching event has every tag of an item, so the list of one tag is enough, and most are
    short: one statement instead of a search. The other tags of the item are not looked at, so
    what matches is for the caller to find out, unless each item names just one.
    """
    if most is None:
        most = RARE
    found: set[int] = set()
    for item in query.items:
        for tag in item.tags:
            rows = run(connection, SHORT, (after, upto, tag, most + 1))
            if len(rows) <= most:
                break
        else:
            return None
        numbers = {types.number(connection, type) for type in item.types} if rows else ()
        found.update(
            position for type, position in rows if after < position <= upto and (not numbers or type in numbers)
        )
    return sorted(found)


def ready_parts(
    connection: apsw.Connection, types: Types, after: int, upto: int, *, backwards: bool = False
) -> list[GenerationPart]:
    """The generations that hold postings with after < position <= upto, in the order of a search."""
    rows = run(
        connection,
        "SELECT generation, first - 1, last FROM generations"
        " WHERE state = 'ready' AND last > ? AND first <= ? ORDER BY first",
        (after, upto),
    )
    if backwards:
        rows.reverse()
    return [
        GenerationPart(connection, types, generation, max(before, after), min(last, upto))
        for generation, before, last in rows
    ]


def indexed_upto(connection: apsw.Connection) -> int:
    """The last position that is in a generation; what is above belongs to the tail."""
    return value(connection, "SELECT coalesce(max(last), 0) FROM generations WHERE state = 'ready'")  # type: ignore[no-any-return]


def position_of(connection: apsw.Connection, id: bytes) -> int | None:
    return value(  # type: ignore[no-any-return]
        connection,
        "SELECT postings.position FROM generations CROSS JOIN postings USING (generation)"
        " WHERE generations.state = 'ready' AND postings.term = ?",
        (id,),
    )


def write_tail(connection: apsw.Connection, types: Types, tail: Tail) -> None:
    """Put the tail's postings into the newest generation, in the caller's transaction."""
    newest = connection.execute(
        "SELECT generation, level, first FROM generations WHERE state = 'ready' ORDER BY last DESC LIMIT 1"
    ).get
    if newest is not None and newest[1] == 0 and tail.floor - newest[2] + 1 < GENERATION_EVENTS:
        generation = newest[0]
        run(connection, "UPDATE generations SET last = ? WHERE generation = ?", (tail.head, generation))
    else:
        run(
            connection,
            "INSERT INTO generations (state, level, first, last) VALUES ('ready', 0, ?, ?)",
            (tail.floor + 1, tail.head),
        )
        generation = connection.last_insert_rowid()
    insert_many(connection, "postings", list(_postings(connection, types, tail, generation)))


def _postings(
    connection: apsw.Connection, types: Types, tail: Tail, generation: int
) -> Iterator[tuple[int, str | bytes, int, int]]:
    """In the order of the primary key, so that inserting them sweeps over the tree once."""
    numbers: dict[str, int] = {}
    for term, lists in tail.terms():
        for type in lists:
            if type not in numbers:
                numbers[type] = types.assign(connection, type)
        for type in sorted(lists, key=numbers.__getitem__):
            number = numbers[type]
            for position in lists[type]:
                yield generation, term, number, position
    for id, type, position in tail.ids():
        yield generation, id, numbers[type], position


def insert_many(connection: apsw.Connection, table: str, rows: list[tuple[Any, ...]]) -> None:
    """Multi-row INSERTs: one statement a row costs several times as much."""
    whole = len(rows) - len(rows) % ROWS
    if whole:
        slices = (rows[start : start + ROWS] for start in range(0, whole, ROWS))
        full = _insertion(table, len(rows[0]), ROWS)
        connection.executemany(full, (tuple(chain.from_iterable(some)) for some in slices))
    rest = rows[whole:]
    if rest:
        run(connection, _insertion(table, len(rest[0]), len(rest)), tuple(chain.from_iterable(rest)))


@cache
def _insertion(table: str, columns: int, rows: int) -> str:
    row = f"({', '.join('?' * columns)})"
    return f"INSERT INTO {table} VALUES {', '.join([row] * rows)}"
