"""The postings on disk, in generations.

With a single tree of postings, each batch of new postings would touch pages all over the file, and appends would get
slower as the file grows. So postings are kept in generations, each for a range of positions. New postings go into the
newest generation until it is full. A search asks every generation that its range of positions touches.

To keep their number small, generations of one level are merged into one of the next; see `merging`.
tests/sqlite/test_search.py holds searches to the definition of matching.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import cache
from itertools import chain
from typing import Any, Final

import apsw

from ...model import Query
from . import sizes
from .connections import run, value
from .search import EVERY, Run, list_run
from .tail import Tail

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
# The postings of a range of events, each kind in the order of the key, and the kinds in that order too: the empty term,
# tags, ids. SQLite sorts texts before blobs. So every statement adds to the end of what the one before it has inserted.
INDEXING: Final = tuple(
    f"""
INSERT INTO postings SELECT ?1, {term}, types.number, events.position
FROM events CROSS JOIN types ON types.type = events.type {source}
WHERE events.position > ?2 AND events.position <= ?3 {condition} ORDER BY 2, 3, 4
"""
    for term, source, condition in (
        ("''", "", ""),
        ("json_each.value", "CROSS JOIN json_each(events.tags)", ""),
        ("events.id", "", "AND events.id IS NOT NULL"),
    )
)
NEW_TYPES: Final = """
INSERT INTO types (type) SELECT DISTINCT type FROM events
WHERE position > ? AND position <= ? AND type NOT IN (SELECT type FROM types)
"""
BACKWARDS: Final = """
SELECT -position FROM postings
WHERE generation = ? AND term = ? AND type = ? AND position > ? AND position <= ? ORDER BY position DESC LIMIT ?
"""


class Types:
    """The numbers of types. A number never changes, so it is kept once it is known."""

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
        """The number of the type, assigned now if it has none. The caller may roll back, so it is not kept."""
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
        """All positions of a rare term by type, fetched with one statement; None if the term is not rare."""
        if term not in self._known:
            rows = [] if term == EVERY else run(self._connection, WHOLE, (self._generation, term, sizes.RARE + 1))
            lists: dict[int, list[int]] | None = None
            if term != EVERY and len(rows) <= sizes.RARE:
                lists = {}
                for type, position in rows:
                    lists.setdefault(type, []).append(position)
            self._known[term] = lists
        return self._known[term]


def shortlist(
    connection: apsw.Connection, types: Types, query: Query, after: int, upto: int, most: int | None = None
) -> list[int] | None:
    """Candidates with after < position <= upto, ascending, which include all that match; None if there are many.

    A matching event has every tag of an item, so the list of one tag is enough, and most lists are short: one
    statement instead of a search. The other tags of the item are not looked up. So the caller has to test the
    candidates, unless each item has just one tag.
    """
    if most is None:
        most = sizes.RARE
    found: list[int] = []
    for item in query.items:
        for tag in item.tags:
            rows = run(connection, SHORT, (after, upto, tag, most + 1))
            if len(rows) <= most:
                break
        else:
            return None
        if item.types and rows:
            numbers = {types.number(connection, type) for type in item.types}
            rows = [row for row in rows if row[0] in numbers]
        found += [position for _, position in rows if after < position <= upto]
    return sorted(set(found))


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
    """The last position that is in a generation. Events above it belong to the tail."""
    return value(connection, "SELECT coalesce(max(last), 0) FROM generations WHERE state = 'ready'")  # type: ignore[no-any-return]


def position_of(connection: apsw.Connection, id: bytes) -> int | None:
    return value(  # type: ignore[no-any-return]
        connection,
        "SELECT postings.position FROM generations CROSS JOIN postings USING (generation)"
        " WHERE generations.state = 'ready' AND postings.term = ?",
        (id,),
    )


def write_tail(connection: apsw.Connection, types: Types, tail: Tail) -> None:
    """Write the tail's postings into the newest generation, in the caller's transaction."""
    generation = _extended(connection, tail.floor + 1, tail.head)
    insert_many(connection, "postings", list(_postings(connection, types, tail, generation)))


def index_events(connection: apsw.Connection, after: int, upto: int) -> None:
    """Write the postings of the events with after < position <= upto, in the caller's transaction.

    For many events at once: SQLite makes and sorts the postings from the rows of the events, which takes less time than
    a tail of that length, needs no memory for one, and lets other threads of this process run meanwhile.
    """
    run(connection, NEW_TYPES, (after, upto))
    generation = _extended(connection, after + 1, upto)
    for statement in INDEXING:
        run(connection, statement, (generation, after, upto))


def _extended(connection: apsw.Connection, first: int, last: int) -> int:
    """The generation that now covers these positions too: the newest one if it is not full, else a new one."""
    newest = connection.execute(
        "SELECT generation, level, first FROM generations WHERE state = 'ready' ORDER BY last DESC LIMIT 1"
    ).get
    if newest is not None and newest[1] == 0 and first - newest[2] < sizes.GENERATION_EVENTS:
        run(connection, "UPDATE generations SET last = ? WHERE generation = ?", (last, newest[0]))
        return newest[0]  # type: ignore[no-any-return]
    run(connection, "INSERT INTO generations (state, level, first, last) VALUES ('ready', 0, ?, ?)", (first, last))
    return connection.last_insert_rowid()


def _postings(
    connection: apsw.Connection, types: Types, tail: Tail, generation: int
) -> Iterator[tuple[int, str | bytes, int, int]]:
    """The tail's postings in the order of the primary key, so that inserting them passes over the tree once."""
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
    """Insert whole rows, many with one statement."""
    batch = sizes.INSERT_ROWS
    whole = len(rows) - len(rows) % batch
    if whole:
        slices = (rows[start : start + batch] for start in range(0, whole, batch))
        full = _insertion(table, len(rows[0]), batch)
        connection.executemany(full, (tuple(chain.from_iterable(some)) for some in slices))
    rest = rows[whole:]
    if rest:
        run(connection, _insertion(table, len(rest[0]), len(rest)), tuple(chain.from_iterable(rest)))


@cache
def _insertion(table: str, columns: int, rows: int) -> str:
    row = f"({', '.join('?' * columns)})"
    return f"INSERT INTO {table} VALUES {', '.join([row] * rows)}"
