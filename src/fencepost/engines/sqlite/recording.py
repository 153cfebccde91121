"""Recorded conditions: what appends were conditional on, in the table `appends`.

The table is created when a file is first opened with `record_conditions=True`. A row is inserted in the transaction
that inserts the events of its append, so neither is ever stored without the other. The checksum of a row is checked
when it is read. tests/sqlite/test_recording.py and test_damage.py hold this.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import apsw

from ...errors import StoreCorrupt
from ...model import RecordedAppend
from . import sizes
from .checksums import APPEND, WHAT_TO_DO, checksum, is_sound_as
from .connections import run, transaction, value
from .fetching import check_table
from .generations import insert_many
from .layout import AppendRow
from .readers import Readers

# `last` is the key, so that the appends which end in a range of positions lie side by side.
TABLE: Final = """
CREATE TABLE IF NOT EXISTS appends (
    last       INTEGER PRIMARY KEY,
    first      INTEGER NOT NULL,
    conditions TEXT    NOT NULL,  -- a JSON array of conditions
    unless     TEXT,              -- a query as JSON, or NULL
    checksum   INTEGER            -- NULL in rows of format 1
) STRICT
"""
PAGE: Final = "SELECT * FROM appends WHERE last > ? AND last <= ? ORDER BY last LIMIT ?"

ENDS: Final = "SELECT last FROM appends WHERE last <= ? ORDER BY last"
ROW: Final = "SELECT * FROM appends WHERE last = ?"


def is_recorded(connection: apsw.Connection) -> bool:
    """Whether a process has ever opened the file with `record_conditions=True`."""
    return bool(value(connection, "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = 'appends'"))


def create_appends_table(connection: apsw.Connection) -> None:
    if not is_recorded(connection):
        with transaction(connection):
            run(connection, TABLE)


def insert_records(connection: apsw.Connection, records: Sequence[RecordedAppend]) -> None:
    """Insert rows in the transaction that has inserted their events. No earlier event had these positions."""
    rows: list[tuple[Any, ...]] = []
    for append in records:
        row = (append.last, append.first, append.conditions_json, append.unless_json)
        rows.append((*row, checksum(APPEND, *row)))
    try:
        if rows:
            insert_many(connection, "appends", rows)
    except apsw.ConstraintError as error:
        raise StoreCorrupt(f"conditions are recorded for positions beyond the end of the log: {error}") from error


def read_records(readers: Readers, after: int, upto: int) -> Iterator[Sequence[RecordedAppend]]:
    with readers.lend() as connection:
        if not is_recorded(connection):
            return
        check_table(connection, "appends")  # not every append has a row, so a lost row leaves no gap
    most = sizes.SCAN_APPENDS
    while after < upto:
        with readers.lend() as connection:
            page = [checked_append(row, readers.path) for row in connection.execute(PAGE, (after, upto, most))]
        if page:
            yield page
        after = page[-1].last if len(page) == most else upto


def checked_append(row: Sequence[Any], path: str) -> RecordedAppend:
    """The append of a row. Raises StoreCorrupt if its checksum does not hold; rows of format 1 have none."""
    last, first, conditions, unless, stored_checksum = AppendRow(*row)
    unchecked = stored_checksum is None and isinstance(conditions, str)
    if not unchecked and not is_sound_as(APPEND, row):
        raise StoreCorrupt(
            f"{path}: the recorded conditions of the append that ends at {last} do not agree with their checksum; "
            f"{WHAT_TO_DO}"
        )
    return RecordedAppend(first, last, conditions, unless)


def unsound_records(readers: Readers, upto: int) -> list[int]:
    """The last positions of the rows whose checksum does not hold."""
    unsound: list[int] = []
    with readers.lend() as connection:
        ends = [last for (last,) in run(connection, ENDS, (upto,))] if is_recorded(connection) else []
        for last in ends:
            try:
                checked_append(run(connection, ROW, (last,))[0], readers.path)
            except (StoreCorrupt, UnicodeDecodeError):
                unsound.append(last)
    return unsound
