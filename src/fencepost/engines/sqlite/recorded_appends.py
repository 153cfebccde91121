"""Recorded conditions: what appends were conditional on, in the table `appends`.

The table is created when a file is first opened with `record_conditions=True`. A row is inserted in the transaction
that inserts the events of its append, so neither is ever stored without the other. tests/sqlite/test_recording.py
checks this.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import apsw

from ...errors import StoreCorrupt
from ...model import RecordedAppend
from . import sizes
from .connections import run, transaction, value
from .generations import insert_many
from .layout import AppendRow
from .page_checksums import WHAT_TO_DO
from .readers import Readers

# `last` is the key, so that the appends which end in a range of positions lie side by side.
TABLE: Final = """
CREATE TABLE IF NOT EXISTS appends (
    last       INTEGER PRIMARY KEY,
    first      INTEGER NOT NULL,
    conditions TEXT    NOT NULL,  -- a JSON array of conditions
    unless     TEXT               -- a query as JSON, or NULL
) STRICT
"""
PAGE: Final = "SELECT * FROM appends WHERE last > ? AND last <= ? ORDER BY last LIMIT ?"


def is_recorded(connection: apsw.Connection) -> bool:
    """Whether a process has ever opened the file with `record_conditions=True`."""
    return bool(value(connection, "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = 'appends'"))


def create_appends_table(connection: apsw.Connection) -> None:
    if not is_recorded(connection):
        with transaction(connection):
            run(connection, TABLE)


def insert_recorded_appends(connection: apsw.Connection, appends: Sequence[RecordedAppend]) -> None:
    """Insert rows in the transaction that has inserted their events. No earlier event had these positions."""
    rows: list[tuple[object, ...]] = [
        AppendRow(append.last, append.first, append.conditions_json, append.unless_json) for append in appends
    ]
    try:
        if rows:
            insert_many(connection, "appends", rows)
    except apsw.ConstraintError as error:
        raise StoreCorrupt(
            f"{connection.filename}: conditions are recorded for positions beyond the end of the log: {error}; "
            f"{WHAT_TO_DO}"
        ) from error


def read_appends(readers: Readers, after: int, up_to: int) -> Iterator[Sequence[RecordedAppend]]:
    with readers.lend() as connection:
        if not is_recorded(connection):
            return
    most = sizes.SCAN_APPENDS
    while after < up_to:
        with readers.lend() as connection:
            page = [append_of(row) for row in connection.execute(PAGE, (after, up_to, most))]
        if page:
            yield page
        after = page[-1].last if len(page) == most else up_to


def append_of(row: Sequence[object]) -> RecordedAppend:
    last, first, conditions, unless = AppendRow(*row)  # type: ignore[arg-type]
    return RecordedAppend(first, last, conditions, unless)
