"""Bulk loading by COPY: an import, a restore, or a move from another engine.

`load` stores any events after the head, in one transaction. If the store is empty, the indexes are built afterwards,
which is faster than updating them. `restore` stores events of another store with their positions; a large log is
restored in several transactions. Appends of other processes wait meanwhile. Both need the privileges of the owner.
tests/postgres/test_install.py checks that loaded events behave as appended ones.

Rows are written as bytes: psycopg converts each value by an object of its own, which takes several times as long.
tests/postgres/test_copy_rows.py compares what is stored this way with what psycopg stores, for generated events.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timezone
from struct import Struct
from typing import Any, Final

import psycopg

from ...errors import InvalidInput
from ...model import Event, Placed, SequencedEvent
from ...model.encodings import encode_moment
from .addresses import parameters_of
from .connection_pool import POSTGRES_EPOCH_US
from .error_mapping import translated
from .install import DEFAULT_SCHEMA, check_version, lock_log, quoted, read_head
from .wire import encode_array

# The format is described in PostgreSQL's manual (COPY, Binary Format): a row is the number of its fields, and each
# field is its length and its content, in the form in which PostgreSQL sends a value of the type. -1 stands for NULL.
COLUMNS: Final = ("position", "recorded_at", "id", "type", "tags", "data", "metadata")
HEADER: Final = b"PGCOPY\n\xff\r\n\0" + bytes(8)  # the signature, no flags, no extension
TRAILER: Final = b"\xff\xff"
BLOCK_BYTES: Final = 262_144  # rows are sent together up to this size
MOST_TYPES: Final = 10_000  # that are remembered

_length: Final = Struct(">i")
_begin: Final = Struct(">hiqiq")  # the number of fields, the position and the time, each with its length
_NULL: Final = _length.pack(-1)
_ID_LENGTH: Final = _length.pack(16)


def load(url: str, events: Iterable[Event | SequencedEvent], *, schema: str = DEFAULT_SCHEMA) -> Placed | None:
    """Store the events. Those of another store keep the time at which they were recorded.

    Returns their positions, or None if there are no events.
    """
    name = quoted(schema)
    parameters_of(url)
    with translated(), psycopg.connect(url, client_encoding="UTF8") as connection:
        check_version(connection, schema)
        lock_log(connection, name)
        head = read_head(connection, name)
        indexes = _drop_indexes(connection, schema) if head == 0 else []
        last = _copy(connection, name, events, head)
        for definition in indexes:
            connection.execute(definition.encode())
        connection.execute(f"ANALYZE {name}.event, {name}.more_tags".encode())
    return Placed(head + 1, last) if last > head else None


def restore(
    connection: psycopg.Connection[Any], name: str, events: Sequence[SequencedEvent], *, patience_s: float
) -> None:
    """Store the events with their positions in the caller's transaction. `name` is the quoted name of the schema."""
    connection.execute(
        "SELECT set_config('synchronous_commit', 'on', true) WHERE current_setting('synchronous_commit') = 'off'"
    )
    lock_log(connection, name, patience_s)
    head = read_head(connection, name)
    for position, event in enumerate(events, start=head + 1):
        if event.position != position:
            raise InvalidInput("events", f"position {position} is next, not {event.position}")
    try:
        _copy(connection, name, events, head)
    except psycopg.errors.UniqueViolation as error:
        raise InvalidInput("events", f"an id is stored already: {error.diag.message_detail}") from None
    connection.execute(
        "SELECT pg_notify('fencepost_' || %s::regclass::oid, %s)", [f"{name}.event", str(events[-1].position)]
    )


def _copy(connection: psycopg.Connection[Any], name: str, events: Iterable[Event | SequencedEvent], head: int) -> int:
    position = head
    statement = f"COPY {name}.event ({', '.join(COLUMNS)}) FROM STDIN (FORMAT BINARY)".encode()
    now_us = encode_moment(datetime.now(timezone.utc))
    with connection.cursor() as cursor, cursor.copy(statement) as copy:
        for block, last in copy_blocks(events, head, now_us):
            copy.write(block)
            position = last
    return position


def _drop_indexes(connection: psycopg.Connection[Any], schema: str) -> list[str]:
    """Drop all indexes except the one on positions; return the statements that create them again."""
    rows = connection.execute(
        "SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = %s AND tablename = 'event' "
        "AND indexname <> 'event_position'",
        [schema],
    ).fetchall()
    for index, _ in rows:
        connection.execute(f'DROP INDEX {quoted(schema)}."{index}"'.encode())
    return [definition for _, definition in rows]


def copy_blocks(events: Iterable[Event | SequencedEvent], head: int, now_us: int) -> Iterator[tuple[bytes, int]]:
    """The events in blocks for COPY, at the positions above `head`, and the last position in each block.

    Events of another store keep the time at which they were recorded; others get `now_us`.
    """
    types: dict[str, bytes] = {}
    parts, size, position = [HEADER], 0, head
    for position, event in enumerate(events, start=head + 1):
        if isinstance(event, SequencedEvent):
            _, type, _, data, at, id, metadata = event.stored
        else:
            type, data, at = event.type, event.data, now_us
            id, metadata = None if event.id is None else event.id.bytes, event.raw_metadata
        type_field = types.get(type)
        if type_field is None:
            if len(types) >= MOST_TYPES:
                types.clear()
            type_field = types[type] = _field(type.encode())
        parts += (
            _begin.pack(len(COLUMNS), 8, position, 8, at - POSTGRES_EPOCH_US),
            _NULL if id is None else _ID_LENGTH + id,
            type_field,
            _field(encode_array(sorted(event.tags))),
            _length.pack(len(data)),
            data,
            _field(metadata.encode()) if metadata else _NULL,
        )
        size += len(data) + 100
        if size >= BLOCK_BYTES:
            yield b"".join(parts), position
            parts, size = [], 0
    parts.append(TRAILER)
    yield b"".join(parts), position


def _field(content: bytes) -> bytes:
    return _length.pack(len(content)) + content
