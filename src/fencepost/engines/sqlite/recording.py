"""What appends were conditional on, in a table of its own that only stores which record have.

It is made when a file is first opened with `record_conditions=True`, and needs no new format: who does
not know it leaves it alone, and then its appends have no rows. A row is inserted in the transaction that
inserts its append's events, so one is never there without the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import apsw

from ...errors import StoreCorrupt
from ...model import RecordedAppend
from .files import Readers, run, transaction, value
from .generations import insert_many

PAGE_APPENDS: Final = 1_024

# `last` is the key, so that the appends which end in a range of positions lie side by side.
TABLE: Final = """
CREATE TABLE IF NOT EXISTS appends (
    last       INTEGER PRIMARY KEY,
    first      INTEGER NOT NULL,
    conditions TEXT    NOT NULL,  -- a JSON array of conditions
    unless     TEXT               -- a query as JSON, or NULL
) STRICT
"""
PAGE: Final = (
    "SELECT first, last, conditions, unless FROM appends WHERE last > ? AND last <= ? ORDER BY last"
    f" LIMIT {PAGE_APPENDS}"
)


def is_recorded(connection: apsw.Connection) -> bool:
    """Whether any process has ever recorded here."""
    return bool(value(connection, "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = 'appends'"))


def begin_to_record(connection: apsw.Connection) -> None:
    if not is_recorded(connection):
        with transaction(connection):
            run(connection, TABLE)


def insert_records(connection: apsw.Connection, records: Sequence[RecordedAppend]) -> None:
    """In the transaction that has inserted their events: these positions were free, so no row has them."""
    rows: list[tuple[Any, ...]] = [
        (append.last, append.first, append.conditions_json, append.unless_json) for append in records
    ]
    try:
        if rows:
            insert_many(connection, "appends", rows)
    except apsw.ConstraintError as error:
        raise StoreCorrupt(f"conditions are recorded for positions that no event had: {error}") from error


def read_records(readers: Readers, after: int, upto: int) -> Iterator[Sequence[RecordedAppend]]:
    with readers.lend() as connection:
        if not is_recorded(connection):
            return
    while after < upto:
        with readers.lend() as connection:
            page = [RecordedAppend(*row) for row in connection.execute(PAGE, (after, upto))]
        if page:
            yield page
        after = page[-1].last if len(page) == PAGE_APPENDS else upto
