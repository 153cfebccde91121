"""The postings on disk, in generations.

With a single tree of postings, each batch of new postings would touch pages all over the file, and appends would get
slower as the file grows. So postings are kept in generations, each for a range of positions. New postings go into the
newest generation until it is full. A search asks every generation that its range of positions touches.

To keep their number small, eight ready generations of a level that lie side by side become one of the next level:

    1.  a building generation is inserted for their range;
    2.  step by step, their postings up to a mark are copied into it in the order of the key;
    3.  when all are copied it is ready and they are dead, in one transaction;
    4.  step by step, the dead generations are deleted.

Every step is a transaction that leaves a valid file, and the file says what the next step is. So any process can do
the next step. tests/sqlite/test_search.py and test_merging.py check this.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import cache
from itertools import chain
from typing import Any, Final, TypeAlias

import apsw

from ...model import Query
from . import sizes
from .connections import run, transaction, value
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
POSTINGS_OF: Final = tuple(
    f"""
SELECT {term} AS term, types.number AS number, events.position AS position, events.type AS type
FROM events LEFT JOIN types ON types.type = events.type {source}
WHERE events.position > ?2 AND events.position <= ?3 {condition} ORDER BY 1, 2, 3
"""
    for term, source, condition in (
        ("''", "", ""),
        ("json_each.value", "CROSS JOIN json_each(events.tags)", ""),
        ("events.id", "", "AND events.id IS NOT NULL"),
    )
)
INDEXING: Final = tuple(
    f"INSERT INTO postings SELECT ?1, term, number, position FROM ({postings})" for postings in POSTINGS_OF
)
NEW_TYPES: Final = """
INSERT INTO types (type) SELECT DISTINCT type FROM events
WHERE position > ? AND position <= ? AND type NOT IN (SELECT type FROM types)
"""
BACKWARDS: Final = """
SELECT -position FROM postings
WHERE generation = ? AND term = ? AND type = ? AND position > ? AND position <= ? ORDER BY position DESC LIMIT ?
"""

Mark: TypeAlias = tuple[Any, int, int]

BEGINNING: Final[Mark] = ("", -1, -1)  # below every posting
RANGE: Final = "generation = ? AND (term, type, position) > (?, ?, ?)"
PLACE: Final = "ORDER BY term, type, position LIMIT 1 OFFSET ?"


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

    def __init__(self, connection: apsw.Connection, types: Types, generation: int, after: int, up_to: int) -> None:
        self.after = after
        self.up_to = up_to
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
            return list_run(whole.get(type, ()), self.after, self.up_to, backwards)
        execute, generation, after, up_to = self._connection.execute, self._generation, self.after, self.up_to

        def forwards_from(key: int, count: int) -> list[int]:
            return [key for (key,) in execute(FORWARDS, (generation, term, type, key, up_to, count))]

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
    connection: apsw.Connection, types: Types, query: Query, after: int, up_to: int, most: int | None = None
) -> list[int] | None:
    """Candidates with after < position <= up_to, ascending, which include all that match; None if there are many.

    A matching event has every tag of an item, so the list of one tag is enough, and most lists are short: one
    statement instead of a search. The other tags of the item are not looked up. So the caller has to test the
    candidates, unless each item has just one tag.
    """
    if most is None:
        most = sizes.RARE
    found: list[int] = []
    for item in query.items:
        for tag in item.tags:
            rows = run(connection, SHORT, (after, up_to, tag, most + 1))
            if len(rows) <= most:
                break
        else:
            return None
        if item.types and rows:
            numbers = {types.number(connection, type) for type in item.types}
            rows = [row for row in rows if row[0] in numbers]
        found += [position for _, position in rows if after < position <= up_to]
    return sorted(set(found))


def ready_parts(
    connection: apsw.Connection, types: Types, after: int, up_to: int, *, backwards: bool = False
) -> list[GenerationPart]:
    """The generations that hold postings with after < position <= up_to, in the order of a search."""
    rows = run(
        connection,
        "SELECT generation, first - 1, last FROM generations"
        " WHERE state = 'ready' AND last > ? AND first <= ? ORDER BY first",
        (after, up_to),
    )
    if backwards:
        rows.reverse()
    return [
        GenerationPart(connection, types, generation, max(before, after), min(last, up_to))
        for generation, before, last in rows
    ]


def indexed_up_to(connection: apsw.Connection) -> int:
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


def index_events(connection: apsw.Connection, after: int, up_to: int) -> None:
    """Write the postings of the events with after < position <= up_to, in the caller's transaction.

    For many events at once: SQLite makes and sorts the postings from the rows of the events, which takes less time than
    a tail of that length, needs no memory for one, and lets other threads of this process run meanwhile.
    """
    run(connection, NEW_TYPES, (after, up_to))
    generation = _extended(connection, after + 1, up_to)
    for statement in INDEXING:
        run(connection, statement, (generation, after, up_to))


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


def merge_step(connection: apsw.Connection) -> bool:
    """Do one step of merging; returns False if there was nothing to do."""
    with transaction(connection):
        return _delete_some(connection) or _copy_some(connection) or _begin(connection)


def _begin(connection: apsw.Connection) -> bool:
    """Insert a building generation for the oldest run of enough neighbours of one level."""
    ready = run(connection, "SELECT level, first, last FROM generations WHERE state = 'ready' ORDER BY first")
    # The newest generation still grows, so it is left out.
    for start in range(len(ready) - sizes.MERGED):
        chosen = ready[start : start + sizes.MERGED]
        level = chosen[0][0]
        if all(row[0] == level for row in chosen):
            run(
                connection,
                "INSERT INTO generations (state, level, first, last, mark_term, mark_type, mark_position)"
                " VALUES ('building', ?, ?, ?, ?, ?, ?)",
                (level + 1, chosen[0][1], chosen[-1][2], *BEGINNING),
            )
            return True
    return False


def _copy_some(connection: apsw.Connection) -> bool:
    building = connection.execute(
        "SELECT generation, first, last, mark_term, mark_type, mark_position FROM generations WHERE state = 'building'"
    ).get
    if building is None:
        return False
    target, first, last, *mark = building
    inside = "state = 'ready' AND first >= ? AND last <= ?"
    sources = [row[0] for row in run(connection, f"SELECT generation FROM generations WHERE {inside}", (first, last))]
    bound = _bound(connection, sources, tuple(mark))
    upper = "" if bound is None else " AND (term, type, position) <= (?, ?, ?)"
    parts = " UNION ALL ".join(f"SELECT term, type, position FROM postings WHERE {RANGE}{upper}" for _ in sources)
    bindings = [value for source in sources for value in (source, *mark, *(bound or ()))]
    run(
        connection,
        f"INSERT INTO postings SELECT {target}, term, type, position FROM ({parts}) ORDER BY term, type, position",
        bindings,
    )
    if bound is not None:
        run(
            connection,
            "UPDATE generations SET mark_term = ?, mark_type = ?, mark_position = ? WHERE generation = ?",
            (*bound, target),
        )
    else:
        run(connection, f"UPDATE generations SET state = 'dead' WHERE {inside}", (first, last))
        run(
            connection,
            "UPDATE generations SET state = 'ready', mark_term = NULL, mark_type = NULL, mark_position = NULL"
            " WHERE generation = ?",
            (target,),
        )
    return True


def _bound(connection: apsw.Connection, sources: list[int], mark: Mark) -> Mark | None:
    """How far a step may go: one source advances by its share, no source by more. None means to the end."""
    share = sizes.STEP_POSTINGS // len(sources)
    after_share = f"SELECT term, type, position FROM postings WHERE {RANGE} {PLACE}"
    places = [connection.execute(after_share, (source, *mark, share)).get for source in sources]
    reached = [place for place in places if place is not None]
    return min(reached, key=_order) if reached else None


def _order(place: Mark) -> tuple[bool, Any, int, int]:
    """As SQLite orders the key: texts before blobs, by code point, which is the order of their bytes."""
    term, type, position = place
    return isinstance(term, bytes), term, type, position


def _delete_some(connection: apsw.Connection) -> bool:
    dead = connection.execute("SELECT min(generation) FROM generations WHERE state = 'dead'").get
    if dead is None:
        return False
    place = connection.execute(
        f"SELECT term, type, position FROM postings WHERE generation = ? {PLACE}",
        (dead, sizes.STEP_POSTINGS),
    ).get
    if place is not None:
        run(
            connection,
            "DELETE FROM postings WHERE generation = ? AND (term, type, position) <= (?, ?, ?)",
            (dead, *place),
        )
    else:
        run(connection, "DELETE FROM postings WHERE generation = ?", (dead,))
        run(connection, "DELETE FROM generations WHERE generation = ?", (dead,))
    return True
