"""Checks the tables of a file that SQLite can open.

Every checksum is computed again, every posting that an event implies is looked up, and the postings are counted.
Postings are unique, so if all that are needed exist and the count is right, the index is exactly what the events
imply. A table that cannot be read is a problem of its own; the other tables are still checked.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import apsw
import msgspec

from ...errors import InvalidInput, StoreCorrupt
from ...model import RecordedAppend, decode_metadata, decode_tags, encode_metadata, encode_tags
from .checkpoints import checked_checkpoint
from .checksums import is_sound
from .connections import run, value
from .fetching import HEAD
from .layout import CHECKED_COLUMNS, AppendRow, CheckpointRow, EventRow
from .opening_checks import generation_problems
from .recording import checked_append, is_recorded
from .report import CHECKPOINTS, CONDITIONS, FILE, INDEX, LOG, PROBLEMS, Report, extend
from .search import EVERY

PARTS: Final = {
    "events": LOG,
    "postings": INDEX,
    "types": INDEX,
    "sqlite_autoindex_types_1": INDEX,
    "generations": INDEX,
    "checkpoints": CHECKPOINTS,
    "appends": CONDITIONS,
}
TREE: Final = re.compile(r"Tree (\d+)")

ROWS: Final = f"SELECT {CHECKED_COLUMNS} FROM events WHERE position > ? ORDER BY position"
NEXT: Final = "SELECT min(position) FROM events WHERE position > ?"
POSTING: Final = "SELECT 1 FROM postings WHERE generation = ? AND term = ? AND type = ? AND position = ?"
LIVE: Final = "postings JOIN generations USING (generation) WHERE generations.state = 'ready'"

UNREADABLE: Final = (apsw.Error, ValueError, TypeError, OverflowError, msgspec.MsgspecError, StoreCorrupt)


class Verification:
    """One pass over all tables, in one transaction of the connection."""

    def __init__(
        self, connection: apsw.Connection, report: Report, on_progress: Callable[[int, int], None] | None
    ) -> None:
        self._connection = connection
        self._report = report
        self._on_progress = on_progress
        self._looks_up = True  # whether postings are looked up: until they cannot be read
        self._damaged: set[int] = set()  # positions of events that are missing or not as they were stored

    def run(self) -> None:
        try:
            names = dict(run(self._connection, "SELECT rootpage, name FROM sqlite_schema"))
        except UNREADABLE as error:
            self._report.add(FILE, "schema", f"cannot be read, and nothing without it: {error}")
            return
        self._check_structure(names)
        for part, where, check in (
            (INDEX, "generations", self._check_generations),
            (LOG, "events", self._check_events),
            (INDEX, "postings", self._check_surplus),
            (LOG, "ids", self._check_ids),
            (CHECKPOINTS, "checkpoints", self._check_checkpoints),
            (CONDITIONS, "appends", self._check_appends),
        ):
            try:
                check()
            except UNREADABLE as error:
                self._report.add(part, where, f"cannot be read to the end: {error}")

    def _check_structure(self, names: dict[int, str]) -> None:
        try:
            for (text,) in self._connection.execute(f"PRAGMA integrity_check({PROBLEMS})"):
                for line in text.splitlines():
                    if line != "ok" and not line.startswith("***"):
                        self._report.add(_part_of(line, names), "file", _named_tree(line, names))
        except UNREADABLE as error:
            if self._report.sound:  # otherwise SQLite has already named what stops it
                self._report.add(FILE, "file", f"cannot be checked to the end: {error}")

    def _check_generations(self) -> None:
        for problem in generation_problems(self._connection, value(self._connection, HEAD) or 0):
            self._report.add(INDEX, "generations", problem)

    def _check_events(self) -> None:
        connection, report = self._connection, self._report
        head = value(connection, HEAD) or 0
        ready = "SELECT generation, last FROM generations WHERE state = 'ready' ORDER BY first"
        remaining = iter(_readable(INDEX, "generations", report, lambda: run(connection, ready)))
        generation, last = next(remaining, (None, 0))
        types = _readable(INDEX, "types", report, lambda: run(connection, "SELECT type, number FROM types"))
        numbers = dict(types)
        self._looks_up = bool(numbers)
        expected = 0
        for position, row in self._rows():
            expected += 1
            if position != expected:
                report.add(LOG, f"position {expected}", f"is missing; the next event is at {position}")
                if position > expected:
                    self._damaged.update(range(expected, min(position, expected + 1_000_000)))
                expected = position
            report.events += 1
            if self._on_progress is not None and report.events % 10_000 == 0:
                self._on_progress(report.events, head)
            where = f"event {position}"
            if row is None or not is_sound(row):
                what = "does not agree with its checksum"
                report.add(LOG, where, what if row is not None else f"{what}: a text in it is not UTF-8")
                self._damaged.add(position)
                continue
            extend(report.whole, position)
            while generation is not None and position > last:
                generation, last = next(remaining, (None, 0))
            terms = list(_terms(report, where, row.tags, row.id, row.metadata))
            if generation is not None and self._looks_up:
                self._check_postings(generation, terms, row, numbers)

    def _rows(self) -> Iterator[tuple[int, EventRow | None]]:
        """The position and the row of every event; None for a row that cannot be decoded."""
        reached = 0
        while True:
            try:
                for row in self._connection.execute(ROWS, (reached,)):
                    reached = row[0]
                    yield reached, EventRow._make(row)
                return
            except UnicodeDecodeError:
                bad = value(self._connection, NEXT, (reached,))
                if bad is None or bad <= reached:
                    raise
                reached = bad
                yield reached, None

    def _check_postings(
        self, generation: int, terms: list[str | bytes], row: EventRow, numbers: dict[Any, Any]
    ) -> None:
        try:
            for term in terms:
                if not value(self._connection, POSTING, (generation, term, numbers.get(row.type), row.position)):
                    what = f"has no posting for {_named(term)} and type {row.type!r} in generation {generation}"
                    self._report.add(INDEX, f"event {row.position}", what)
        except UNREADABLE as error:
            self._report.add(INDEX, "postings", f"cannot be read from event {row.position} on: {error}")
            self._looks_up = False
        self._report.postings += len(terms)

    def _check_surplus(self) -> None:
        """Find postings that no event implies. There are some only if there are more postings than were looked up."""
        connection, report = self._connection, self._report
        stored = value(connection, f"SELECT count(*) FROM {LIVE}")
        if stored <= report.postings and report.sound:
            return
        numbers = {number: type for type, number in run(connection, "SELECT type, number FROM types")}
        rows = f"SELECT typeof(term), CAST(term AS BLOB), postings.type, position FROM {LIVE}"
        for kind, content, type, position in connection.execute(rows):
            if position in self._damaged:
                continue
            term = content.decode(errors="replace") if kind == "text" else content
            event = run(connection, "SELECT type, tags, id FROM events WHERE position = ?", (position,))
            where = f"posting of {_named(term)} at {position}"
            if not event:
                report.add(INDEX, where, "belongs to no event")
            elif numbers.get(type) != event[0][0]:
                report.add(INDEX, where, f"says type {numbers.get(type)!r}, the event says {event[0][0]!r}")
            elif term not in _terms(Report(""), "", event[0][1], event[0][2], None):
                report.add(INDEX, where, "names something that the event does not have")

    def _check_ids(self) -> None:
        twice = (
            "SELECT hex(id), min(position), max(position) FROM events WHERE id IS NOT NULL"
            " GROUP BY id HAVING count(*) > 1"
        )
        for id, first, last in run(self._connection, twice):
            self._report.add(LOG, f"id {id}", f"is at position {first} and again at {last}")

    def _check_checkpoints(self) -> None:
        for columns in self._connection.execute("SELECT * FROM checkpoints"):
            row = CheckpointRow(*columns)
            self._report.checkpoints += 1
            where = f"checkpoint {row.name!r}"
            try:
                checked_checkpoint(self._connection, row)
            except StoreCorrupt:
                self._report.add(CHECKPOINTS, where, f"is at {row.position!r}, which does not agree with its checksum")
            if row.checksum is None:
                self._report.unchecked.append(where)

    def _check_appends(self) -> None:
        connection, report = self._connection, self._report
        if not is_recorded(connection):
            return
        head, covered = value(connection, HEAD) or 0, 0
        for columns in connection.execute("SELECT * FROM appends ORDER BY last"):
            row = AppendRow(*columns)
            report.appends += 1
            where = f"append that ends at {row.last}"
            try:
                append = checked_append(row, report.path)
            except StoreCorrupt:
                report.add(CONDITIONS, where, "does not agree with its checksum")
                append = RecordedAppend(row.first, row.last, row.conditions, row.unless)
            if row.checksum is None:
                report.unchecked.append(where)
            covered = _check_append(append, where, head, covered, report)


def _check_append(append: RecordedAppend, where: str, head: int, covered: int, report: Report) -> int:
    """Check one append; returns the last position that this append and those before it cover."""
    first, last = append.first, append.last
    if not isinstance(first, int):
        return max(covered, last)
    if not 0 < first <= last <= head:
        report.add(CONDITIONS, where, f"is said to hold {first} to {last}, in a log of {head} events")
    elif first <= covered:
        report.add(CONDITIONS, where, f"begins at {first}, but {covered} belongs to another append")
    try:
        append.conditions, append.unless  # noqa: B018
    except (InvalidInput, TypeError) as error:
        report.add(CONDITIONS, where, f"has conditions that cannot be decoded: {error}")
    return max(covered, last)


def _readable(part: str, where: str, report: Report, read: Callable[[], list[Any]]) -> Iterable[Any]:
    try:
        return read()
    except UNREADABLE as error:
        report.add(part, where, f"cannot be read: {error}")
        return []


def _part_of(line: str, names: dict[int, str]) -> str:
    tree = TREE.search(line)
    if tree:
        return PARTS.get(names.get(int(tree[1]), ""), FILE)
    return next((part for name, part in PARTS.items() if re.search(rf"\b{name}\b", line)), FILE)


def _named_tree(line: str, names: dict[int, str]) -> str:
    return TREE.sub(lambda tree: f"{names.get(int(tree[1]), f'tree {tree[1]}')},", line)


def _terms(report: Report, where: str, tags: str, id: bytes | None, metadata: str | None) -> Iterator[str | bytes]:
    yield EVERY
    try:
        decoded = decode_tags(tags)
        if encode_tags(decoded) != tags:
            report.add(LOG, where, f"has tags that are not sorted and unique: {tags}")
        if encode_metadata(decode_metadata(metadata)) != metadata:
            report.add(LOG, where, f"has metadata that is not in its normal form: {metadata}")
    except (msgspec.MsgspecError, TypeError) as error:
        report.add(LOG, where, f"has tags or metadata that cannot be decoded: {error}")
        return
    yield from decoded
    if id is not None:
        yield id


def _named(term: str | bytes) -> str:
    if isinstance(term, bytes):
        return f"id {term.hex()}"
    return f"tag {term!r}" if term else "every event"
