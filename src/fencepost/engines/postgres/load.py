"""Bulk loading: a restore, an import, or a move from another engine.

Everything goes in by COPY, as one transaction behind the head. `load` takes any events, all at once; into an empty
store the indexes are built afterwards, which is faster than keeping them. `restore` takes another store's
events with their positions, a part at a time. Others who append wait meanwhile. Only the owner of the tables
may do either.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timezone
from typing import Any, Final

import psycopg
from psycopg.types.json import Json

from ...errors import InvalidInput
from ...model import Event, Placed, SequencedEvent, encode_metadata
from .faults import translated
from .install import DEFAULT_SCHEMA, check_version, quoted
from .wire import TAGS_IN_ROW

COLUMNS: Final = {
    "position": "int8",
    "recorded_at": "timestamptz",
    "id": "uuid",
    "type": "text",
    "tags": "text[]",
    "data": "bytea",
    "metadata": "json",
}


def load(url: str, events: Iterable[Event | SequencedEvent], *, schema: str = DEFAULT_SCHEMA) -> Placed | None:
    """Store the events; those that come from another store keep the time at which they were recorded.

    Returns where they are, or None if there were none.
    """
    name = quoted(schema)
    with translated(), psycopg.connect(url, client_encoding="UTF8") as connection:
        check_version(connection, schema)
        connection.execute("SELECT pg_advisory_xact_lock(1179537987, %s::regclass::oid::int)", [f"{name}.event"])
        head = _number(connection, f"SELECT coalesce(max(position), 0) FROM {name}.event")
        indexes = _drop_indexes(connection, schema) if head == 0 else []
        last = _copy(connection, name, events, head)
        connection.execute(f"SELECT {name}.store_more_tags(%s)".encode(), [head])
        for definition in indexes:
            connection.execute(definition.encode())
        connection.execute(f"ANALYZE {name}.event, {name}.more_tags".encode())
    return Placed(head + 1, last) if last > head else None


def restore(connection: psycopg.Connection[Any], name: str, events: Sequence[SequencedEvent]) -> None:
    """Store the events as they are, in the caller's transaction; the schema's name is quoted."""
    connection.execute(
        "SELECT set_config('synchronous_commit', 'on', true) WHERE current_setting('synchronous_commit') = 'off'"
    )
    connection.execute("SELECT pg_advisory_xact_lock(1179537987, %s::regclass::oid::int)", [f"{name}.event"])
    head = _number(connection, f"SELECT coalesce(max(position), 0) FROM {name}.event")
    for position, event in enumerate(events, start=head + 1):
        if event.position != position:
            raise InvalidInput("events", f"position {position} is next, not {event.position}")
    try:
        _copy(connection, name, events, head)
    except psycopg.errors.UniqueViolation as error:
        raise InvalidInput("events", f"an id is stored already: {error.diag.message_detail}") from None
    if any(len(event.tags) > TAGS_IN_ROW for event in events):
        connection.execute(f"SELECT {name}.store_more_tags(%s)".encode(), [head])
    connection.execute(
        "SELECT pg_notify('fencepost_' || %s::regclass::oid, %s)", [f"{name}.event", str(events[-1].position)]
    )


def _copy(connection: psycopg.Connection[Any], name: str, events: Iterable[Event | SequencedEvent], head: int) -> int:
    position = head
    statement = f"COPY {name}.event ({', '.join(COLUMNS)}) FROM STDIN (FORMAT BINARY)".encode()
    with connection.cursor() as cursor, cursor.copy(statement) as copy:
        copy.set_types(list(COLUMNS.values()))
        for position, row in enumerate(_rows(events), start=head + 1):
            copy.write_row((position, *row))
    return position


def _rows(events: Iterable[Event | SequencedEvent]) -> Iterator[tuple[Any, ...]]:
    now = datetime.now(timezone.utc)
    for event in events:
        recorded_at = event.recorded_at if isinstance(event, SequencedEvent) else now
        metadata = Json(event.metadata, dumps=_encoded) if event.metadata else None
        yield recorded_at, event.id, event.type, sorted(event.tags), event.data, metadata


def _encoded(metadata: Mapping[str, str]) -> str:
    """As an append writes it."""
    return encode_metadata(metadata) or ""


def _drop_indexes(connection: psycopg.Connection[Any], schema: str) -> list[str]:
    """Drop all indexes but the one on positions, in this transaction; how to make them again."""
    rows = connection.execute(
        "SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = %s AND tablename = 'event' "
        "AND indexname <> 'event_position'",
        [schema],
    ).fetchall()
    for index, _ in rows:
        connection.execute(f'DROP INDEX {quoted(schema)}."{index}"'.encode())
    return [definition for _, definition in rows]


def _number(connection: psycopg.Connection[Any], query: str) -> int:
    row = connection.execute(query.encode()).fetchone()
    assert row is not None
    return int(row[0])
