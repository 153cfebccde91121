"""Merging generations, one small step at a time.

Eight ready generations of a level that lie side by side become one of the next level:

    1.  a building generation is inserted for their range;
    2.  step by step, their postings up to a mark are copied into it in the order of the key;
    3.  when all are copied it is ready and they are dead, in one transaction;
    4.  step by step, the dead generations are deleted.

Every step is a transaction that leaves a valid file, and the file says what the next step is. So any process can do
the next step, and a crash costs only the step that was under way. tests/sqlite/test_merging.py holds this.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import apsw

from . import sizes
from .connections import run, transaction

Mark: TypeAlias = tuple[Any, int, int]

BEGINNING: Final[Mark] = ("", -1, -1)  # below every posting
RANGE: Final = "generation = ? AND (term, type, position) > (?, ?, ?)"
PLACE: Final = "ORDER BY term, type, position LIMIT 1 OFFSET ?"


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
