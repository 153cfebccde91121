"""Checkpoints in the file: a position for each name, with a checksum that is checked whenever it is read.

A checkpoint that has no row is at 0, so a lost row would send its consumer back to the beginning. So before 0 is
returned, the whole table is checked. tests/sqlite/test_damage.py holds this.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import apsw

from ...errors import StoreCorrupt
from .checksums import CHECKPOINT, WHAT_TO_DO, checksum, is_sound_as
from .fetching import check_table
from .layout import CheckpointRow


def read_checkpoint(connection: apsw.Connection, name: str) -> int:
    """The position of the checkpoint; 0 if it has no row and the table shows no damage that could have lost it."""
    row = connection.execute("SELECT * FROM checkpoints WHERE name = ?", (name,)).get
    if row is None:
        check_table(connection, "checkpoints")
        for each in connection.execute("SELECT * FROM checkpoints"):
            checked_checkpoint(connection, each)
        return 0
    return checked_checkpoint(connection, row)


def checked_checkpoint(connection: apsw.Connection, row: Sequence[Any]) -> int:
    """The position of a row. Raises StoreCorrupt if its checksum does not hold; rows of format 1 have none."""
    name, position, stored_checksum = CheckpointRow(*row)
    unchecked = stored_checksum is None and isinstance(position, str) and position.isdecimal()
    if not unchecked and not is_sound_as(CHECKPOINT, row):
        raise StoreCorrupt(
            f"{connection.filename}: the position of checkpoint {name!r} does not agree with its checksum; {WHAT_TO_DO}"
        )
    return int(position)


def checkpoint_row(name: str, position: int) -> CheckpointRow:
    return CheckpointRow(name, str(position), checksum(CHECKPOINT, name, str(position)))
