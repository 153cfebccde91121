"""The log as Parquet files that prove themselves."""

from __future__ import annotations

import json
import os
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from tests.spark.conftest import stored
from tests.spark.rows import events_in

import fencepost
from fencepost import Event, FormatUnsupported, InvalidInput, Query, StoreCorrupt, StoreError, StoreUnavailable
from fencepost.address import Address
from fencepost.engines.lake.files import LakeFile, LakeManifest, existing_manifest, problem_of, write_lake_manifest
from fencepost.engines.lake.paths import storage_of
from fencepost.engines.lake.reading import read_files
from fencepost.spark import lake
from fencepost.spark.lake import exporting as exporting_module
from fencepost.spark.lake import follow, writing
from fencepost.spark.lake.rounds import exporting
from fencepost.spark.scanning import Selection
from fencepost.spark.scanning.lake import LakeScan
from fencepost.spark.scanning.store import StoreScan


@pytest.fixture
def exported(spark: SparkSession, log: str, tmp_path: Path) -> Path:
    folder = tmp_path / "lake"
    lake.export(spark, log, str(folder), chunk=200)
    return folder


def test_an_export_holds_the_log_in_chunks(spark: SparkSession, log: str, exported: Path) -> None:
    head = len(stored(log))
    assert [(file.first, file.last, file.rows) for file in existing_manifest(exported).files] == [
        (1, 200, 200),
        (201, 400, 200),
        (401, head, head - 400),
    ]
    assert events_in(spark.read.parquet(str(exported / "events"))) == stored(log)


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
    assert done == lake.Exported(files=2, events=100, upto=len(stored(log)))
    assert before.items() <= {path: path.stat().st_mtime_ns for path in (exported / "events").iterdir()}.items()
    assert lake.export(spark, log, str(exported), chunk=200).files == 0
    assert lake.verify(spark, str(exported)) == []


def test_an_export_that_was_killed_after_a_file_and_before_the_manifest_is_repeated(
    spark: SparkSession, log: str, exported: Path
) -> None:
    manifest = existing_manifest(exported)
    write_lake_manifest(storage_of(exported), LakeManifest(files=manifest.files[:1]))
    (exported / manifest.files[2].path).write_bytes(b"torn")
    lake.export(spark, log, str(exported), chunk=200)
    assert lake.verify(spark, str(exported)) == []
    assert [file.sha256 for file in existing_manifest(exported).files] == [file.sha256 for file in manifest.files]


def test_what_a_killed_export_has_left_is_found_and_removed(spark: SparkSession, log: str, exported: Path) -> None:
    """The log has grown since, so that the next export cuts it in another way."""
    manifest = existing_manifest(exported)
    write_lake_manifest(storage_of(exported), LakeManifest(files=manifest.files[:2]))
    (exported / "events" / f".{'0' * 32}").touch()
    (exported / "events" / "notes.txt").touch()
    with exporting(storage_of(exported)):
        assert lake.verify(spark, str(exported)) == [], "a running export would have such files as well"
    assert [problem.partition(":")[0] for problem in lake.verify(spark, str(exported))] == [
        f"events/.{'0' * 32}",
        manifest.files[2].path,
    ]
    with fencepost.open(log) as store:
        store.append([Event("Late")])
    lake.export(spark, log, str(exported), chunk=200)
    assert lake.verify(spark, str(exported)) == []
    assert spark.read.parquet(f"{exported}/events/*.parquet").count() == len(stored(log))
    assert (exported / "events" / "notes.txt").exists()


def test_files_without_a_manifest_are_left_alone(spark: SparkSession, log: str, exported: Path) -> None:
    (exported / "manifest.json").unlink()
    with pytest.raises(StoreCorrupt, match=r"no manifest\.json"):
        lake.export(spark, log, str(exported))
    assert len(list((exported / "events").glob("*.parquet"))) == 3


def test_one_export_runs_at_a_time(
    spark: SparkSession, log: str, exported: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exporting_module, "PATIENCE_S", 0.5)
    with exporting(storage_of(exported)), pytest.raises(StoreUnavailable, match="another process is exporting"):
        lake.export(spark, log, str(exported))


def test_another_log_is_not_mixed_in(spark: SparkSession, exported: Path, empty: str) -> None:
    with fencepost.open(empty) as store:
        store.append([Event("Other")])
    with pytest.raises(InvalidInput, match="another log"):
        lake.export(spark, empty, str(exported))


def test_a_lake_is_read_like_the_store_that_it_came_from(spark: SparkSession, log: str, exported: Path) -> None:
    query = Query.of(tags={"wallet:w3"}) | Query.of(types={"Odd"})
    with fencepost.open(log) as store:
        expected = list(store.read(query, after=150, upto=505))
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


def test_partitions_of_a_lake_are_balanced_by_its_rows(tmp_path: Path) -> None:
    """Positions with gaps: the first file has as many events as the second in a hundredth of the positions."""
    files = tuple(
        LakeFile(path="x", after=after, upto=upto, first=after + 1, last=upto, rows=100, bytes=0, sha256="")
        for after, upto in ((0, 100), (100, 10_000))
    )
    write_lake_manifest(storage_of(tmp_path), LakeManifest(files=files))
    scan = LakeScan(str(tmp_path))
    assert scan.borders(None, Selection(0, 10_000), 4) == [50, 100, 5_050]  # type: ignore[arg-type]


def test_row_groups_that_cannot_match_are_never_read(log: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "ROW_GROUP_EVENTS", 100)
    lake_folder = tmp_path / "lake"
    (lake_folder / "events").mkdir(parents=True)
    file = writing.write_chunk(StoreScan(Address.parse(log)), storage_of(lake_folder), 0, len(stored(log)))
    write_lake_manifest(storage_of(lake_folder), LakeManifest(files=(file,)))
    read: list[int] = []
    original = pq.ParquetFile.iter_batches

    def watched(self: Any, *args: Any, row_groups: list[int], **kwargs: Any) -> Any:
        read.extend(row_groups)
        return original(self, *args, row_groups=row_groups, **kwargs)

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", watched)
    for selection in (Selection(150, 250), Selection(0, 10**6, types=frozenset({"WalletOpened"}))):
        bounds = {"after": selection.after, "upto": selection.upto, "types": selection.types}
        list(read_files(storage_of(lake_folder), ["position"], **bounds))
    assert read == [1, 2, 0, 1, 2, 3, 4]  # the last group holds nothing but odd ones


def damaged(exported: Path, how: str) -> str:
    """Damage the second file; what is then to be said about it."""
    path = exported / existing_manifest(exported).files[1].path
    if how == "missing":
        path.unlink()
        return "missing"
    if how == "short":
        path.write_bytes(path.read_bytes()[:-1])
        return "bytes, and the manifest says"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    return "SHA-256"


@pytest.mark.parametrize("how", ["missing", "short", "flipped"])
def test_verify_finds_what_is_wrong(spark: SparkSession, exported: Path, how: str) -> None:
    expected = damaged(exported, how)
    (problem,) = lake.verify(spark, str(exported))
    assert problem.startswith(existing_manifest(exported).files[1].path)
    assert expected in problem


def test_verify_looks_into_the_files_not_only_at_their_checksums(exported: Path) -> None:
    (first, *_) = existing_manifest(exported).files
    assert problem_of(storage_of(exported), first) == ""
    assert "200 events up to 200" in problem_of(storage_of(exported), msgspec.structs.replace(first, rows=199))
    shifted = msgspec.structs.replace(first, after=first.first)
    assert "follows on" in problem_of(storage_of(exported), shifted)


@pytest.mark.parametrize("bit", [0, 2, 5])
def test_a_flipped_bit_never_gives_other_events(tmp_path: Path, bit: int) -> None:
    """In any page of a file, also in the header of one, and wherever the lake is read."""
    log, folder = str(tmp_path / "log.db"), tmp_path / "lake"
    with fencepost.open(log) as store:
        store.append(
            [Event("Paid", tags={f"wallet:{number % 7}"}, data=b"%d" % (number * 7919)) for number in range(50)]
        )
    (folder / "events").mkdir(parents=True)
    file = writing.write_chunk(StoreScan(Address.parse(log)), storage_of(folder), 0, 50)
    write_lake_manifest(storage_of(folder), LakeManifest(files=(file,)))
    whole = (folder / file.path).read_bytes()
    footer = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")  # on a broken one, pyarrow itself may abort
    expected, refused = stored(log), 0
    for at in range(footer):
        flipped = bytearray(whole)
        flipped[at] ^= 1 << bit
        (folder / file.path).write_bytes(flipped)
        try:
            with LakeScan(str(folder)).open() as store:
                assert list(store.read()) == expected
        except StoreCorrupt:
            refused += 1
    assert refused > footer / 2


def test_a_file_without_checksums_whose_text_is_broken_is_refused(exported: Path) -> None:
    path = exported / existing_manifest(exported).files[0].path
    table = pq.read_table(path)
    broken = pa.array([b"P\xffid"] * table.num_rows).view(pa.string())
    pq.write_table(table.set_column(1, table.schema.field("type"), broken), path)
    with LakeScan(str(exported)).open() as store, pytest.raises(StoreCorrupt, match="lake verify"):
        list(store.read(Query.of(tags={"wallet:w3"})))


def test_verify_says_when_a_file_is_no_file_of_a_lake(spark: SparkSession, exported: Path) -> None:
    (first, *others) = existing_manifest(exported).files
    (exported / first.path).write_bytes(b"no Parquet")
    digest = sha256(b"no Parquet").hexdigest()
    claimed = msgspec.structs.replace(first, bytes=len(b"no Parquet"), sha256=digest)
    write_lake_manifest(storage_of(exported), LakeManifest(files=(claimed, *others)))
    (problem,) = lake.verify(spark, str(exported))
    assert problem.startswith(f"{first.path}: not a file of a lake")


def test_a_manifest_with_a_gap_is_refused(exported: Path) -> None:
    manifest = existing_manifest(exported)
    write_lake_manifest(storage_of(exported), LakeManifest(files=(manifest.files[0], manifest.files[2])))
    with pytest.raises(StoreCorrupt, match="does not follow"):
        existing_manifest(exported)


def test_a_manifest_of_a_newer_format_is_refused(exported: Path) -> None:
    content = json.loads((exported / "manifest.json").read_text()) | {"format": 99}
    (exported / "manifest.json").write_text(json.dumps(content))
    with pytest.raises(FormatUnsupported, match="format 99"):
        existing_manifest(exported)


def test_a_delta_table_over_the_lake_has_the_same_events(spark: SparkSession, log: str, tmp_path: Path) -> None:
    from deltalake import DeltaTable

    folder = tmp_path / "lake"
    lake.export(spark, log, str(folder), chunk=200, upto=450, delta=True)
    lake.export(spark, log, str(folder), chunk=200, delta=True)
    table = DeltaTable(str(folder / "events"))
    assert table.version() == 2  # made, then one transaction an export
    assert sorted(table.to_pyarrow_table()["position"].to_pylist()) == [event.position for event in stored(log)]
    lake.export(spark, log, str(folder), delta=True)
    assert DeltaTable(str(folder / "events")).version() == 2


def test_an_iceberg_table_over_the_lake_has_the_same_events(spark: SparkSession, log: str, tmp_path: Path) -> None:
    from pyiceberg.catalog.sql import SqlCatalog

    folder = tmp_path / "lake"
    lake.export(spark, log, str(folder), chunk=200, upto=450, iceberg=True)
    lake.export(spark, log, str(folder), chunk=200, iceberg=True)
    home = folder / "iceberg"
    catalog = SqlCatalog("fencepost", uri=f"sqlite:///{home / 'catalog.db'}", warehouse=f"file://{home}")
    rows = catalog.load_table("fencepost.events").scan().to_arrow()
    catalog.close()
    assert sorted(rows["position"].to_pylist()) == [event.position for event in stored(log)]


def test_a_stream_keeps_the_lake_current(spark: SparkSession, log: str, tmp_path: Path) -> None:
    folder, checkpoint = tmp_path / "lake", str(tmp_path / "checkpoint")
    for _ in range(2):
        follow(spark, log, str(folder), checkpoint=checkpoint, availableNow=True).awaitTermination()
        assert existing_manifest(folder).upto == len(stored(log))
        with fencepost.open(log) as store:
            store.append([Event("Late")])
    assert lake.verify(spark, str(folder)) == []


def test_times_are_kept_to_the_microsecond(spark: SparkSession, log: str, exported: Path) -> None:
    seconds = spark.read.parquet(str(exported / "events")).select(F.unix_micros("recorded_at")).collect()
    assert {row[0] for row in seconds} == {event.raw_recorded_at for event in stored(log)}
    assert os.path.exists(exported / "manifest.json")
