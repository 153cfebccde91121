"""Records in the file: one row for each key, checkpoints among them, read by key or in the order of keys.

`core/record_keys.py` says what a key is. The contract suite checks this (fencepost/testing/contract/records.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import apsw

from ...core.record_keys import key_range
from ...core.verdicts import Changes
from ...model import Record
from .connections import run

ONE: Final = "SELECT name, value, revision FROM records WHERE name = ?"
PAGE: Final = "SELECT name, value, revision FROM records WHERE name >= ? AND name < ? ORDER BY name LIMIT ?"
PUT: Final = "INSERT OR REPLACE INTO records (name, revision, value) VALUES (?, ?, ?)"


def read_record(connection: apsw.Connection, key: str) -> Record | None:
    rows = run(connection, ONE, (key,))
    return Record(*rows[0]) if rows else None


def read_records(connection: apsw.Connection, prefix: str, after: str, limit: int) -> Sequence[Record]:
    return [Record(*row) for row in run(connection, PAGE, (*key_range(prefix, after), limit))]


def write_records(connection: apsw.Connection, changes: Changes) -> None:
    for key, record in changes.items():
        if record is None:
            run(connection, "DELETE FROM records WHERE name = ?", (key,))
        else:
            run(connection, PUT, (key, record.revision, record.value))
