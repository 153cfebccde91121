"""`copy`, `export` and `import`: a log into another store of any engine, or as lines of JSON, without Spark.

A line is the one that `fencepost read --json` prints. `import` stores the events with the positions, ids and times of
their lines, in parts, so an import that was killed can be run again: lines that are stored already are compared. Every
problem names its line. tests/copying checks that a copy, and an import of an export, give an equal store.
"""

from __future__ import annotations

import gzip
import os
import re
import sys
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from io import BufferedIOBase
from itertools import islice
from typing import IO, Final

import click

from .. import EventStore, SequencedEvent
from ..engine import FOUNDATIONDB, Address, durable_file, restore
from ..errors import InvalidInput, StoreUnavailable
from ..spark.lake_kind import LAKE
from ..tools import PART_BYTES, PART_EVENTS, EventLines, copy_log, no_collections, sequenced_from_json
from .options import (
    after_option,
    json_option,
    local_path,
    numbered,
    open_source,
    open_target,
    store_argument,
    up_to_option,
)
from .output import Output, picked, progress_bar

CHUNK_EVENTS: Final = 2_000
GZIP_LEVEL: Final = 3  # twice as fast as the default, for files that are a tenth larger
STANDARD: Final = "-"  # stands for standard input or output


@click.command("copy")
@click.argument("from_", metavar="FROM")
@click.argument("to")
@up_to_option
@click.option(
    "--verify/--no-verify",
    default=True,
    help="Compare all that TO holds before, and read it again afterwards. On by default.",
)
@click.option("--records", is_flag=True, help="Copy records and the checkpoints of consumers, too.")
@json_option
def copy_command(from_: str, to: str, up_to: int | None, verify: bool, records: bool, as_json: bool | None) -> None:
    """Copy the log of the store FROM into the store TO, with positions, ids, times and recorded conditions.

    TO must be empty, or hold the beginning of the same log; then the copy continues from its head. An SQLite file is
    created if it does not exist. With --records, records and the checkpoints of consumers are copied too.
    """
    kind = Address.parse(to).kind
    if kind is FOUNDATIONDB:
        raise click.UsageError(
            "FoundationDB assigns its own positions, so a store on it cannot take events with the positions that they "
            "have; copy into an SQLite file, PostgreSQL or a server"
        )
    if kind is LAKE:
        raise click.UsageError("a lake is written by `fencepost lake export`")
    output = Output(as_json)
    with open_source(from_) as source, open_target(to) as target, progress_bar(output) as on_progress:
        copied = copy_log(source, target, up_to=up_to, verify=verify, records=records, on_progress=on_progress)
    output.result(
        {
            **picked(copied, "head", "events", "appends", "records"),
            "verified": copied.digest is not None,
            "digest": copied.digest,
        },
        f"Copied {copied.events:,} events, up to position {copied.head}"
        + (f", and {copied.records:,} records and checkpoints" if records else "")
        + (f"; both logs have the digest {copied.digest}." if copied.digest else "; not verified."),
    )


file_argument = click.argument("file", type=local_path, default=STANDARD)


@click.command("export")
@store_argument
@file_argument
@after_option
@up_to_option
@json_option
def export_command(store: str, file: str, after: int, up_to: int | None, as_json: bool | None) -> None:
    """Write the events as lines of JSON to the new file FILE, or to standard output.

    FILE is compressed if its name ends in .gz, and appears when it is complete.
    """
    output = Output(True if file == STANDARD else as_json)  # no progress bar between the lines
    with open_source(store) as opened:
        if file == STANDARD:
            _export(opened, sys.stdout.buffer, after, up_to, output, terminal=sys.stdout.isatty())
            return
        with _new_file(file) as target:
            events, head = _export(opened, target, after, up_to, output)
    output.result({"file": file, "events": events, "head": head}, f"{file} holds {events:,} events, up to {head}.")


def _export(
    store: EventStore,
    target: BufferedIOBase | IO[bytes],
    after: int,
    up_to: int | None,
    output: Output,
    *,
    terminal: bool = False,
) -> tuple[int, int]:
    """Write all events; return their number and the position up to which the export is complete."""
    lines, done = EventLines(), 0
    with no_collections(), progress_bar(output) as on_progress:
        reading = store.read(after=after, up_to=up_to)
        while events := list(islice(reading, CHUNK_EVENTS)):
            target.write(lines.encode(events, terminal=terminal))
            done += len(events)
            on_progress("exporting", done, max(done, reading.head - after))
    return done, reading.head


@contextmanager
def _new_file(path: str) -> Iterator[BufferedIOBase]:
    try:
        with durable_file(path) as draft, open(draft, "wb") as plain:
            if path.endswith(".gz"):
                with gzip.GzipFile("", "wb", GZIP_LEVEL, plain, mtime=0) as packed:
                    yield packed
            else:
                yield plain
    except FileExistsError:
        raise InvalidInput("file", f"{path} exists already; name a new file") from None
    except OSError as error:
        raise StoreUnavailable(f"{path}: the file cannot be written: {error.strerror}") from error


@click.command("import")
@store_argument
@file_argument
@json_option
def import_command(store: str, file: str, as_json: bool | None) -> None:
    """Store the events of an export, from FILE or standard input, with their positions, ids and times.

    The lines must continue the log of STORE; lines that STORE holds already are compared. An SQLite file is created if
    it does not exist.
    """
    output = Output(as_json)
    if file != STANDARD and not os.path.exists(file):
        raise InvalidInput("file", f"{file} does not exist")  # before an SQLite file is created
    with open_target(store) as opened, _lines_of(file) as lines, no_collections():
        imported = _import(opened, lines, output)
        head = opened.head()
    output.result({"events": imported, "head": head}, f"Imported {imported:,} events; the head of the store is {head}.")


@contextmanager
def _lines_of(path: str) -> Iterator[Iterable[bytes]]:
    if path == STANDARD:
        yield sys.stdin.buffer
        return
    try:
        with gzip.open(path, "rb") if path.endswith(".gz") else open(path, "rb") as lines:
            yield lines
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise InvalidInput("file", f"{path} is not a complete gzip file: {error}") from None
    except OSError as error:
        raise StoreUnavailable(f"{path}: the file cannot be read: {error.strerror}") from error


def _import(store: EventStore, lines: Iterable[bytes], output: Output) -> int:
    numbers: list[int] = []
    events: list[SequencedEvent] = []
    size = imported = 0
    with progress_bar(output) as on_progress:
        for number, event in _new_events(store, lines):
            numbers.append(number)
            events.append(event)
            size += len(event.data) + sum(map(len, event.tags)) + sum(map(len, event.metadata.values()))
            if len(events) >= PART_EVENTS or size >= PART_BYTES:
                imported += _restore(store, events, numbers)
                on_progress("importing", imported, imported)
                numbers, events, size = [], [], 0
        return imported + _restore(store, events, numbers)


def _new_events(store: EventStore, lines: Iterable[bytes]) -> Iterator[tuple[int, SequencedEvent]]:
    """The events above the store's head with the numbers of their lines, after a comparison of those below."""
    head, previous = store.head(), None
    stored: Iterator[SequencedEvent] = iter(())
    for number, event in numbered(lines, sequenced_from_json):
        if previous is None:
            if event.position > head + 1:
                raise _gap(number, event.position, f"the head of the store is {head}")
            stored = iter(store.read(after=event.position - 1, up_to=head))
        elif event.position != previous + 1:
            raise _gap(number, event.position, f"the line before it has {previous}")
        previous = event.position
        if event.position > head:
            yield number, event
        elif event != next(stored, None):
            raise InvalidInput(
                f"line {number}", f"the store holds another event at position {event.position}; it has another log"
            )


def _gap(number: int, position: int, other: str) -> InvalidInput:
    return InvalidInput(f"line {number}, position", f"{position} does not follow: {other}")


def _restore(store: EventStore, events: list[SequencedEvent], numbers: list[int]) -> int:
    """Store the events, and return their number. A problem with one of them names its line."""
    try:
        restore(store, events)
    except InvalidInput as error:
        found = re.match(r"events\[(\d+)\]\.?", error.field)
        where = f"line {numbers[int(found[1])]}" if found else f"lines {numbers[0]} to {numbers[-1]}"
        raise InvalidInput(where, f"{error.problem}; the lines before {numbers[0]} are stored") from None
    return len(events)
