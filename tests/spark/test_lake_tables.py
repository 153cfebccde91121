"""Delta and Iceberg tables over a lake: in step with its manifest, by commits that know their position."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyiceberg.table import StaticTable

import fencepost
from fencepost import Event, InvalidInput
from fencepost.engines.lake.files import EVENTS, LakeFile, LakeManifest
from fencepost.engines.lake.paths import storage_of
from fencepost.spark.basics import address_of
from fencepost.spark.lake import table_version, tables
from fencepost.spark.lake.exporting import write_chunk
from fencepost.spark.scanning import scan_of

KINDS = ("delta", "iceberg")


@pytest.fixture
def files(tmp_path: Path) -> list[LakeFile]:
    """Three files of ten events each, of a lake in the folder `lake`."""
    path = str(tmp_path / "log.db")
    with fencepost.open(path) as store:
        store.append([Event(f"Type{number % 3}", data=b"%d" % number, tags={f"n:{number}"}) for number in range(30)])
    scan = scan_of(address_of(path))
    (tmp_path / "lake" / EVENTS).mkdir(parents=True)
    return [write_chunk(scan, storage_of(tmp_path / "lake"), after, after + 10) for after in (0, 10, 20)]


def sync(kind: str, tmp_path: Path, *files: LakeFile) -> None:
    storage = storage_of(tmp_path / "lake")
    tables.sync([tables.lake_table(storage, kind)], storage, LakeManifest(files=files))


def read(kind: str, tmp_path: Path, version: int | None = None) -> pa.Table:
    """The table, by the format's own library and nothing of ours."""
    if kind == "delta":
        found = DeltaTable(str(tmp_path / "lake" / "events"), version=version).to_pyarrow_table()
    else:
        newest = max((tmp_path / "lake" / "iceberg" / "fencepost" / "events" / "metadata").glob("*.metadata.json"))
        found = StaticTable.from_metadata(f"file://{newest}").scan(snapshot_id=version).to_arrow()
    return found.sort_by("position")


def positions(table: pa.Table) -> list[int]:
    found: list[int] = table.column("position").to_pylist()
    return found


def compacted(tmp_path: Path, *files: LakeFile) -> LakeFile:
    """The files as one, as a compaction of the lake writes it."""
    whole = pa.concat_tables([pq.read_table(tmp_path / "lake" / file.path) for file in files])
    first, last = files[0], files[-1]
    path = f"events/{first.first:020d}-{last.last:020d}.parquet"
    pq.write_table(whole, tmp_path / "lake" / path)
    size = (tmp_path / "lake" / path).stat().st_size
    return msgspec.structs.replace(
        last, path=path, after=first.after, first=first.first, rows=whole.num_rows, bytes=size
    )


@pytest.mark.parametrize("kind", KINDS)
def test_a_table_has_the_files_of_the_manifest_and_syncing_again_commits_nothing(
    tmp_path: Path, files: list[LakeFile], kind: str
) -> None:
    sync(kind, tmp_path, *files[:2])
    sync(kind, tmp_path, *files)
    before = table_version(str(tmp_path / "lake"), 30, table=kind)
    sync(kind, tmp_path, *files)
    assert table_version(str(tmp_path / "lake"), 30, table=kind) == before
    found = read(kind, tmp_path)
    with fencepost.open(str(tmp_path / "log.db")) as store:
        assert [(row["position"], row["type"], row["data"], frozenset(row["tags"])) for row in found.to_pylist()] == [
            (event.position, event.type, event.data, event.tags) for event in store.read()
        ]


@pytest.mark.parametrize("kind", KINDS)
def test_a_table_is_read_as_it_was_at_a_position(tmp_path: Path, files: list[LakeFile], kind: str) -> None:
    for count in (1, 2, 3):
        sync(kind, tmp_path, *files[:count])
    for position, last in ((1, 10), (10, 10), (11, 20), (30, 30)):
        version = table_version(str(tmp_path / "lake"), position, table=kind)
        assert positions(read(kind, tmp_path, version)) == list(range(1, last + 1))
    with pytest.raises(InvalidInput, match="position: 31 is above the table's position, 30"):
        table_version(str(tmp_path / "lake"), 31, table=kind)


@pytest.mark.parametrize("kind", KINDS)
def test_a_compaction_replaces_files_in_one_commit_and_no_event_appears_twice(
    tmp_path: Path, files: list[LakeFile], kind: str
) -> None:
    sync(kind, tmp_path, *files)
    one = compacted(tmp_path, *files[:2])
    sync(kind, tmp_path, one, files[2])
    assert positions(read(kind, tmp_path)) == list(range(1, 31))
    for file in files[:2]:
        (tmp_path / "lake" / file.path).unlink()
    assert positions(read(kind, tmp_path, table_version(str(tmp_path / "lake"), 30, table=kind))) == list(range(1, 31))


def test_a_delta_table_says_that_a_compaction_changed_no_row(tmp_path: Path, files: list[LakeFile]) -> None:
    sync("delta", tmp_path, *files)
    sync("delta", tmp_path, compacted(tmp_path, *files))
    place = tmp_path / "lake" / "events"
    table = DeltaTable(str(place))
    assert table.transaction_version("fencepost") == 30
    written = (place / "_delta_log" / f"{table.version():020d}.json").read_text().splitlines()
    actions: list[dict[str, Any]] = [each for line in written for each in msgspec.json.decode(line).items()]
    changes = [content["dataChange"] for name, content in actions if name in ("add", "remove")]  # type: ignore[misc]
    assert changes == [False] * 4
