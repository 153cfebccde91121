"""The columns of the tables, in the order of schema.sql: SQL column lists and column numbers derive from here.

Rows travel as plain tuples, because making objects of them would slow down every read. Code that is not on a hot path
takes a row apart with these types. tests/sqlite/test_format.py compares them with the schema.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple, TypeAlias


class EventRow(NamedTuple):
    """A row of `events`: what `SequencedEvent` takes, in its order."""

    position: int
    type: str
    tags: str
    data: bytes
    recorded_at: int
    id: bytes | None
    metadata: str | None


class AppendRow(NamedTuple):
    """A row of `appends`."""

    last: int
    first: int
    conditions: str
    unless: str | None


class RecordRow(NamedTuple):
    """A row of `records`."""

    name: str
    revision: int
    value: bytes


Row: TypeAlias = tuple[Any, ...]
"""A plain tuple with the columns of an EventRow."""

COLUMNS: Final = ", ".join(EventRow._fields)

POSITION: Final = EventRow._fields.index("position")
DATA: Final = EventRow._fields.index("data")
ID: Final = EventRow._fields.index("id")
