"""A log that is kept as a lake, and its newest events in the store, are one DataFrame."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from tests.spark.conftest import append_each, stored, wallet_events
from tests.spark.lakes import written
from tests.spark.purses import Added, Purse
from tests.spark.rows import events_in

import fencepost
import fencepost.spark
from fencepost import AppendCondition, Event, InvalidInput, Query, StoreUnavailable
from fencepost.decisions import encode
from fencepost.engine import restore
from fencepost.spark import View, audit, events, fold, lake, match, snapshot, tables, use_lake, what_if
from fencepost.spark.lake import writer
from fencepost.spark.lake_engine.files import lake_at

LATE = 40


@pytest.fixture
def folder(spark: SparkSession, log: str, tmp_path: Path) -> str:
    """A lake of the log in three files; the store has `LATE` events more."""
    path = str(tmp_path / "lake")
    lake.export(spark, log, path, chunk=200)
    with fencepost.open(log) as store:
        append_each(store, [event for event in wallet_events(700)[500:] if event.id is None][:LATE])
    return path


def plan_of(frame: DataFrame) -> str:
    return str(frame._jdf.queryExecution().executedPlan().toString())


def scanned(frame: DataFrame) -> dict[str, int]:
    """The metrics of Spark's own scan of Parquet files, after running the query."""
    frame.collect()
    node = frame._jdf.queryExecution().executedPlan()
    while not node.nodeName().startswith("Scan parquet"):
        node = node.children().head()
    metrics = node.metrics()
    return {name: metrics.apply(name).value() for name in ("numFiles", "numOutputRows")}


def test_the_lake_and_the_rest_are_the_log_row_by_row(spark: SparkSession, log: str, folder: str) -> None:
    frame = events(spark, log, lake=folder)
    assert lake_at(folder).up_to == len(stored(log)) - LATE
    assert events_in(frame) == stored(log)
    assert frame.schema == events(spark, log).schema
    assert plan_of(frame).count("FileScan parquet") == plan_of(frame).count("(Python)") == 1


@pytest.mark.parametrize(
    "options",
    [
        {"after": 150},
        {"after": 200, "up_to": 400},
        {"up_to": 450},
        {"after": 515},
        {"after": 530, "up_to": 530},
        {"query": Query.of(tags={"wallet:w3", "region:eu"}) | Query.of(types={"Odd"}), "after": 3},
        {"query": Query.of(types={"WalletOpened"}, tags={"wallet:w1"})},
        {"types": '["Odd", "WalletOpened"]'},
        {"columns": "type string, position decimal(38,0)"},
        {"data": "string"},
        {"columns": "data string", "after": 505},
        {"data": "variant"},
    ],
    ids=", ".join,
)
def test_every_option_selects_the_same_events_with_a_lake(
    spark: SparkSession, log: str, folder: str, options: dict[str, Any]
) -> None:
    with_lake, without = events(spark, log, lake=folder, **options), events(spark, log, **options)
    assert with_lake.schema == without.schema
    if options.get("data") == "variant":
        with_lake, without = (frame.withColumn("data", F.to_json("data")) for frame in (with_lake, without))
    assert sorted(map(str, with_lake.collect())) == sorted(map(str, without.collect()))


def test_a_dataframe_stays_as_it_was_while_events_are_appended_and_exported(
    spark: SparkSession, log: str, folder: str
) -> None:
    frame, expected = events(spark, log, lake=folder), stored(log)
    for number in range(3):
        with fencepost.open(log) as store:
            store.append([Event("Late", tags={str(number)})] * 30)
        lake.export(spark, log, folder, chunk=50)
        assert events_in(frame) == expected
        assert frame.where("type = 'Odd'").count() + frame.where("type <> 'Odd'").count() == len(expected)
    assert events_in(events(spark, log, lake=folder)) == stored(log)


def test_refresh_exports_the_rest_first(spark: SparkSession, log: str, folder: str) -> None:
    frame = events(spark, log, lake=folder, refresh=True)
    assert "(Python)" not in plan_of(frame)
    assert lake_at(folder).up_to == len(stored(log)) == frame.count()


def test_a_lake_alone_is_read_by_spark_itself(spark: SparkSession, log: str, folder: str) -> None:
    frame = events(spark, f"lake:{folder}")
    assert "(Python)" not in plan_of(frame)
    assert events_in(frame) == stored(log)[:-LATE]
    assert events(spark, f"lake:{folder}", after=10**6).count() == 0


def test_a_lake_whose_path_spark_would_take_for_a_pattern(spark: SparkSession, log: str, tmp_path: Path) -> None:
    odd = str(tmp_path / "lake*[1]")
    lake.export(spark, log, odd)
    assert events_in(events(spark, f"lake:{odd}")) == stored(log)
    with pytest.raises(InvalidInput, match="pattern"):
        events(spark, log, lake=odd)


def test_filters_are_pushed_and_skip_row_groups_and_columns(
    spark: SparkSession, log: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Six row groups: the last one has nothing but events of the type Odd, and those were recorded last."""
    monkeypatch.setattr(writer, "ROW_GROUP_EVENTS", 100)
    folder = tmp_path / "lake"
    chunk = len(stored(log))
    written(log, folder, 500, chunk)
    whole = events(spark, f"lake:{folder}")
    assert scanned(whole.select("type")) == {"numFiles": 2, "numOutputRows": chunk}
    assert "ReadSchema: struct<type:string>" in plan_of(whole.select("type"))
    last = F.lit(stored(log)[500].recorded_at)
    for condition, pushed, rows in (
        (F.col("position").between(150, 160), "GreaterThanOrEqual(position,150)", 100),
        (F.col("type") == "WalletOpened", "EqualTo(type,WalletOpened)", 500),
        (F.col("recorded_at") >= last, "GreaterThanOrEqual(recorded_at,", None),
    ):
        chosen = whole.where(condition).select("position")
        assert pushed in plan_of(chosen)
        found = scanned(chosen)["numOutputRows"]
        assert found == rows if rows is not None else found < chunk
    assert scanned(events(spark, f"lake:{folder}", after=500))["numFiles"] == 1, "the table excludes the other"


def test_a_store_has_its_lake_named_once(spark: SparkSession, log: str, folder: str) -> None:
    use_lake(spark, log, folder)
    try:
        for frame in (events(spark, log), fold(spark, log, Purse, by="purse_id")):
            assert "FileScan parquet" in plan_of(frame)
        assert "FileScan" not in plan_of(events(spark, snapshot(log))), "a snapshot says itself what is read"
    finally:
        use_lake(spark, log, None)
    assert "FileScan" not in plan_of(events(spark, log))


def test_wrong_lakes_are_refused(spark: SparkSession, log: str, folder: str, empty: str, tmp_path: Path) -> None:
    with fencepost.open(empty) as store:
        store.append([Event("Other")])
    with pytest.raises(InvalidInput, match="another log"):
        events(spark, empty, lake=folder)
    with pytest.raises(StoreUnavailable, match="no such lake"):
        events(spark, log, lake=str(tmp_path / "none"))
    with pytest.raises(InvalidInput, match="a lake itself"):
        events(spark, f"lake:{folder}", lake=folder)
    with pytest.raises(InvalidInput, match="refresh"):
        events(spark, log, refresh=True)
    with pytest.raises(InvalidInput, match=r"query: a Query is needed, such as .*, not 'type:Odd'"):
        events(spark, log, query="type:Odd")  # type: ignore[arg-type]
    with pytest.raises(Exception, match=re.escape("events(..., lake=FOLDER)")):
        spark.read.format("fencepost").option("store", log).option("lake", folder).load().count()


def test_a_lake_that_is_ahead_of_an_older_copy_of_the_store_ends_with_the_store(
    spark: SparkSession, log: str, folder: str, tmp_path: Path
) -> None:
    copy = str(tmp_path / "copy.db")
    with fencepost.open(copy) as store:
        restore(store, stored(log)[:450])
    assert events_in(events(spark, copy, lake=folder)) == stored(log)[:450]


def test_damaged_and_missing_files_never_give_other_rows(spark: SparkSession, log: str, folder: str) -> None:
    frame = events(spark, log, lake=folder)
    path = Path(folder, lake_at(folder).files[1].path)
    whole = path.read_bytes()
    spark.conf.set("spark.sql.files.ignoreMissingFiles", "true")
    spark.conf.set("spark.sql.files.ignoreCorruptFiles", "true")
    try:
        for at in (100, len(whole) // 2):
            path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
            with pytest.raises(Exception, match=path.name):
                frame.collect()
        path.unlink()
        with pytest.raises(Exception, match=path.name):
            frame.collect()
    finally:
        spark.conf.unset("spark.sql.files.ignoreMissingFiles")
        spark.conf.unset("spark.sql.files.ignoreCorruptFiles")


def test_text_that_is_not_utf8_is_refused_with_its_position(spark: SparkSession, empty: str, tmp_path: Path) -> None:
    with fencepost.open(empty) as store:
        store.append([Event("Fine", data=b"{}"), Event("Raw", data=b"\xff")])
    folder = str(tmp_path / "lake")
    lake.export(spark, empty, folder)
    with pytest.raises(Exception, match=r"position 2, of type 'Raw', is not UTF-8"):
        events(spark, empty, lake=folder, data="string").collect()


def test_folds_views_and_tables_are_the_same_with_a_lake(spark: SparkSession, empty: str, tmp_path: Path) -> None:
    folder = str(tmp_path / "lake")
    with fencepost.open(empty) as store:
        store.append([encode(Added(f"p{number % 7}", number)) for number in range(60)])
        lake.export(spark, empty, folder, chunk=25)
        store.append([encode(Added(f"p{number % 9}", number)) for number in range(30)])

    def rows(frame: DataFrame) -> list[str]:
        return sorted(map(str, frame.collect()))

    for options in ({}, {"after": 10, "up_to": 70}, {"keys": ["p1", "p8"]}, {"up_to": 30}):
        folded = fold(spark, empty, Purse, by="purse_id", lake=folder, **options)
        assert rows(folded) == rows(fold(spark, empty, Purse, by="purse_id", **options))
    view = View(Purse, by="purse_id", at=str(tmp_path / "view"), store=empty, spark=spark, lake=folder)
    view.refresh(up_to=40)
    assert rows(view.at(35)) == rows(fold(spark, empty, Purse, by="purse_id", up_to=35))
    view.refresh()
    assert rows(view.latest()) == rows(fold(spark, empty, Purse, by="purse_id"))
    (typed,) = tables(spark, empty, [Added], lake=folder).values()
    assert "FileScan parquet" in plan_of(typed)
    assert rows(typed) == rows(tables(spark, empty, [Added])["added"])
    queries = {"p1": Query.of(tags={"purse_id:p1"}), "all": Query.all()}
    assert rows(match(events(spark, empty, lake=folder), queries)) == rows(match(events(spark, empty), queries))


def test_an_audit_is_the_same_with_a_lake_and_finds_damage_in_either_part(
    spark: SparkSession, empty: str, tmp_path: Path
) -> None:
    folder = str(tmp_path / "lake")
    with fencepost.open(empty, record_conditions=True) as store:
        for number in range(30):
            mine = Query.of(tags={f"w:{number % 3}"})
            store.append([Event("Paid", tags={f"w:{number % 3}"})], AppendCondition(mine, after=store.head()))
            if number == 19:
                lake.export(spark, empty, folder, chunk=8)
    with_lake, without = audit(spark, empty, lake=folder), audit(spark, empty)
    assert with_lake.sound
    assert (with_lake.events, with_lake.appends, with_lake.proven) == (without.events, without.appends, without.proven)
    assert with_lake.checksums.startswith("SHA-256 of every file of the lake; after position 20: SQLite's own")
    boundary = Query.of(types={"Paid"})
    assert what_if(spark, empty, boundary, lake=folder).conflicts == what_if(spark, empty, boundary).conflicts
    path = Path(folder, lake_at(folder).files[0].path)
    path.write_bytes(path.read_bytes()[:-1])
    found = audit(spark, empty, lake=folder)
    assert [violation.kind for violation in found.violations] == ["checksum"]
    assert path.name in found.violations[0].what
    shutil.rmtree(folder)
