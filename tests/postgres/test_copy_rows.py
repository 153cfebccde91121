"""Rows that are written as bytes are stored as those that psycopg writes."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from importlib import import_module
from uuid import UUID

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg.types.json import Json

from fencepost import Event, SequencedEvent
from fencepost.engines.postgres.load import COLUMNS, copy_blocks
from fencepost.model.encodings import encode_json, encode_metadata, encode_moment, encode_tags

load = import_module("fencepost.engines.postgres.load")  # the package has a function of this name

TYPES = ["int8", "timestamptz", "uuid", "text", "text[]", "bytea", "json"]
TABLE = f"CREATE TEMPORARY TABLE {{}} ({', '.join(map(' '.join, zip(COLUMNS, TYPES, strict=True)))})"

texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=8)
tags = st.frozensets(texts, max_size=5)
metadata = st.dictionaries(
    texts, st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")), max_size=3
)
moments = st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30), timezones=st.just(timezone.utc))
stored = st.builds(
    lambda type, tags, data, at, id, metadata: SequencedEvent(
        1, type, encode_tags(tags), data, encode_moment(at), None if id is None else id.bytes, encode_metadata(metadata)
    ),
    texts,
    tags,
    st.binary(max_size=20),
    moments,
    st.none() | st.uuids(),
    metadata,
)
new = st.builds(
    lambda type, tags, data, id, metadata: Event(type, tags=tags, data=data, id=id, metadata=metadata),
    texts,
    tags,
    st.binary(max_size=20),
    st.none() | st.uuids(),
    metadata,
)
NOW = datetime(2026, 11, 17, 7, 30, 0, 123_456, timezone.utc)


def rows(connection: psycopg.Connection, table: str) -> list[tuple[object, ...]]:
    query = f"SELECT position, recorded_at, id, type, tags, data, metadata::text FROM {table} ORDER BY position"
    return connection.execute(query.encode()).fetchall()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=40)
@given(events=st.lists(st.one_of(stored, new), max_size=6), head=st.integers(0, 2**62))
def test_the_stored_rows_are_those_that_psycopg_stores(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch, events: list[Event | SequencedEvent], head: int
) -> None:
    monkeypatch.setattr(load, "BLOCK_BYTES", 200)  # so that there are several blocks
    columns = ", ".join(COLUMNS)
    with psycopg.connect(postgres_url) as connection:
        for table in ("ours", "theirs"):
            connection.execute(TABLE.format(table).encode())
        last = head
        with (
            connection.cursor() as cursor,
            cursor.copy(f"COPY ours ({columns}) FROM STDIN (FORMAT BINARY)".encode()) as copy,
        ):
            for block, reached in copy_blocks(iter(events), head, encode_moment(NOW)):
                copy.write(block)
                last = reached
        assert last == head + len(events)
        with (
            connection.cursor() as cursor,
            cursor.copy(f"COPY theirs ({columns}) FROM STDIN (FORMAT BINARY)".encode()) as copy,
        ):
            copy.set_types(TYPES)
            for position, event in enumerate(events, start=head + 1):
                at = event.recorded_at if isinstance(event, SequencedEvent) else NOW
                shown = (
                    Json(event.metadata, dumps=lambda value: encode_json(value).decode()) if event.metadata else None
                )
                copy.write_row((position, at, event.id, event.type, sorted(event.tags), event.data, shown))
        assert rows(connection, "ours") == rows(connection, "theirs")


def test_a_time_before_2000_is_kept_to_the_microsecond(postgres_url: str) -> None:
    at = datetime(1999, 12, 31, 23, 59, 59, 999_999, timezone.utc) - timedelta(days=400)
    event = SequencedEvent(1, "T", "[]", b"", encode_moment(at), UUID(int=1).bytes)
    with psycopg.connect(postgres_url) as connection:
        connection.execute(TABLE.format("ours").encode())
        with connection.cursor() as cursor, cursor.copy(b"COPY ours FROM STDIN (FORMAT BINARY)") as copy:
            for block, _ in copy_blocks([event], 0, 0):
                copy.write(block)
        assert rows(connection, "ours") == [(1, at, UUID(int=1), "T", [], b"", None)]
