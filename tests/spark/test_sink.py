"""Writing a DataFrame, or a stream of them, into a log; on Spark."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from tests.spark.conftest import stored

import fencepost
from fencepost import AppendCondition, Query

COLUMNS = "type string, tags array<string>, data binary, id string, metadata map<string,string>"


def numbered(spark: SparkSession, count: int, partitions: int = 2) -> DataFrame:
    return spark.range(0, count, numPartitions=partitions).selectExpr(
        "'Counted' AS type", "array(concat('n:', id)) AS tags", "string(id) AS data"
    )


def test_rows_become_events(spark: SparkSession, empty: str) -> None:
    id = "6f6f6f6f-0000-4000-8000-000000000001"
    frame = spark.createDataFrame([("A", ["x", "y"], b"\x00\xff", id, {"by": "ada"})], COLUMNS)
    frame.write.format("fencepost").option("store", empty).mode("append").save()
    (event,) = stored(empty)
    assert (event.type, event.tags, event.data) == ("A", {"x", "y"}, b"\x00\xff")
    assert (str(event.id), event.metadata) == (id, {"by": "ada"})


def test_a_task_that_is_retried_stores_once(spark: SparkSession, empty: str, tmp_path: Path) -> None:
    """The first attempt of each task has handed over all of its rows when it fails."""

    def fail_once(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        context = TaskContext.get()
        assert context is not None
        if context.attemptNumber() == 0:
            raise RuntimeError("the first attempt fails")

    frame = numbered(spark, 3_000).withColumn("data", F.rpad("data", 400, " "))
    failing = frame.mapInArrow(fail_once, frame.schema)
    writer = failing.write.format("fencepost").option("store", empty).option("staging", str(tmp_path / "staging"))
    writer.mode("append").save()
    assert [int(event.data) for event in stored(empty)] == list(range(3_000))
    assert list((tmp_path / "staging").iterdir()) == []


def test_a_write_with_an_id_is_stored_once_however_often_it_is_run(spark: SparkSession, empty: str) -> None:
    for _ in range(2):
        writer = numbered(spark, 10).write.format("fencepost").option("store", empty).option("writeId", "import-1")
        writer.mode("append").save()
    assert len(stored(empty)) == 10


def test_rows_with_conditions_are_stored_or_come_back(spark: SparkSession, empty: str, tmp_path: Path) -> None:
    condition = AppendCondition(Query.of(tags={"n:0"})).to_json()
    frame = numbered(spark, 4, partitions=1).withColumn("condition", F.lit(condition))
    writer = frame.write.format("fencepost").option("store", empty).option("rejected", str(tmp_path / "rejected"))
    writer.mode("append").save()
    assert [event.tags for event in stored(empty)] == [{"n:0"}]
    rejected = spark.read.parquet(str(tmp_path / "rejected")).orderBy("data").collect()
    assert [(bytes(row["data"]), row["conflict_position"]) for row in rejected] == [(b"1", 1), (b"2", 1), (b"3", 1)]


def test_a_condition_that_fails_is_one_clear_error(spark: SparkSession, log: str) -> None:
    before = stored(log)
    condition = AppendCondition(Query.of(tags={"region:eu"})).to_json()
    writer = numbered(spark, 4).write.format("fencepost").option("store", log).option("condition", condition)
    with pytest.raises(AnalysisException, match=r"ConditionFailed: condition failed: event '\w+' at position \d+"):
        writer.mode("append").save()
    assert stored(log) == before


def test_a_stream_from_log_to_log_is_exact_also_when_a_batch_is_replayed(
    spark: SparkSession, log: str, empty: str, tmp_path: Path
) -> None:
    checkpoint = tmp_path / "checkpoint"

    def run() -> None:
        source = spark.readStream.format("fencepost").option("store", log).option("maxEventsPerTrigger", "300").load()
        writer = source.drop("position", "recorded_at", "id").writeStream.format("fencepost").option("store", empty)
        query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
        query.awaitTermination()

    run()
    expected = [(event.type, event.tags, event.data, event.metadata) for event in stored(log)]
    assert [(event.type, event.tags, event.data, event.metadata) for event in stored(empty)] == expected
    # As after a crash between the sink's commit and Spark's own note of it.
    (checkpoint / "commits" / "1").unlink()
    (checkpoint / "commits" / ".1.crc").unlink()
    run()
    assert len(stored(empty)) == len(expected)
    # A new checkpoint is a new stream, and stores everything again.
    shutil.rmtree(checkpoint)
    run()
    assert len(stored(empty)) == 2 * len(expected)


def test_an_empty_frame_stores_nothing(spark: SparkSession, empty: str) -> None:
    numbered(spark, 0).write.format("fencepost").option("store", empty).mode("append").save()
    with fencepost.open(empty) as store:
        assert store.head() == 0
