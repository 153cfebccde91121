"""Following a log with Structured Streaming."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from pyspark.sql.types import LongType, StructType
from tests.spark.conftest import stored

import fencepost
from fencepost import Event, EventStore, FencepostError, InvalidInput, Query
from fencepost.spark.basics import full_schema
from fencepost.spark.basics.options import parse
from fencepost.spark.source.batch import Partition
from fencepost.spark.source.stream import FencepostStreamReader, offset, position_of


@pytest.fixture(autouse=True)
def _keep_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_HIDE_TRACEBACK", "")


def reader(log: str, **options: str) -> FencepostStreamReader:
    parsed = parse({"store": log, **options})
    return FencepostStreamReader(parsed, full_schema(parsed))


def batches(log: str, **options: str) -> list[tuple[int, int]]:
    """The batches of a stream that ends when it is current, as Spark would ask for them."""
    stream = reader(log, **options)
    stream.prepareForTriggerAvailableNow()
    made, start = [], stream.initialOffset()
    while (end := stream.latestOffset(start, stream.getDefaultReadLimit())) != start:
        made.append((position_of(start), position_of(end)))
        start = end
    stream.stop()
    return made


def test_a_stream_goes_through_the_log_in_batches_of_the_wanted_size(log: str) -> None:
    assert batches(log, maxEventsPerTrigger="200") == [(0, 200), (200, 400), (400, len(stored(log)))]
    assert batches(log) == [(0, len(stored(log)))]


def test_a_stream_begins_after_the_position_that_it_is_told(log: str) -> None:
    assert batches(log, after="500") == [(500, len(stored(log)))]
    assert batches(log, after="head") == []
    assert batches(log, after="10", upTo="20") == [(10, 20)]


def test_with_a_query_a_batch_is_so_many_matching_events(log: str) -> None:
    query = Query.of(tags={"wallet:w3"})
    with fencepost.open(log) as store:
        matching = [event.position for event in store.read(query)]
    ends = [up_to for _, up_to in batches(log, maxEventsPerTrigger="10", query=query.to_json())]
    assert ends == [*matching[9:-1:10], len(stored(log))]


def test_a_batch_that_is_planned_again_is_the_same_events(log: str) -> None:
    stream = reader(log)
    planned = stream.partitions(offset(100), offset(300))
    with fencepost.open(log) as store:
        store.append([Event("Late")])
    again = reader(log).partitions(offset(100), offset(300))
    assert planned == again
    assert [(part.selection.after, part.selection.up_to) for part in again if isinstance(part, Partition)] == [
        (100, 300)
    ]
    stream.stop()


def test_the_latest_offset_is_the_head_whatever_the_limit(log: str) -> None:
    stream = reader(log, maxEventsPerTrigger="10")
    assert stream.latestOffset(offset(0), ReadMaxRows(10)) == offset(10, after=0)
    assert stream.latestOffset(offset(0), ReadAllAvailable()) == offset(len(stored(log)), after=0)
    assert position_of(stream.reportLatestOffset()) == len(stored(log))
    stream.stop()


def test_a_run_that_ends_by_itself_does_not_chase_what_comes_meanwhile(log: str) -> None:
    stream = reader(log)
    stream.prepareForTriggerAvailableNow()
    target = offset(len(stored(log)), after=0)
    with fencepost.open(log) as store:
        store.append([Event("Late")])
    assert stream.latestOffset(offset(0), ReadAllAvailable()) == target
    assert stream.latestOffset(target, ReadAllAvailable()) == target
    stream.stop()


def test_a_store_that_ends_before_the_checkpoint_is_refused(log: str) -> None:
    stream = reader(log)
    with pytest.raises(FencepostError, match="another store, or an older copy"):
        stream.latestOffset(offset(10_000), ReadAllAvailable())
    stream.stop()


def test_a_stream_that_is_told_to_begin_above_the_head_is_refused(log: str) -> None:
    stream = reader(log, after="10000")
    with pytest.raises(InvalidInput, match="option 'after': 10000 is above the store's head"):
        stream.latestOffset(stream.initialOffset(), ReadAllAvailable())
    stream.stop()


def test_a_reader_travels_to_workers_without_its_open_store(log: str) -> None:
    stream = reader(log)
    stream.reportLatestOffset()
    assert pickle.loads(pickle.dumps(stream))._store is None
    stream.stop()


def test_offsets_hold_the_widest_positions_exactly() -> None:
    assert position_of(json.loads(json.dumps(offset(2**96 - 1)))) == 2**96 - 1


def test_on_spark_a_stream_restarts_where_it_was_and_reports_its_lag(
    spark: SparkSession, log: str, tmp_path: Path
) -> None:
    seen: list[list[int]] = []

    def collect(batch: DataFrame, batch_id: int) -> None:
        seen.append(sorted(row["position"] for row in batch.collect()))

    def run(**options: Any) -> list[dict[str, Any]]:
        source = spark.readStream.format("fencepost").schema("position long").option("store", log).options(**options)
        writer = source.load().writeStream.foreachBatch(collect).option("checkpointLocation", str(tmp_path / "c"))
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        return [json.loads(progress.json) for progress in query.recentProgress]

    progress = run(maxEventsPerTrigger=200)
    head = len(stored(log))
    assert seen == [list(range(1, 201)), list(range(201, 401)), list(range(401, head + 1))]
    assert [step["sources"][0]["latestOffset"] for step in progress[:3]] == [{"position": str(head)}] * 3
    assert [step["sources"][0]["endOffset"]["position"] for step in progress[:3]] == ["200", "400", str(head)]
    with fencepost.open(log) as store:
        store.append([Event("Late")])
    run()
    assert [position for batch in seen[3:] for position in batch] == [head + 1]


def test_a_batch_with_a_query_is_not_read_to_plan_it(log: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its end is found by one reading of the matches; the tasks read them again, and the planning does not."""
    readings = []
    plain = EventStore.read
    monkeypatch.setattr(EventStore, "read", lambda *args, **named: readings.append(named) or plain(*args, **named))
    query = Query.of(types={"MoneyAdded"}).to_json()
    stream = reader(log, query=query, maxEventsPerTrigger="50")
    end = stream.latestOffset(offset(0), stream.getDefaultReadLimit())
    assert stream.partitions(offset(0), end)
    assert len(readings) == 1
    stream.stop()


def test_a_stream_of_batch_ends_has_one_row_for_each_batch(log: str) -> None:
    options = parse({"store": log, "batchEnds": "true", "partitions": "5"})
    stream = FencepostStreamReader(options, StructType().add("position", LongType()))
    (part,) = stream.partitions(offset(100), offset(300))
    assert [row for batch in stream.read(part) for row in batch.to_pylist()] == [{"position": 300}]
    stream.stop()
    whole = FencepostStreamReader(options, full_schema(options))
    with pytest.raises(InvalidInput, match="'position bigint' alone"):
        whole.initialOffset()
