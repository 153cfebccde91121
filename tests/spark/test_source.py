"""Reading a log as a DataFrame."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.datasource import DataSourceReader, EqualTo, GreaterThan, LessThanOrEqual
from tests.spark.conftest import NASTY_TAGS, stored, wallet_events
from tests.spark.rows import events_in

import fencepost
from fencepost import Event, Query, QueryItem
from fencepost.spark import events
from fencepost.spark.basics import full_schema
from fencepost.spark.basics.options import parse
from fencepost.spark.scanning import Selection
from fencepost.spark.source.batch import FencepostReader, FencepostSource, Partition


def load(spark: SparkSession, store: str, schema: str | None = None, **options: Any) -> DataFrame:
    reader = spark.read.format("fencepost").option("store", store).options(**options)
    return (reader.schema(schema) if schema else reader).load()


def test_every_event_comes_with_every_field_as_it_is_stored(spark: SparkSession, log: str) -> None:
    assert events_in(load(spark, log)) == stored(log)


def test_columns_have_sparks_own_types(spark: SparkSession, log: str) -> None:
    assert load(spark, log).schema.simpleString() == (
        "struct<position:bigint,type:string,tags:array<string>,data:binary,recorded_at:timestamp,id:string,"
        "metadata:map<string,string>>"
    )


def test_partitions_make_up_the_whole_log(spark: SparkSession, log: str) -> None:
    for partitions in (1, 7):
        frame = load(spark, log, partitions=partitions)
        assert frame.rdd.getNumPartitions() == partitions
        assert events_in(frame) == stored(log)


def test_partitions_hold_about_as_many_events_each(spark: SparkSession, log: str) -> None:
    counted = load(spark, log, partitions=4).groupBy(F.spark_partition_id()).count().collect()
    sizes = [row["count"] for row in counted]
    assert len(sizes) == 4
    assert max(sizes) - min(sizes) <= 1


def test_partitions_of_a_query_hold_about_as_many_matches_each(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "skewed.db")
    with fencepost.open(path) as store:
        store.append([Event("Rare", tags={"x"}) for _ in range(40)])
        store.append([Event("Common") for _ in range(2_000)])
    frame = load(spark, path, partitions=4, query=Query.of(tags={"x"}).to_json())
    counts = frame.groupBy(F.spark_partition_id()).count().collect()
    assert sorted(row["count"] for row in counts) == [10, 10, 10, 10]


@pytest.mark.parametrize(("after", "up_to"), [(5, 5), (5, 100), (509, 10_000)])
def test_after_and_up_to_bound_the_positions(spark: SparkSession, log: str, after: int, up_to: int) -> None:
    read = events_in(load(spark, log, after=after, upTo=up_to))
    assert read == [event for event in stored(log) if after < event.position <= up_to]


@pytest.mark.parametrize(
    "query",
    [
        Query([QueryItem(types={"Odd"}), QueryItem(types={"WalletOpened"}, tags={"wallet:w3", "region:eu"})]),
        Query.of(tags=NASTY_TAGS),
        Query.of(tags={"absent"}),
    ],
)
def test_a_query_is_answered_as_the_store_answers_it(spark: SparkSession, log: str, query: Query) -> None:
    with fencepost.open(log) as store:
        expected = list(store.read(query, after=3, up_to=512))
    assert events_in(load(spark, log, query=query.to_json(), after=3, upTo=512, partitions=3)) == expected


def test_a_schema_narrows_what_is_read_to_its_columns_in_its_order(spark: SparkSession, log: str) -> None:
    rows = load(spark, log, "type string, position long").orderBy("position").collect()
    assert [tuple(row) for row in rows] == [(event.type, event.position) for event in stored(log)]


def test_data_can_be_read_as_text(spark: SparkSession, log: str) -> None:
    for frame in (load(spark, log, data="string"), load(spark, log, "position long, data string")):
        assert frame.where("position = 1").select(F.get_json_object("data", "$.amount")).collect() == [("0",)]


def test_data_can_be_read_as_a_variant(spark: SparkSession, log: str) -> None:
    frame = load(spark, log, "position long, data variant", upTo=10)
    amounts = frame.select("position", F.expr("variant_get(data, '$.amount', 'int')")).orderBy("position").collect()
    with fencepost.open(log) as store:
        assert [row[1] for row in amounts] == [int(event.data[11:-1]) for event in store.read(up_to=10)]


def test_a_position_can_be_read_as_a_decimal(spark: SparkSession, log: str) -> None:
    frame = load(spark, log, "position decimal(38,0)")
    assert frame.agg(F.sum("position")).collect()[0][0] == sum(event.position for event in stored(log))


def test_an_empty_store_is_an_empty_frame(spark: SparkSession, empty: str) -> None:
    assert load(spark, empty).collect() == []


def test_a_frame_is_the_same_prefix_of_the_log_for_good(spark: SparkSession, log: str) -> None:
    frame = load(spark, log)
    before = frame.count()
    with fencepost.open(log) as store:
        store.append([Event("Late")])
    assert frame.count() == before
    assert load(spark, log).count() == before + 1


def test_a_frame_that_was_filtered_once_is_still_whole(spark: SparkSession, log: str) -> None:
    """PySpark reuses the plan of a frame's first use, filters included, for all later ones."""
    frame = load(spark, log)
    assert frame.where("position <= 20").count() == 20
    assert frame.count() == len(stored(log))
    halves = frame.where("position <= 20").union(frame.where("position > 500"))
    assert halves.count() == 20 + len(stored(log)) - 500


def test_pushed_filters_never_change_the_result(spark: SparkSession, log: str) -> None:
    """test_selection.py has many more of them, without Spark."""
    for condition in ("position > 17.5 and type in ('Odd', 'WalletOpened')", "position > 500 or type = 'Odd'"):
        pushed = load(spark, log, pushFilters="true").where(condition)
        assert events_in(pushed) == events_in(load(spark, log).where(condition))


def test_pushed_filters_narrow_what_is_read(log: str) -> None:
    given = {"store": log, "pushFilters": "true"}
    reader = FencepostSource(given).reader(full_schema(parse(given)))
    filters = [GreaterThan(("position",), 10), LessThanOrEqual(("position",), 30), EqualTo(("type",), "Odd")]
    assert list(reader.pushFilters(list(filters))) == filters
    (part,) = reader.partitions()
    assert isinstance(part, Partition)
    assert part.selection == Selection(10, 30, types=frozenset({"Odd"}))


def test_filters_are_not_taken_unless_asked_for() -> None:
    assert FencepostReader.pushFilters is DataSourceReader.pushFilters


def test_the_python_way_of_reading_is_the_same(spark: SparkSession, log: str) -> None:
    query = Query.of(tags={"wallet:w3"})
    with fencepost.open(log) as store:
        expected = list(store.read(query, after=2, up_to=400))
    assert events_in(events(spark, log, query=query, after=2, up_to=400)) == expected
    assert events(spark, log, columns="type string").columns == ["type"]


def test_a_path_can_be_loaded(spark: SparkSession, log: str) -> None:
    assert spark.read.format("fencepost").load(log).count() == len(stored(log))


def test_many_events_in_one_read(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "many.db")
    with fencepost.open(path) as store:
        for _ in range(3):
            store.append([event for event in wallet_events(20_001) if event.id is None])
    frame = load(spark, path)
    assert frame.rdd.getNumPartitions() > 1
    assert frame.agg(F.count("*"), F.countDistinct("position"), F.max("position")).collect() == [(30_000,) * 3]


def test_large_payloads_come_in_small_batches(tmp_path: Path) -> None:
    path = str(tmp_path / "large.db")
    with fencepost.open(path) as store:
        for _ in range(4):
            store.append([Event("Large", data=b"x" * 1_000_000) for _ in range(50)])
    batches = subprocess.run(
        [sys.executable, "-c", COUNT_ROWS, path], capture_output=True, text=True, check=True
    ).stdout.split()
    assert max(map(int, batches)) <= 64
    assert sum(map(int, batches)) == 200


COUNT_ROWS = """
import sys
from fencepost.spark.scanning import Selection
from fencepost.spark.scanning.sqlite import SqliteScan
print(*[batch.num_rows for batch in SqliteScan(sys.argv[1]).batches(Selection(0, 200), ["data"])])
"""
