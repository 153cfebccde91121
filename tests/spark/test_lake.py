"""The log as a Delta table whose files prove themselves."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from tests.spark.conftest import stored
from tests.spark.lakes import NO_SPARK, without_spark, written
from tests.spark.rows import events_in

import fencepost
from fencepost import Event, InvalidInput, Query, StoreCorrupt, StoreError
from fencepost.spark import lake
from fencepost.spark.lake import exports, follow, writer
from fencepost.spark.lake_engine.files import Lake, LakeFile, lake_at, problem_of
from fencepost.spark.lake_engine.reader import read_files
from fencepost.spark.scanning import Selection
from fencepost.spark.scanning import lake as lake_scan
from fencepost.spark.scanning.lake import LakeScan


@pytest.fixture
def exported(spark: SparkSession, log: str, tmp_path: Path) -> Path:
    folder = tmp_path / "lake"
    lake.export(spark, log, str(folder), chunk=200)
    return folder


def test_an_export_holds_the_log_in_chunks(spark: SparkSession, log: str, exported: Path) -> None:
    head = len(stored(log))
    assert [(file.after + 1, file.up_to, file.rows) for file in lake_at(exported).files] == [
        (1, 200, 200),
        (201, 400, 200),
        (401, head, head - 400),
    ]
    assert events_in(spark.read.parquet(str(exported / "events"))) == stored(log)
    table = DeltaTable(str(exported))
    assert sorted(table.to_pyarrow_table()["position"].to_pylist()) == [event.position for event in stored(log)]
    assert table.history(1)[0]["fencepost.position"] == str(head)


def test_positions_and_times_are_stored_as_differences(exported: Path) -> None:
    metadata = pq.read_metadata(next((exported / "events").glob("*.parquet")))
    columns = [metadata.row_group(0).column(index) for index in range(metadata.num_columns)]
    packed = {each.path_in_schema for each in columns if "DELTA_BINARY_PACKED" in each.encodings}
    assert packed == {"position", "recorded_at"}


def test_an_export_goes_on_where_the_last_one_ended(spark: SparkSession, log: str, exported: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in (exported / "events").iterdir()}
    with fencepost.open(log) as store:
        store.append([Event("Late") for _ in range(100)])
    done = lake.export(spark, log, str(exported), chunk=200)
    assert done == lake.Exported(files=2, events=100, up_to=len(stored(log)))
    assert before.items() <= {path: path.stat().st_mtime_ns for path in (exported / "events").iterdir()}.items()
    assert lake.export(spark, log, str(exported), chunk=200).files == 0
    assert lake.verify(spark, str(exported)) == []


def test_another_log_is_not_mixed_in(spark: SparkSession, exported: Path, empty: str) -> None:
    with fencepost.open(empty) as store:
        store.append([Event("Other")])
    with pytest.raises(InvalidInput, match="another log"):
        lake.export(spark, empty, str(exported))


def test_a_lake_is_read_like_the_store_that_it_came_from(spark: SparkSession, log: str, exported: Path) -> None:
    query = Query.of(tags={"wallet:w3"}) | Query.of(types={"Odd"})
    with fencepost.open(log) as store:
        expected = list(store.read(query, after=150, up_to=505))
    reader = spark.read.format("fencepost").option("store", f"lake:{exported}").option("partitions", 3)
    assert events_in(reader.load()) == stored(log)
    assert events_in(reader.options(after=150, upTo=505, query=query.to_json()).load()) == expected


def test_a_lake_is_a_store_that_can_only_be_read(log: str, exported: Path) -> None:
    with LakeScan(str(exported)).open() as store:
        query = Query.of(tags={"wallet:w3"})
        with fencepost.open(log) as original:
            assert list(store.read(query, limit=5)) == list(original.read(query, limit=5))
        assert store.head() == len(stored(log))
        with pytest.raises(StoreError, match="read-only"):
            store.append([Event("A")])


def damaged(exported: Path, how: str) -> str:
    """Damage the second file; what is then to be said about it."""
    path = exported / lake_at(exported).files[1].path
    if how == "missing":
        path.unlink()
        return "missing"
    if how == "short":
        path.write_bytes(path.read_bytes()[:-1])
        return "bytes, and the table's log says"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    return "SHA-256"


@pytest.mark.parametrize("how", ["missing", "short", "flipped"])
def test_verify_finds_what_is_wrong(spark: SparkSession, exported: Path, how: str) -> None:
    expected = damaged(exported, how)
    (problem,) = lake.verify(spark, str(exported))
    assert problem.startswith(lake_at(exported).files[1].path)
    assert expected in problem


def test_a_stream_keeps_the_lake_current(spark: SparkSession, log: str, tmp_path: Path) -> None:
    folder, checkpoint = tmp_path / "lake", str(tmp_path / "checkpoint")
    for _ in range(2):
        follow(spark, log, str(folder), checkpoint=checkpoint, availableNow=True).awaitTermination()
        assert lake_at(folder).up_to == len(stored(log))
        with fencepost.open(log) as store:
            store.append([Event("Late")])
    assert lake.verify(spark, str(folder)) == []


def test_times_are_kept_to_the_microsecond(spark: SparkSession, log: str, exported: Path) -> None:
    seconds = spark.read.parquet(str(exported / "events")).select(F.unix_micros("recorded_at")).collect()
    assert {row[0] for row in seconds} == {event.raw_recorded_at for event in stored(log)}


def test_a_version_of_the_table_is_found_by_position(log: str, tmp_path: Path) -> None:
    written(log, tmp_path / "lake", 10, 20, 30)
    for position, last in ((0, 0), (1, 10), (10, 10), (11, 20), (30, 30)):
        version = lake.table_version(str(tmp_path / "lake"), position)
        found = DeltaTable(str(tmp_path / "lake"), version=version).to_pyarrow_table()["position"].to_pylist()
        assert sorted(found) == list(range(1, last + 1))
    with pytest.raises(InvalidInput, match="position: 31 is above the lake's position, 30"):
        lake.table_version(str(tmp_path / "lake"), 31)


def test_what_a_killed_export_has_left_is_removed_an_hour_later(
    log: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_spark(monkeypatch)
    folder = tmp_path / "lake"
    table = written(log, folder, 100).table

    def killed(*args: object) -> None:
        raise SystemExit

    with monkeypatch.context() as patched:
        patched.setattr(type(table), "commit", killed)
        with pytest.raises(SystemExit):
            lake.export(NO_SPARK, log, str(folder), chunk=200)
    (folder / "events" / ".draft-abc").mkdir()
    (folder / "events" / ".draft-abc" / "draft.parquet").touch()
    (folder / "events" / "notes.txt").touch()
    before = table.listed("events")
    assert len(before) == 1 + 2 + 2
    assert lake_at(folder).up_to == 100
    lake.export(NO_SPARK, log, str(folder), up_to=100)
    assert table.listed("events") == before, "they may belong to a process that is alive"
    for path in before:
        os.utime(folder / path, (time.time() - 7_200,) * 2)
    lake.export(NO_SPARK, log, str(folder), chunk=200, compact=False)
    assert lake.verify(NO_SPARK, str(folder)) == []
    listed = {file.path for file in lake_at(folder).files}
    assert set(table.listed("events")) == listed | {"events/notes.txt"}
    assert not (folder / "events" / ".draft-abc").exists()


def test_files_without_their_table_are_left_alone(log: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_spark(monkeypatch)
    table = written(log, tmp_path / "lake", 100).table
    (tmp_path / "lake" / "_delta_log").rename(tmp_path / "moved")
    with pytest.raises(StoreCorrupt, match="no _delta_log"):
        lake.export(NO_SPARK, log, str(tmp_path / "lake"))
    assert len(table.listed("events")) == 1


def overtaken(monkeypatch: pytest.MonkeyPatch, work: Any) -> None:
    """Let another process commit before the next commit of this one."""
    plain, done = exports.FileTable.commit, list[int]()

    def commit(self: Any, *args: Any) -> Any:
        if not done:
            done.append(1)
            work()
        return plain(self, *args)

    monkeypatch.setattr(exports.FileTable, "commit", commit)


def test_of_two_exports_one_commits_and_the_other_continues(
    log: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_spark(monkeypatch)
    folder = str(tmp_path / "lake")
    written(log, folder, 100)
    overtaken(monkeypatch, lambda: lake.export(NO_SPARK, log, folder, up_to=300, chunk=100))
    assert lake.export(NO_SPARK, log, folder, chunk=100) == lake.Exported(3, 211, 511)
    assert lake.verify(NO_SPARK, folder) == []
    with fencepost.open(f"lake:{folder}") as kept:
        assert list(kept.read()) == stored(log)


def test_an_export_that_is_always_overtaken_reports_it(
    log: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_spark(monkeypatch)
    monkeypatch.setattr(exports, "PATIENCE_S", 0.0)
    written(log, tmp_path / "lake", 100)
    overtaken(monkeypatch, lambda: lake.export(NO_SPARK, log, str(tmp_path / "lake")))
    with pytest.raises(fencepost.StoreUnavailable, match="another process has changed this table"):
        lake.export(NO_SPARK, log, str(tmp_path / "lake"))


def test_partitions_of_a_lake_are_balanced_by_its_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Positions with gaps: the first file has as many events as the second in a hundredth of the positions."""
    files = tuple(
        LakeFile(path="x", after=after, up_to=up_to, rows=100, bytes=0, sha256="")
        for after, up_to in ((0, 100), (100, 10_000))
    )
    nothing: Any = None
    monkeypatch.setattr(lake_scan, "lake_at", lambda folder: Lake(nothing, nothing, files))
    assert LakeScan("x").borders(nothing, Selection(0, 10_000), 4) == [50, 100, 5_050]


def test_row_groups_that_cannot_match_are_never_read(log: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "ROW_GROUP_EVENTS", 100)
    made = written(log, tmp_path / "lake", len(stored(log)))
    read: list[int] = []
    original = pq.ParquetFile.iter_batches

    def watched(self: Any, *args: Any, row_groups: list[int], **kwargs: Any) -> Any:
        read.extend(row_groups)
        return original(self, *args, row_groups=row_groups, **kwargs)

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", watched)
    for selection in (Selection(150, 250), Selection(0, 10**6, types=frozenset({"WalletOpened"}))):
        bounds: Any = {"after": selection.after, "up_to": selection.up_to, "types": selection.types}
        list(read_files(made, ["position"], **bounds))
    assert read == [1, 2, 0, 1, 2, 3, 4]  # the last group holds nothing but odd ones


def test_verify_looks_into_the_files_not_only_at_their_checksums(log: str, tmp_path: Path) -> None:
    made = written(log, tmp_path / "lake", 200)
    (file,) = made.files
    assert problem_of(made.table, file) == ""
    assert "200 events up to 200" in problem_of(made.table, msgspec.structs.replace(file, rows=199))
    assert "follows on" in problem_of(made.table, msgspec.structs.replace(file, after=1))


@pytest.mark.parametrize("bit", [0, 2, 5])
def test_a_flipped_bit_never_gives_other_events(tmp_path: Path, bit: int) -> None:
    """In any page of a file, also in the header of one, and wherever the lake is read."""
    log, folder = str(tmp_path / "log.db"), tmp_path / "lake"
    with fencepost.open(log) as store:
        store.append(
            [Event("Paid", tags={f"wallet:{number % 7}"}, data=b"%d" % (number * 7919)) for number in range(50)]
        )
    (file,) = written(log, folder, 50).files
    whole = (folder / file.path).read_bytes()
    footer = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")  # on a broken one, pyarrow itself may abort
    expected, refused = stored(log), 0
    with LakeScan(str(folder)).open() as store:
        for at in range(footer):
            flipped = bytearray(whole)
            flipped[at] ^= 1 << bit
            (folder / file.path).write_bytes(flipped)
            try:
                assert list(store.read()) == expected
            except StoreCorrupt:
                refused += 1
    assert refused > footer / 2


def test_a_table_that_another_program_has_changed_is_refused(
    log: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_spark(monkeypatch)
    folder = str(tmp_path / "lake")
    made = written(log, folder, 100, 200)
    table = DeltaTable(folder)
    table.vacuum(0, dry_run=False, enforce_retention_duration=False)
    assert lake_at(folder).digest == made.digest, "a vacuum changes nothing"
    table.delete("position <= 100")
    with pytest.raises(StoreCorrupt, match="does not follow on position 0; another program has changed"):
        lake_at(folder)
    write_deltalake(folder, table.to_pyarrow_table(), mode="append")
    assert "another program has changed" in lake.verify(NO_SPARK, folder)[0]


def test_filters_of_other_engines_find_every_row(log: str, tmp_path: Path) -> None:
    """deltalake's dataset, which DuckDB and Polars use too, excludes files by the statistics in the table's log."""
    written(log, tmp_path / "lake", 200, 511)
    dataset = DeltaTable(str(tmp_path / "lake")).to_pyarrow_dataset()
    for column, value in (("type", "WalletOpened"), ("position", 207), ("append_first", None)):
        found = dataset.to_table(filter=pc.is_null(pc.field(column)) if value is None else pc.field(column) == value)
        expected = [event for event in stored(log) if value is None or getattr(event, column) == value]
        assert found.num_rows == len(expected) > 0
