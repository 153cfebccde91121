"""A DataFrame is one prefix of the log, however it is used and whatever is appended meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from tests.spark.purses import Added, Purse

import fencepost
import fencepost.spark
from fencepost import Event, Query, StoreUnavailable
from fencepost.decisions import encode
from fencepost.spark import events, fold, lake, match, snapshot
from fencepost.spark.basics import full_schema, parse
from fencepost.spark.source import FencepostSource

PAIRS = 100


def transfer(number: int) -> list[Event]:
    """Two events in one append: a debit is never there without its credit."""
    return [
        Event("Debit", data=b"{}", tags={f"purse_id:p{number % 3}"}),
        Event("Credit", data=b"{}", tags={f"purse_id:p{(number + 1) % 3}"}),
    ]


@pytest.fixture
def log(tmp_path: Path) -> str:
    path = str(tmp_path / "log.db")
    with fencepost.open(path) as store:
        for number in range(PAIRS):
            store.append(transfer(number))
    return path


@contextmanager
def appending(path: str) -> Iterator[None]:
    """Append transfers in the background, and check that some were appended."""
    stop = threading.Event()

    def work() -> None:
        with fencepost.open(path) as store:
            number = 0
            while not stop.wait(0.005):
                store.append(transfer(number := number + 1))

    with fencepost.open(path) as store:
        before = store.head()
        thread = threading.Thread(target=work)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()
        assert store.head() > before


def test_a_dataframe_used_in_ten_ways_is_one_prefix(spark: SparkSession, log: str, tmp_path: Path) -> None:
    with appending(log):
        frame = spark.read.format("fencepost").option("store", log).load()
        debits, credits = frame.where("type = 'Debit'"), frame.where("type = 'Credit'")
        frame.createOrReplaceTempView("transfers")
        uses = {
            "count": frame.count,
            "two filters": lambda: debits.count() + credits.count(),
            "the last position": lambda: frame.agg(F.max("position")).collect()[0][0],
            "a filter on positions": lambda: frame.where("position > 0").count(),
            "groups": lambda: sum(row["count"] for row in frame.groupBy("type").count().collect()),
            "a join with itself": lambda: frame.select("position").join(frame.select("position"), "position").count(),
            "a union of its halves": lambda: debits.union(credits).count(),
            "a temporary view": lambda: spark.sql("SELECT count(*) FROM transfers").collect()[0][0],
            "matching": lambda: match(frame, {"all": Query.all()}).count(),
            "a written copy": lambda: frame.write.parquet(str(tmp_path / "copy")) or 0,
            "a cached copy": lambda: frame.cache().count(),
        }
        found = {name: use() for name, use in uses.items()}
        found["a written copy"] = spark.read.parquet(str(tmp_path / "copy")).count()
        frame.unpersist()
    assert found == dict.fromkeys(uses, found["count"])
    assert found["count"] % 2 == 0, "a transfer is whole"


def test_a_fold_of_a_dataframe_ends_where_the_dataframe_does(spark: SparkSession, log: str) -> None:
    with fencepost.open(log) as store:
        store.append([encode(Added(f"p{number}", 1)) for number in range(3)])
    with appending(log):
        frame = spark.read.format("fencepost").option("store", log).load()
        count = frame.count()
        rows = fold(spark, frame, Purse, by="purse_id").collect()
    assert {row["up_to"] for row in rows} == {count}
    assert all(row["position"] <= count for row in rows)


def test_several_reads_share_a_snapshot(spark: SparkSession, log: str, tmp_path: Path) -> None:
    with fencepost.open(log) as store:
        store.append([encode(Added("p1", 1))])
    with appending(log):
        prefix = snapshot(log)
        counted = {
            "events": events(spark, prefix).count(),
            "options": spark.read.format("fencepost").options(**prefix.options).load().count(),
            "an earlier end": events(spark, prefix, up_to=10).count() + prefix.up_to - 10,
            "an end above it": events(spark, prefix, up_to=prefix.up_to + 1_000).count(),
            "audit": fencepost.spark.audit(spark, prefix).events,
            "lake": lake.export(spark, prefix, str(tmp_path / "lake")).events,
            "fold": fold(spark, prefix, Purse, by="purse_id").agg(F.max("up_to")).collect()[0][0],
        }
    assert counted == dict.fromkeys(counted, prefix.up_to)


def test_an_option_up_to_above_the_head_does_not_let_a_dataframe_grow(spark: SparkSession, log: str) -> None:
    frame = spark.read.format("fencepost").option("store", log).option("upTo", 10**6).load()
    with fencepost.open(log) as store:
        store.append(transfer(0))
    assert (frame.count(), frame.where("type = 'Debit'").count()) == (2 * PAIRS, PAIRS)


def test_a_store_that_appears_after_load_needs_another_load(tmp_path: Path) -> None:
    path = str(tmp_path / "late.db")
    source = FencepostSource({"store": path})
    schema = full_schema(parse({"store": path}))
    with pytest.raises(StoreUnavailable, match=r"late\.db"):
        source.reader(schema)
    fencepost.open(path).close()
    with pytest.raises(StoreUnavailable, match=r"call load\(\) again"):
        source.reader(schema)
    assert FencepostSource({"store": path}).reader(schema).partitions()
