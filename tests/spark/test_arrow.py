"""From stored columns to Spark's, exactly."""

from __future__ import annotations

from datetime import datetime, timezone
from uuid import UUID

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_schema

from fencepost import InvalidInput, SequencedEvent
from fencepost.core.address import Address
from fencepost.model import encode_metadata, encode_moment, encode_tags
from fencepost.spark.basics import full_schema
from fencepost.spark.basics.options import Options
from fencepost.spark.scanning.arrow import from_events, to_spark

SCHEMA = to_arrow_schema(full_schema(Options(Address.parse("x.db"))), timezone="UTC")
WIDE = to_arrow_schema(full_schema(Options(Address.parse("fdb:"))), timezone="UTC")
NOW = datetime(2026, 11, 16, 1, 2, 3, 456_789, tzinfo=timezone.utc)

texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=8)
awkward = st.text('",:\\[]{}é', min_size=1, max_size=4) | st.text(",:[]{} é", min_size=1, max_size=4)
tag_sets = st.frozensets(texts | awkward, max_size=4)
events = st.builds(
    SequencedEvent,
    st.integers(1, 2**62),
    texts,
    tag_sets,
    st.binary(max_size=8),
    st.just(NOW),
    st.none() | st.uuids(),
    st.dictionaries(texts | awkward, st.just("") | texts | awkward, max_size=3),
)


def encoded(event: SequencedEvent) -> SequencedEvent:
    """As the engines that keep JSON hand it out."""
    id = None if event.id is None else event.id.bytes
    return SequencedEvent(
        event.position,
        event.type,
        encode_tags(event.tags),
        event.data,
        encode_moment(event.recorded_at),
        id,
        encode_metadata(event.metadata),
    )


def decoded(batch: pa.RecordBatch) -> list[SequencedEvent]:
    return [
        SequencedEvent(
            int(row["position"]),
            row["type"],
            frozenset(row["tags"]),
            row["data"],
            row["recorded_at"],
            None if row["id"] is None else UUID(row["id"]),
            dict(row["metadata"]),
        )
        for row in batch.to_pylist()
    ]


@given(st.lists(events, min_size=1, max_size=5))
def test_what_goes_in_comes_out_in_either_stored_form(given_events: list[SequencedEvent]) -> None:
    for stored in (given_events, list(map(encoded, given_events))):
        batch = to_spark(from_events(stored, SCHEMA.names), SCHEMA)
        assert batch.schema.equals(SCHEMA)
        assert decoded(batch) == given_events


@given(st.lists(events, min_size=1, max_size=6), st.integers(0, 3))
def test_a_slice_of_a_batch_is_its_rows(given_events: list[SequencedEvent], start: int) -> None:
    start = min(start, len(given_events) - 1)
    batch = from_events(list(map(encoded, given_events)), SCHEMA.names).slice(start)
    assert decoded(to_spark(batch, SCHEMA)) == given_events[start:]


def metadata_of(texts: list[str]) -> list[list[tuple[str, str]]]:
    batch = to_spark(pa.record_batch({"metadata": pa.array(texts)}), pa.schema([SCHEMA.field("metadata")]))
    found: list[list[tuple[str, str]]] = batch.column("metadata").to_pylist()
    return found


def test_empty_blobs_stand_for_no_id_and_no_metadata() -> None:
    """What the SQLite scan gives, where nothing may be NULL."""
    stored = pa.record_batch(
        {"id": pa.array([b"", UUID(int=5).bytes, b""], pa.binary()), "metadata": pa.array(["", '{"a":"b"}', ""])}
    )
    batch = to_spark(stored, pa.schema([SCHEMA.field("id"), SCHEMA.field("metadata")]))
    assert batch.column("id").to_pylist() == [None, str(UUID(int=5)), None]
    assert batch.column("metadata").to_pylist() == [[], [("a", "b")], []]


def test_metadata_may_be_written_with_spaces() -> None:
    texts = ['{"a": "b", "c": ""}', "", '{"d": ","}', "{}"]
    assert metadata_of(texts) == [[("a", "b"), ("c", "")], [], [("d", ",")], []]


def test_metadata_with_spaces_is_not_cut_at_a_name_that_looks_like_a_border() -> None:
    assert metadata_of(['{"a": "b", ":": "x"}']) == [[("a", "b"), (":", "x")]]


def test_positions_of_96_bits_are_exact_as_decimals_and_refused_as_longs() -> None:
    stored = from_events([SequencedEvent(2**96 - 1, "T", frozenset(), b"", NOW)], SCHEMA.names)
    assert decoded(to_spark(stored, WIDE))[0].position == 2**96 - 1
    with pytest.raises(InvalidInput, match=r"decimal\(38,0\)"):
        to_spark(stored, SCHEMA)
