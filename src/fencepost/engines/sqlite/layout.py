"""The columns of the tables, in the order of schema.sql: SQL column lists and column numbers derive from here.

Rows travel as plain tuples, because making objects of them would slow down every read. Code that is not on a hot path
takes a row apart with these types. tests/sqlite/test_format.py compares them with the schema.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple, TypeAlias


class EventRow(NamedTuple):
    """A row of `events`. All columns but the last are what `SequencedEvent` takes, in its order."""

    position: int
    type: str
    tags: str
    data: bytes
    recorded_at: int
    id: bytes | None
    metadata: str | None
    checksum: int


class AppendRow(NamedTuple):
    """A row of `appends`. Files of format 1 have no checksum."""

    last: int
    first: int
    conditions: str
    unless: str | None
    checksum: int | None = None


class CheckpointRow(NamedTuple):
    """A row of `checkpoints`. Files of format 1 have no checksum."""

    name: str
    position: str
    checksum: int | None = None


Row: TypeAlias = tuple[Any, ...]
"""A plain tuple with the columns of an EventRow. As the content of an event, it lacks the checksum."""

CHECKED_COLUMNS: Final = ", ".join(EventRow._fields)
CONTENT_COLUMNS: Final = ", ".join(EventRow._fields[:-1])

POSITION: Final = EventRow._fields.index("position")
DATA: Final = EventRow._fields.index("data")
ID: Final = EventRow._fields.index("id")
