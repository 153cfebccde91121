"""One test of each thing that Fencepost does on Spark, on one session: what `make test` runs of Spark.

`make test-spark` runs the other tests in this folder, and `make test-slow` those that take minutes.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.spark import purses
from tests.spark.conftest import stored
from tests.spark.purses import Added, Moved, Opened, Purse
from tests.spark.rows import events_in

import fencepost
from fencepost import AppendCondition, Event, Query
from fencepost.decisions import encode, project
from fencepost.spark import View, audit, events, fold, lake, match, tables


@pytest.fixture
def purse_log(tmp_path: Path) -> str:
    """Two purses; the conditions of its appends are recorded."""
    path = str(tmp_path / "purses.db")
    with fencepost.open(path, record_conditions=True) as store:
        store.append([encode(Opened("a", "Ada")), encode(Added("a", 700)), encode(Opened("b", "Bob"))])
        moved = AppendCondition(Query.of(tags={"purse_id:a"}), after=store.head())
        store.append([encode(Moved("a", "b", 200))], moved)
    return path


def amounts_by_decisions(path: str) -> dict[str, int]:
    with fencepost.open(path) as store:
        return {key: project(store, Purse(key)).amount for key in ("a", "b")}


def test_a_batch_reads_the_log(spark: SparkSession, log: str) -> None:
    frame = spark.read.format("fencepost").option("store", log).load()
    assert events_in(frame) == stored(log)


def test_a_stream_follows_the_log(spark: SparkSession, log: str, tmp_path: Path) -> None:
    frame = spark.readStream.format("fencepost").option("store", log).load().select("position")
    query = (
        frame.writeStream.format("parquet")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(tmp_path / "rows"))
    )
    query.awaitTermination()
    positions = sorted(row["position"] for row in spark.read.parquet(str(tmp_path / "rows")).collect())
    assert positions == [event.position for event in stored(log)]


def test_a_sink_stores_each_row_once(spark: SparkSession, empty: str) -> None:
    frame = spark.range(0, 100, numPartitions=2).selectExpr("'Counted' AS type", "string(id) AS data")
    frame.write.format("fencepost").option("store", empty).mode("append").save()
    assert sorted(int(event.data) for event in stored(empty)) == list(range(100))


def test_a_fold_agrees_with_decisions(spark: SparkSession, purse_log: str) -> None:
    rows = fold(spark, purse_log, Purse, by="purse_id").collect()
    assert {row["purse_id"]: row["amount"] for row in rows} == amounts_by_decisions(purse_log)


def test_a_view_takes_in_what_is_new(spark: SparkSession, purse_log: str, tmp_path: Path) -> None:
    view = View(Purse, by="purse_id", at=str(tmp_path / "view"), store=purse_log, spark=spark)
    view.refresh()
    with fencepost.open(purse_log) as store:
        store.append([encode(Added("b", 50))])
    view.refresh()
    rows = view.latest().collect()
    assert {row["purse_id"]: row["amount"] for row in rows} == amounts_by_decisions(purse_log)


def test_typed_tables_have_the_fields_of_events(spark: SparkSession, purse_log: str) -> None:
    tables(spark, purse_log, purses)
    assert [tuple(row) for row in spark.sql("SELECT purse_id, amount FROM added").collect()] == [("a", 700)]


def test_matching_finds_every_pair(spark: SparkSession, purse_log: str) -> None:
    queries = {"a": Query.of(tags={"purse_id:a"}), "opened": Query.of(types={"Opened"})}
    pairs = match(events(spark, purse_log), queries).collect()
    found = sorted((row["query_id"], row["position"]) for row in pairs)
    assert found == [("a", 1), ("a", 2), ("a", 4), ("opened", 1), ("opened", 3)]


def test_an_audit_proves_each_recorded_condition(spark: SparkSession, purse_log: str) -> None:
    found = audit(spark, purse_log)
    assert (found.sound, found.events, found.proven, found.refuted) == (True, 4, 1, 0)
    found.release()


def test_a_lake_is_the_log_and_restores_it(spark: SparkSession, log: str, tmp_path: Path) -> None:
    folder = str(tmp_path / "lake")
    lake.export(spark, log, folder)
    assert lake.verify(spark, folder) == []
    with fencepost.open(tmp_path / "restored.db") as store:
        assert lake.restore(folder, store) == len(stored(log))
        store.append([Event("Afterwards")])
    assert stored(str(tmp_path / "restored.db"))[:-1] == stored(log)
