"""A stream whose batches are ranges of the log, read from a lake as far as it goes."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType
from tests.spark.conftest import append_each, stored, wallet_events
from tests.spark.rows import events_in

import fencepost
from fencepost import Event, InvalidInput, Query, SequencedEvent, StoreUnavailable
from fencepost.spark import Batch, follow, lake, snapshot, use_lake
from fencepost.spark.basics import full_schema
from fencepost.spark.basics.columns import WIDE, range_columns
from fencepost.spark.basics.options import parse
from fencepost.spark.lake_engine.files import lake_at
from fencepost.spark.source.stream import FencepostStreamReader, offset, position_of


class Seen:
    """A handler that keeps what it is given, and then does something else."""

    def __init__(self, then: Callable[[DataFrame, Batch], object] | None = None) -> None:
        self.batches: list[Batch] = []
        self.events: list[list[SequencedEvent]] = []
        self.plans: list[str] = []
        self._then = then

    def __call__(self, frame: DataFrame, batch: Batch) -> None:
        self.batches.append(batch)
        self.events.append(events_in(frame))
        self.plans.append(str(frame._jdf.queryExecution().executedPlan().toString()))
        if self._then is not None:
            self._then(frame, batch)

    @property
    def ranges(self) -> list[tuple[int, int]]:
        return [(batch.after, batch.up_to) for batch in self.batches]

    @property
    def sources(self) -> list[str]:
        """Where the events of each batch came from."""
        names = {"FileScan parquet": "lake", "(Python)": "store"}
        return [" and ".join(name for sign, name in names.items() if sign in plan) for plan in self.plans]


def run(spark: SparkSession, store: str, seen: Any, checkpoint: Path, **options: Any) -> None:
    follow(spark, store, seen, checkpoint=str(checkpoint), availableNow=True, **options).awaitTermination()


def test_every_event_comes_once_while_the_log_is_appended_exported_and_compacted(
    spark: SparkSession, log: str, tmp_path: Path
) -> None:
    folder = str(tmp_path / "lake")
    lake.export(spark, log, folder, up_to=150, chunk=50, compact=False)
    files = []

    def grow(frame: DataFrame, batch: Batch) -> None:
        with fencepost.open(log) as store:
            append_each(store, wallet_events(10)[1:8:2])
        if batch.id == 0:
            lake.export(frame.sparkSession, log, folder, up_to=batch.up_to + 90, chunk=50, compact=False)
            files.append(len(lake_at(folder).files))
            lake.compact(frame.sparkSession, folder, chunk=200)
            files.append(len(lake_at(folder).files))

    seen = Seen(grow)
    run(spark, log, seen, tmp_path / "checkpoint", lake=folder, max_events=250)
    run(spark, log, seen, tmp_path / "checkpoint", lake=folder)  # what came during the first run
    assert seen.ranges == [(0, 250), (250, 500), (500, 511), (511, 523)]
    assert [event for batch in seen.events for event in batch] == stored(log)[:523]
    for (after, up_to), found in zip(seen.ranges, seen.events, strict=True):
        assert [event.position for event in found] == list(range(after + 1, up_to + 1))
    assert seen.sources == ["lake and store", "lake and store", "store", "store"]
    assert files[1] < files[0]  # the compaction has replaced files


def test_a_batch_that_has_failed_comes_again_with_the_same_events(
    spark: SparkSession, log: str, tmp_path: Path
) -> None:
    """It is the first batch: of it, Spark has logged only the end."""
    folder = str(tmp_path / "lake")
    lake.export(spark, log, folder, up_to=0)

    def fail(frame: DataFrame, batch: Batch) -> None:
        raise RuntimeError("out of order")

    failed = Seen(fail)
    with pytest.raises(StreamingQueryException, match="out of order"):
        run(spark, log, failed, tmp_path / "checkpoint", lake=folder, after=17, max_events=300)
    lake.export(spark, log, folder, chunk=50, compact=False)
    lake.compact(spark, folder, chunk=1_000)
    with fencepost.open(log) as store:
        store.append([Event("Late")] * 3)
        again = Seen()
        # Neither where a new stream would begin now, nor how much it would read, concerns a batch that was planned.
        run(spark, log, again, tmp_path / "checkpoint", lake=folder, after=store.head(), max_events=1_000)
    assert failed.ranges == [(17, 317)]
    assert again.batches[0] == failed.batches[0]
    assert again.events[0] == failed.events[0]
    assert (failed.sources[0], again.sources[0]) == ("store", "lake")
    assert [event for batch in again.events for event in batch] == stored(log)[17:]


def test_a_stream_goes_on_while_it_is_triggered(spark: SparkSession, empty: str, tmp_path: Path) -> None:
    """From an empty log with an empty lake, which the session names."""
    folder = str(tmp_path / "lake")
    lake.export(spark, empty, folder)
    use_lake(spark, empty, folder)
    seen = Seen()
    query = None
    try:
        query = follow(spark, empty, seen, checkpoint=str(tmp_path / "c"), name="going_on", processingTime="0 seconds")
        assert query.name == "going_on"
        query.processAllAvailable()
        assert seen.batches == []
        for number in range(2):
            with fencepost.open(empty) as store:
                store.append([Event("Counted", data=str(number).encode())] * 20)
            if number:
                lake.export(spark, empty, folder)
            query.processAllAvailable()
    finally:
        if query is not None:
            query.stop()
        use_lake(spark, empty, None)
    assert [event for batch in seen.events for event in batch] == stored(empty)
    assert seen.sources[0] == "store"
    # A program that starts at the head sees none of these.
    later = Seen()
    run(spark, empty, later, tmp_path / "later", after="head")
    with fencepost.open(empty) as store:
        store.append([Event("Late")])
    run(spark, empty, later, tmp_path / "later", after="head")
    assert later.ranges == [(40, 41)]


def test_a_query_and_columns_narrow_the_events_and_not_the_ranges(
    spark: SparkSession, log: str, tmp_path: Path
) -> None:
    folder = str(tmp_path / "lake")
    lake.export(spark, log, folder, up_to=300)
    rows: list[Any] = []
    ranges = []

    def keep(frame: DataFrame, batch: Batch) -> None:
        assert frame.columns == ["type", "position"]
        rows.extend(sorted(frame.collect(), key=lambda row: row["position"]))
        ranges.append((batch.after, batch.up_to))

    query, columns = Query.of(types={"Odd"}), "type string, position long"
    for store, given, up_to in ((log, folder, len(stored(log))), (f"lake:{folder}", None, 300)):
        rows.clear()
        ranges.clear()
        options: dict[str, Any] = {"query": query, "columns": columns, "max_events": 250, "lake": given}
        run(spark, store, keep, tmp_path / f"checkpoint-{up_to}", **options)
        assert ranges == [(after, min(after + 250, up_to)) for after in range(0, up_to, 250)]
        with fencepost.open(log) as opened:
            assert rows == [(event.type, event.position) for event in opened.read(query, up_to=up_to)]


def test_what_no_batch_could_read_is_refused_at_once(spark: SparkSession, log: str, empty: str, tmp_path: Path) -> None:
    with fencepost.open(empty) as store:
        store.append([Event("Other")] * 3)
    lake.export(spark, empty, str(tmp_path / "other"))

    def refused(store: Any = log, **options: Any) -> Any:
        return follow(spark, store, Seen(), checkpoint=str(tmp_path / "never"), **options)

    with pytest.raises(InvalidInput, match="another log"):
        refused(lake=tmp_path / "other")
    with pytest.raises(StoreUnavailable):
        refused(lake=tmp_path / "nowhere")
    with pytest.raises(StoreUnavailable, match="no such store"):
        refused(str(tmp_path / "nowhere.db"))
    with pytest.raises(InvalidInput, match="column 'kind'"):
        refused(f"lake:{tmp_path / 'other'}", columns="kind string")
    with pytest.raises(InvalidInput, match="a snapshot does not grow"):
        refused(snapshot(log))
    with pytest.raises(InvalidInput, match="after"):
        refused(after=-1)
    assert not (tmp_path / "never").exists()


def test_an_older_copy_of_the_store_is_refused_also_by_a_batch_that_is_repeated(
    spark: SparkSession, log: str, tmp_path: Path
) -> None:
    shutil.copy(log, tmp_path / "older.db")
    with fencepost.open(log) as store:
        store.append([Event("Late")])

    def fail(frame: DataFrame, batch: Batch) -> None:
        raise RuntimeError("out of order")

    with pytest.raises(StreamingQueryException, match="out of order"):
        run(spark, log, fail, tmp_path / "checkpoint")
    seen = Seen()
    with pytest.raises(StreamingQueryException, match="another store, or an older copy"):
        run(spark, str(tmp_path / "older.db"), seen, tmp_path / "checkpoint")
    assert seen.batches == []


def test_ranges_hold_the_widest_positions_exactly() -> None:
    options = parse({"store": "fdb:/etc/foundationdb/fdb.cluster", "batchEnds": "true"})
    assert range_columns(options.store) == "after decimal(38,0), position decimal(38,0)"
    stream = FencepostStreamReader(options, StructType().add("after", WIDE).add("position", WIDE))
    after, up_to = 2**95 + 1, 2**96 - 1
    (part,) = stream.partitions(offset(0), offset(up_to, after))
    assert [row for batch in stream.read(part) for row in batch.to_pylist()] == [{"after": after, "position": up_to}]


def test_a_batch_begins_where_its_logged_end_says(log: str) -> None:
    """Spark asks for the initial offset again if the first batch was not finished; the head has moved on by then."""
    options = parse({"store": log, "after": "head"})
    stream = FencepostStreamReader(options, full_schema(options))
    start = stream.initialOffset()
    with fencepost.open(log) as store:
        store.append([Event("Late")] * 3)
    end = stream.latestOffset(start, stream.getDefaultReadLimit())
    planned = stream.partitions(start, end)
    stream.stop()
    again = FencepostStreamReader(options, full_schema(options))
    assert position_of(again.initialOffset()) == position_of(start) + 3
    assert again.partitions(again.initialOffset(), end) == planned
    again.stop()
