"""Bulk loading by COPY: an import, a restore, or a move from another engine.

`load` stores any events after the head, in one transaction. If the store is empty, the indexes are built afterwards,
which is faster than updating them. `restore` stores events of another store with their positions; a large log is
restored in several transactions. Appends of other processes wait meanwhile. Both need the privileges of the owner.
tests/postgres/test_install.py checks that loaded events behave as appended ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timezone
from typing import Any

import psycopg

from ...errors import InvalidInput
from ...model import Event, Placed, SequencedEvent
from ...model.encodings import encode_moment
from .addresses import parameters_of
from .copy_rows import COLUMNS, copy_blocks
from .faults import translated
from .install import DEFAULT_SCHEMA, check_version, lock_log, quoted, read_head


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


def restore(connection: psycopg.Connection[Any], name: str, events: Sequence[SequencedEvent]) -> None:
    """Store the events with their positions in the caller's transaction. `name` is the quoted name of the schema."""
    connection.execute(
        "SELECT set_config('synchronous_commit', 'on', true) WHERE current_setting('synchronous_commit') = 'off'"
    )
    lock_log(connection, name)
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
