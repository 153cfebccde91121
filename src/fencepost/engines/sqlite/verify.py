"""Checks a whole file and returns a report, whatever the bytes are. The file is not changed.

All checks run in one read transaction, beside processes that write. SQLite's integrity check reads every page that
is in use, and with it its checksum (`page_checksums`). Then SQL statements look up every posting that an event implies
and count the postings. Postings are unique, so if all that are needed exist and their number is right, the index is
exactly what the events imply. Each problem names the damaged part: the index can be built again from the log, the log
cannot. tests/sqlite/test_verify_and_salvage.py and tests/torture/damage.py check this.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from contextlib import closing
from typing import Any, Final

import apsw

from ...core import record_keys
from ...core.address import Address
from ...core.file_tools import FILE, LOG, PROBLEMS, Report
from ...errors import InvalidInput, StoreCorrupt
from ...model import RecordedAppend
from .connections import run, storage_errors, value
from .event_rows import HEAD, check_end
from .files import check_format, empty, look_at
from .generations import POSTINGS_OF
from .page_checksums import check_pages, is_damage, unreadable_pages
from .readonly import connect_unchanged
from .recorded_appends import append_of, is_recorded
from .remains import READ_ERRORS, extend, has_checked_pages, readable_positions
from .write_ahead_log import damaged_frame

TIMEOUT_S: Final = 10.0
CHUNK_EVENTS: Final = 10_000  # events whose postings are looked up between two calls of `on_progress`

INDEX, RECORDS, CONDITIONS = "index", "records", "conditions"
PARTS: Final = {
    "events": LOG,
    "closed": LOG,
    "postings": INDEX,
    "types": INDEX,
    "sqlite_autoindex_types_1": INDEX,
    "generations": INDEX,
    "records": RECORDS,
    "appends": CONDITIONS,
}
TREE: Final = re.compile(r"Tree (\d+) ")

GAPS: Final = """
SELECT before, position FROM (SELECT position, lag(position, 1, 0) OVER (ORDER BY position) AS before FROM events)
WHERE position <> before + 1 LIMIT ?
"""
IDS_TWICE: Final = """
SELECT hex(id), min(position), max(position) FROM events WHERE id IS NOT NULL GROUP BY id HAVING count(*) > 1 LIMIT ?
"""
TERMS: Final = """
SELECT count(*) + coalesce(sum(json_array_length(tags)), 0) + count(id) FROM events WHERE position BETWEEN ? AND ?
"""
# A term of an event that has no posting in the generation, for each kind of term.
MISSING: Final = tuple(
    f"""
SELECT position, term, type FROM ({postings}) AS needed WHERE NOT EXISTS (
    SELECT 1 FROM postings WHERE generation = ?1 AND term = needed.term AND type = needed.number
    AND position = needed.position
) LIMIT ?4
"""
    for postings in POSTINGS_OF
)
SURPLUS: Final = """
SELECT postings.term, postings.position FROM generations CROSS JOIN postings USING (generation)
LEFT JOIN events USING (position) LEFT JOIN types ON types.number = postings.type
WHERE generations.state = 'ready' AND (
    events.position IS NULL OR types.type IS NOT events.type
    OR NOT (postings.term = '' OR postings.term IS events.id
            OR postings.term IN (SELECT value FROM json_each(events.tags)))
) LIMIT ?
"""


def verify(path: str | os.PathLike[str] | Address, *, on_progress: Callable[[int, int], None] | None = None) -> Report:
    """Check every page, every event and every posting. `on_progress(done, all)` is called from time to time."""
    address = Address.parse(path)
    name = address.path
    report = Report(name)
    try:
        look_at(name, create=False)
    except StoreCorrupt as error:
        report.add(FILE, "file", str(error))
        return report
    with storage_errors(name):
        try:
            with closing(connect_unchanged(name, read_only=address.read_only, timeout_s=TIMEOUT_S)) as connection:
                run(connection, "BEGIN")  # one state of the file; closing ends it
                if not check_format(connection, name):
                    raise empty(name)
                frame = damaged_frame(f"{os.path.realpath(name)}-wal")
                if frame is not None:
                    what = f"frame {frame} is damaged; SQLite ignores it and all frames behind it"
                    report.add(LOG, "write-ahead log", what)
                _Verification(connection, report, on_progress).run()
        except (apsw.BusyError, apsw.LockedError):
            raise
        except StoreCorrupt as error:
            report.add(FILE, "page 1", str(error))
        except apsw.NotADBError:
            if not has_checked_pages(name):
                raise
            report.add(FILE, "page 1", "the header is not one of SQLite, but other pages are those of a store")
        except apsw.Error as error:
            what = "does not agree with its checksum" if is_damage(error) else f"SQLite cannot read it: {error}"
            report.add(FILE, "page 1", f"{what}; without it SQLite cannot open the file")
    return report


class _Verification:
    """One pass over all tables, in one transaction of the connection."""

    def __init__(
        self, connection: apsw.Connection, report: Report, on_progress: Callable[[int, int], None] | None
    ) -> None:
        self._connection = connection
        self._report = report
        self._on_progress = on_progress or (lambda done, all: None)

    def run(self) -> None:
        check_pages(self._connection, self._report.path)
        self._check_structure()
        for part, where, check in (
            (LOG, "events", self._check_events),
            (INDEX, "generations", self._check_generations),
            (INDEX, "postings", self._check_postings),
            (RECORDS, "records", self._check_records),
            (CONDITIONS, "appends", self._check_appends),
        ):
            try:
                check()
            except READ_ERRORS as error:
                known = is_damage(error) or any(problem.part in (part, FILE) for problem in self._report.problems)
                if self._report.sound or not known:
                    self._report.add(part, where, f"cannot be read to the end: {error}")

    def _check_structure(self) -> None:
        names = dict(run(self._connection, "SELECT rootpage, name FROM sqlite_schema"))
        try:
            for (text,) in self._connection.execute(f"PRAGMA integrity_check({PROBLEMS})"):
                for line in text.splitlines():
                    self._add_line(line, names)
        except READ_ERRORS as error:
            if self._report.sound:  # otherwise SQLite has already named what stops it
                self._report.add(FILE, "file", f"cannot be checked to the end: {error}")

    def _add_line(self, line: str, names: dict[int, str]) -> None:
        """Add what the integrity check says, unless it follows from another problem."""
        if line == "ok" or line.startswith("***") or (line.endswith("never used") and not self._report.sound):
            return
        tree = TREE.match(line)
        if tree is None:
            part = next((part for name, part in PARTS.items() if re.search(rf"\b{name}\b", line)), FILE)
            where, name = "file", ""
        else:
            name = names.get(int(tree[1]), f"tree {tree[1]}")
            part, where = PARTS.get(name, FILE), name
        for page in unreadable_pages(line):
            where, line = f"page {page}", f"does not agree with its checksum, or cannot be read; it belongs to {name}"
        self._report.add(part, where, TREE.sub("", line))

    def _check_events(self) -> None:
        connection, report = self._connection, self._report
        try:
            head, report.events = connection.execute("SELECT coalesce(max(position), 0), count(*) FROM events").get
            for before, position in run(connection, GAPS, (PROBLEMS,)):
                what = f"is missing; the next event is at {position}"
                report.add(LOG, f"position {before + 1}", what)
            check_end(connection, report.path)
        except StoreCorrupt as error:
            report.add(LOG, "end of the log", str(error))
        finally:
            if report.log_is_sound:
                report.whole = [(1, head)] if head else []
            else:
                for position in readable_positions(connection):
                    extend(report.whole, position)
                report.events = sum(last - first + 1 for first, last in report.whole)
        for id, first, last in run(connection, IDS_TWICE, (PROBLEMS,)):
            report.add(LOG, f"id {id}", f"is at position {first} and again at {last}")

    def _check_generations(self) -> None:
        head = value(self._connection, HEAD) or 0
        covered = 0
        for generation, first, last in self._ready():
            if first != covered + 1 or not first <= last <= head:
                what = f"covers {first} to {last}, where {covered + 1} is next and the head is {head}"
                self._report.add(INDEX, f"generation {generation}", what)
            covered = last

    def _ready(self) -> list[Any]:
        sql = "SELECT generation, first, last FROM generations WHERE state = 'ready' ORDER BY first"
        return run(self._connection, sql)

    def _check_postings(self) -> None:
        connection, report = self._connection, self._report
        head = value(connection, HEAD) or 0
        for generation, first, last in self._ready():
            for begin in range(first, last + 1, CHUNK_EVENTS):
                end = min(begin + CHUNK_EVENTS - 1, last)
                for missing in MISSING:
                    for position, term, type in run(connection, missing, (generation, begin - 1, end, PROBLEMS)):
                        what = f"has no posting for {_named(term)} and type {type!r} in generation {generation}"
                        report.add(INDEX, f"event {position}", what)
                report.postings += value(connection, TERMS, (begin, end))
                self._on_progress(end, head)
        counted = "SELECT count(*) FROM generations CROSS JOIN postings USING (generation) WHERE state = 'ready'"
        if value(connection, counted) != report.postings or not report.sound:
            for term, position in run(connection, SURPLUS, (PROBLEMS,)):
                what = "belongs to no event, or names something that the event does not have"
                report.add(INDEX, f"posting of {_named(term)} at {position}", what)
            if report.sound:
                report.add(INDEX, "postings", "their number is not what the events imply")

    def _check_records(self) -> None:
        report = self._report
        for name, revision, content in self._connection.execute("SELECT * FROM records"):
            report.records += name.startswith(record_keys.RECORDS)
            if revision < 1:
                report.add(RECORDS, f"record {name!r}", f"is at revision {revision}; the first one is 1")
            if name.startswith(record_keys.CHECKPOINTS):
                report.checkpoints += 1
                if not content.isdigit():
                    where = f"checkpoint {name.removeprefix(record_keys.CHECKPOINTS)!r}"
                    report.add(RECORDS, where, f"is at {content!r}, which is not a position")

    def _check_appends(self) -> None:
        connection, report = self._connection, self._report
        if not is_recorded(connection):
            return
        head, covered = value(connection, HEAD) or 0, 0
        for row in connection.execute("SELECT * FROM appends ORDER BY last"):
            report.appends += 1
            covered = _check_append(append_of(row), head, covered, report)


def _check_append(append: RecordedAppend, head: int, covered: int, report: Report) -> int:
    """Check one append; returns the last position that this append and those before it cover."""
    first, last = append.first, append.last
    where = f"append that ends at {last}"
    if not 0 < first <= last <= head:
        report.add(CONDITIONS, where, f"is said to hold {first} to {last}, in a log of {head} events")
    elif first <= covered:
        report.add(CONDITIONS, where, f"begins at {first}, but {covered} belongs to another append")
    try:
        append.conditions, append.unless  # noqa: B018
    except (InvalidInput, TypeError) as error:
        report.add(CONDITIONS, where, f"has conditions that cannot be decoded: {error}")
    return max(covered, last)


def _named(term: str | bytes) -> str:
    if isinstance(term, bytes):
        return f"id {term.hex()}"
    return f"tag {term!r}" if term else "every event"
