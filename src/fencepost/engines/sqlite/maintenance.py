"""Copying a store while it is in use, and proving that a file says nothing false.

`verify` trusts nothing: it recomputes each event's checksum, looks up each posting that an event
must have, and counts that there are no others. Since each posting is unique, all that are needed
and none too many means that the index is exactly what the events imply.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from typing import Final

import apsw
import msgspec

from ...errors import InvalidInput
from ...model import RecordedAppend, decode_metadata, decode_tags, encode_metadata, encode_tags
from .drafts import checksum
from .files import connect, prepare_file, run, snapshot, storage_errors, value
from .reading import HEAD
from .recording import is_recorded
from .search import EVERY

TIMEOUT_S: Final = 10.0
PROBLEMS: Final = 100  # enough to see what happened; a broken file could have millions


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong, and where."""

    where: str
    what: str

    def __str__(self) -> str:
        return f"{self.where}: {self.what}"


@dataclass(slots=True)
class Report:
    """What `verify` has seen. A store is sound when there are no problems."""

    path: str
    events: int = 0
    postings: int = 0
    appends: int = 0
    problems: list[Problem] = field(default_factory=list)

    @property
    def sound(self) -> bool:
        return not self.problems

    def add(self, where: str, what: str) -> None:
        if len(self.problems) < PROBLEMS:
            self.problems.append(Problem(where, what))


def backup(path: str | os.PathLike[str], to: str | os.PathLike[str]) -> int:
    """Copy the store to a new file while others go on writing; returns the head of the copy.

    The copy is one consistent state. It appears under its name when it is whole and durable.
    """
    source_path, target_path = os.fspath(path), os.fspath(to)
    if os.path.exists(target_path):
        raise InvalidInput("to", f"{target_path} exists already; name a new file")
    with storage_errors(source_path):
        prepare_file(source_path, create=False, timeout_s=TIMEOUT_S)
    partial = f"{target_path}.partial"
    with (
        storage_errors(partial),
        closing(connect(source_path, timeout_s=TIMEOUT_S, cache_kib=16_384)) as source,
        closing(apsw.Connection(partial)) as target,
    ):
        with target.backup("main", source, "main") as copying:
            while not copying.done:
                copying.step(-1)
        # A file of its own again: the copy has no write-ahead log beside it.
        run(target, "PRAGMA journal_mode = DELETE")
        head: int = value(target, "SELECT max(position) FROM events") or 0
    _sync(partial)
    os.rename(partial, target_path)
    _sync(os.path.dirname(os.path.abspath(target_path)))
    return head


def verify(path: str | os.PathLike[str], *, on_progress: Callable[[int, int], None] | None = None) -> Report:
    """Check every event and every posting; `on_progress(done, all)` is called now and then."""
    name = os.fspath(path)
    report = Report(name)
    with storage_errors(name):
        prepare_file(name, create=False, timeout_s=TIMEOUT_S)
        with closing(connect(name, timeout_s=TIMEOUT_S, cache_kib=65_536)) as connection, snapshot(connection):
            for (line,) in run(connection, "PRAGMA integrity_check(20)"):
                if line != "ok":
                    report.add("file", line)
            if report.sound:
                _check_generations(connection, report)
                _check_events(connection, report, on_progress)
                _check_surplus(connection, report)
                _check_ids(connection, report)
                _check_checkpoints(connection, report)
                _check_appends(connection, report)
    return report


def _check_generations(connection: apsw.Connection, report: Report) -> None:
    covered = 0
    rows = run(connection, "SELECT generation, first, last FROM generations WHERE state = 'ready' ORDER BY first")
    for generation, first, last in rows:
        if first != covered + 1 or last < first:
            report.add(f"generation {generation}", f"holds {first} to {last}, but {covered + 1} is next to be covered")
        covered = last
    head = value(connection, "SELECT max(position) FROM events") or 0
    if covered > head:
        report.add("generations", f"cover positions up to {covered}, beyond the last event at {head}")


def _check_events(connection: apsw.Connection, report: Report, on_progress: Callable[[int, int], None] | None) -> None:
    head = value(connection, "SELECT max(position) FROM events") or 0
    generations = iter(run(connection, "SELECT generation, last FROM generations WHERE state = 'ready' ORDER BY first"))
    generation, last = next(generations, (None, 0))
    numbers = dict(run(connection, "SELECT type, number FROM types"))
    expected = 0
    rows = "SELECT position, type, tags, data, recorded_at, id, metadata, checksum FROM events ORDER BY position"
    for position, type, tags, data, recorded_at, id, metadata, stored in connection.execute(rows):
        expected += 1
        if position != expected:
            report.add(f"position {expected}", f"is missing; the next event is at {position}")
            expected = position
        where = f"event {position}"
        if checksum(position, type, tags, data, recorded_at, id, metadata) != stored:
            report.add(where, "does not have the content that its checksum was made of")
        while generation is not None and position > last:
            generation, last = next(generations, (None, 0))
        terms = list(_terms(report, where, tags, id, metadata))
        if generation is not None:
            for term in terms:
                key = (generation, term, numbers.get(type), position)
                if not value(
                    connection,
                    "SELECT 1 FROM postings WHERE generation = ? AND term = ? AND type = ? AND position = ?",
                    key,
                ):
                    report.add(where, f"has no posting for {_named(term)} and type {type!r} in generation {generation}")
            report.postings += len(terms)
        report.events += 1
        if on_progress is not None and report.events % 10_000 == 0:
            on_progress(report.events, head)


def _terms(report: Report, where: str, tags: str, id: bytes | None, metadata: str | None) -> Iterator[str | bytes]:
    yield EVERY
    try:
        decoded = decode_tags(tags)
        if encode_tags(decoded) != tags:
            report.add(where, f"has tags that are not sorted and unique: {tags}")
        if encode_metadata(decode_metadata(metadata)) != metadata:
            report.add(where, f"has metadata in another form than it is written in: {metadata}")
    except msgspec.MsgspecError as error:
        report.add(where, f"has tags or metadata that cannot be decoded: {error}")
        return
    yield from decoded
    if id is not None:
        yield id


def _check_surplus(connection: apsw.Connection, report: Report) -> None:
    """All that are needed were found: so too many is the only thing that a count can show."""
    live = "postings JOIN generations USING (generation) WHERE generations.state = 'ready'"
    stored = value(connection, f"SELECT count(*) FROM {live}")
    if stored <= report.postings and not report.problems:
        return
    numbers = {number: type for type, number in run(connection, "SELECT type, number FROM types")}
    for term, type, position in connection.execute(f"SELECT term, postings.type, position FROM {live}"):
        event = run(connection, "SELECT type, tags, id FROM events WHERE position = ?", (position,))
        where = f"posting of {_named(term)} at {position}"
        if not event:
            report.add(where, "belongs to no event")
        elif numbers.get(type) != event[0][0]:
            report.add(where, f"says type {numbers.get(type)!r}, the event says {event[0][0]!r}")
        elif term not in _terms(Report(""), "", event[0][1], event[0][2], None):
            report.add(where, "names something that the event does not have")


def _check_ids(connection: apsw.Connection, report: Report) -> None:
    twice = (
        "SELECT hex(id), min(position), max(position) FROM events WHERE id IS NOT NULL GROUP BY id HAVING count(*) > 1"
    )
    for id, first, last in run(connection, twice):
        report.add(f"id {id}", f"is at position {first} and again at {last}")


def _check_checkpoints(connection: apsw.Connection, report: Report) -> None:
    for name, position in run(connection, "SELECT name, position FROM checkpoints"):
        if not position.isdecimal():
            report.add(f"checkpoint {name!r}", f"is at {position!r}, which is no position")


def _check_appends(connection: apsw.Connection, report: Report) -> None:
    if not is_recorded(connection):
        return
    head, covered = value(connection, HEAD) or 0, 0
    for first, last, conditions, unless in connection.execute(
        "SELECT first, last, conditions, unless FROM appends ORDER BY last"
    ):
        report.appends += 1
        where = f"append that ends at {last}"
        if not 0 < first <= last <= head:
            report.add(where, f"is said to hold {first} to {last}, in a log of {head} events")
        elif first <= covered:
            report.add(where, f"begins at {first}, and {covered} belongs to another")
        covered = max(covered, last)
        try:
            append = RecordedAppend(first, last, conditions, unless)
            append.conditions, append.unless  # noqa: B018
        except InvalidInput as error:
            report.add(where, f"has conditions that cannot be decoded: {error}")


def _named(term: str | bytes) -> str:
    if isinstance(term, bytes):
        return f"id {term.hex()}"
    return f"tag {term!r}" if term else "every event"


def _sync(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
