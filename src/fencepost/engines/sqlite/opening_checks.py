"""Checks at opening: that the log still has its end, and that the index covers what it claims.

An event that is lost in the middle of the log leaves a gap, which every reader notices. Events that are lost at the
end leave none. So `check_end` looks at the last pages of the log: they must account for all their bytes, and their
keys must follow on those that the pages above name. It can do so only while there is no write-ahead log beside the
file, as after a clean close. From then on, `fetching.Head` remembers how far the log reached.

The table of generations is small, and a wrong number in it would hide events from every search, so it is checked as
a whole. tests/sqlite/test_damage.py holds both checks.
"""

from __future__ import annotations

from typing import Any, Final

import apsw

from ...errors import StoreCorrupt
from .checksums import WHAT_TO_DO
from .connections import run, snapshot, transaction, value
from .fetching import HEAD, check_table
from .files import size_of
from .page_file import TABLE_INTERIOR, TABLE_LEAF, Malformed, PageFile
from .search import EVERY

DEEPEST: Final = 20  # deeper than any B-tree of SQLite

COVERED: Final = """
SELECT 1 FROM events CROSS JOIN types ON types.type = events.type
CROSS JOIN postings ON postings.type = types.number AND postings.position = events.position
WHERE postings.generation = ? AND postings.term = ? AND events.position = ?
"""


def check_end(connection: apsw.Connection, path: str, vfs: str | None = None) -> None:
    """Raise StoreCorrupt if the last pages show that events are missing at the end of the log."""
    if size_of(f"{path}-wal") or _is_whole(connection, path, vfs):
        return
    with transaction(connection):  # another process may have appended meanwhile; from here on it cannot
        if not size_of(f"{path}-wal") and not _is_whole(connection, path, vfs):
            raise StoreCorrupt(f"{path}: the last pages of the log are damaged: events may be missing; {WHAT_TO_DO}")


def check_generations(connection: apsw.Connection, path: str) -> None:
    """Raise StoreCorrupt unless the ready generations follow each other from position 1 and index their last event."""
    with snapshot(connection):
        check_table(connection, "generations")
        head: int = value(connection, HEAD) or 0
        for problem in generation_problems(connection, head):
            raise StoreCorrupt(f"{path}: {problem}; {WHAT_TO_DO}")


def generation_problems(connection: apsw.Connection, head: int) -> list[str]:
    problems = []
    covered = 0
    for generation, first, last in run(
        connection, "SELECT generation, first, last FROM generations WHERE state = 'ready' ORDER BY first"
    ):
        if not _are_positions(first, last) or first != covered + 1 or last < first:
            problems.append(f"generation {generation} holds {first} to {last}, but {covered + 1} is next to be covered")
        if not _are_positions(last):
            break
        if last > head:
            problems.append(f"generation {generation} covers {last}, beyond the last event at {head}")
        elif not value(connection, COVERED, (generation, EVERY, last)):
            problems.append(f"generation {generation} says that it covers event {last}, which is not in its index")
        covered = last
    return problems


def _are_positions(*values: Any) -> bool:
    return all(isinstance(each, int) and each > 0 for each in values)


def _is_whole(connection: apsw.Connection, path: str, vfs: str | None) -> bool:
    """Whether the rightmost pages of the log account for all their bytes and hold the keys that follow."""
    number = value(connection, "SELECT rootpage FROM sqlite_schema WHERE name = 'events'")
    with PageFile(path, vfs=vfs) as pages:
        expected = 1
        try:
            for _ in range(DEEPEST):
                if not 0 < number <= pages.count or not pages.is_accounted_for(number):
                    return False
                if _first_key(pages, number) not in (expected, None):
                    return False
                if pages.kind(number) == TABLE_LEAF:
                    keys = [pages.table_cell(number, offset)[0] for offset in pages.cells(number)]
                    return keys == list(range(expected, expected + len(keys))) and bool(keys or expected == 1)
                *others, (number, _) = pages.children(number)
                expected = (others[-1][1] or 0) + 1 if others else expected
        except (Malformed, IndexError):
            pass
    return False


def _first_key(pages: PageFile, number: int) -> int | None:
    for _ in range(DEEPEST):
        if pages.kind(number) == TABLE_LEAF:
            first = next(pages.cells(number), None)
            return None if first is None else pages.table_cell(number, first)[0]
        if pages.kind(number) != TABLE_INTERIOR:
            break
        number = pages.children(number)[0][0]
        if not 0 < number <= pages.count:
            break
    raise Malformed
