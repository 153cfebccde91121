"""A lake that is exported to again and again has few files, and its readers notice nothing of it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from tests.spark.conftest import stored
from tests.spark.rows import events_in

import fencepost
from fencepost import Event, Query, StoreCorrupt
from fencepost.spark import events, lake, match
from fencepost.spark.lake import compaction
from fencepost.spark.lake_engine.files import lake_at

CHUNK = 40


def appended(path: str, count: int) -> None:
    with fencepost.open(path) as store:
        for number in range(count):
            store.append([Event("Debit", tags={f"p:{number % 3}"}), Event("Credit", tags={f"p:{number % 4}"})])


def test_many_exports_leave_few_files_that_verify(spark: SparkSession, empty: str, tmp_path: Path) -> None:
    folder = str(tmp_path / "lake")
    appended(empty, 30)
    frames = []
    for up_to in range(10, 61, 10):
        lake.export(spark, empty, folder, up_to=up_to, chunk=CHUNK)
        frames.append((up_to, events(spark, f"lake:{folder}")))
    assert [file.rows for file in lake_at(folder).files] == [CHUNK, 10, 10]
    assert lake.verify(spark, folder) == []
    for up_to, frame in frames[1::2]:
        assert frame.count() == up_to, "a DataFrame of before the compaction reads the files of then"
    assert events_in(frames[-1][1]) == stored(empty)
    assert lake.compact(spark, folder, chunk=CHUNK, retain_hours=0) == lake.Compacted(3, 3)
    assert {path.name for path in Path(folder, "events").glob("*.parquet")} == {
        Path(file.path).name for file in lake_at(folder).files
    }


def test_a_damaged_file_is_not_merged_into_a_new_one(spark: SparkSession, empty: str, tmp_path: Path) -> None:
    folder = tmp_path / "lake"
    appended(empty, 20)
    for up_to in (20, 40):
        lake.export(spark, empty, str(folder), up_to=up_to, chunk=CHUNK, compact=False)
    before = lake_at(folder)
    path = folder / before.files[0].path
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(Exception, match=r"the table.s log says .*the lake was not compacted"):
        lake.compact(spark, str(folder), chunk=CHUNK)
    assert lake_at(folder) == before
    with pytest.raises(StoreCorrupt):
        lake.restore(str(folder), fencepost.open("memory:"))


@contextmanager
def going_on(*works: Callable[[], None]) -> Iterator[None]:
    """Do each of these again and again in a thread of its own; an error in one is raised at the end."""
    stop, failed = threading.Event(), list[BaseException]()

    def repeat(work: Callable[[], None]) -> None:
        try:
            while not stop.wait(0.01):
                work()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=repeat, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    if failed:
        raise failed[0]


def test_a_dataframe_used_in_ten_ways_is_one_prefix_while_the_lake_changes(
    spark: SparkSession, empty: str, tmp_path: Path
) -> None:
    folder = str(tmp_path / "lake")
    appended(empty, 20)
    lake.export(spark, empty, folder, chunk=20)
    begun = lake_at(folder)

    def export() -> None:
        lake.export(spark, empty, folder, chunk=20)

    with going_on(lambda: appended(empty, 3), export):
        frame = events(spark, empty, lake=folder)
        debits, credits = frame.where("type = 'Debit'"), frame.where("type = 'Credit'")
        frame.createOrReplaceTempView("changing")
        uses: dict[str, Callable[[], int]] = {
            "count": frame.count,
            "two filters": lambda: debits.count() + credits.count(),
            "pairs": lambda: 2 * debits.count(),
            "the last position": lambda: frame.agg(F.max("position")).collect()[0][0],
            "different positions": lambda: frame.select("position").distinct().count(),
            "groups": lambda: sum(row["count"] for row in frame.groupBy("type").count().collect()),
            "a join with itself": lambda: frame.select("position").join(frame.select("position"), "position").count(),
            "a union of its halves": lambda: debits.union(credits).count(),
            "a temporary view": lambda: spark.sql("SELECT count(*) FROM changing").collect()[0][0],
            "matching": lambda: match(frame, {"all": Query.all()}).count(),
        }
        found = {name: use() for name, use in uses.items()}
        rows = events_in(frame)
    assert found == dict.fromkeys(uses, len(rows))
    assert rows == stored(empty)[: len(rows)]
    assert lake_at(folder).up_to > begun.up_to, "exports went on"
    assert lake.verify(spark, folder) == []
    assert events_in(events(spark, empty, lake=folder)) == stored(empty)


def test_a_followed_lake_is_compacted(
    spark: SparkSession, empty: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compaction, "FANOUT", 3)
    folder, checkpoint = str(tmp_path / "lake"), str(tmp_path / "checkpoint")
    for _ in range(4):
        appended(empty, 2)
        query = lake.follow(spark, empty, folder, checkpoint=checkpoint, chunk=1_000, availableNow=True)
        query.awaitTermination()
    assert [file.rows for file in lake_at(folder).files] == [12, 4]
    assert events_in(events(spark, empty, lake=folder)) == stored(empty)
