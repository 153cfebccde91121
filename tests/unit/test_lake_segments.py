"""The manifest of a lake stays small however many files the lake has."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from fencepost import StoreCorrupt
from fencepost.engines.lake import segments
from fencepost.engines.lake.entries import LakeFile, LakeManifest
from fencepost.engines.lake.files import existing_manifest, strays, write_lake_manifest
from fencepost.engines.lake.paths import storage_of
from fencepost.engines.lake.retiring import remove, replaced, retire, retired_paths

SEGMENT_FILES, OPEN_FILES = 10, 4
MANY = 3 * SEGMENT_FILES + OPEN_FILES


@pytest.fixture(autouse=True)
def short_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "SEGMENT_FILES", SEGMENT_FILES)
    monkeypatch.setattr(segments, "OPEN_FILES", OPEN_FILES)


def entry(number: int) -> LakeFile:
    upto = number + 1
    path = f"events/{upto:020d}-{upto:020d}.parquet"
    return LakeFile(path=path, after=number, upto=upto, first=upto, last=upto, rows=1, bytes=1, sha256="0" * 64)


def grown(folder: Path, count: int) -> list[int]:
    """Add one file at a time; the sizes of the manifest."""
    manifest, sizes = LakeManifest(), []
    for number in range(count):
        manifest = write_lake_manifest(
            storage_of(folder), msgspec.structs.replace(manifest, files=(*manifest.files, entry(number)))
        )
        sizes.append((folder / "manifest.json").stat().st_size)
    return sizes


def test_the_manifest_has_a_bounded_size_and_lists_every_file(tmp_path: Path) -> None:
    sizes = grown(tmp_path, MANY)
    assert max(sizes[SEGMENT_FILES + OPEN_FILES :]) < max(sizes[: SEGMENT_FILES + OPEN_FILES]) * 1.3
    found = existing_manifest(tmp_path)
    assert found.files == tuple(map(entry, range(MANY)))
    assert len(found.segments) == 3
    assert strays(storage_of(tmp_path), found) == []


def test_a_segment_whose_files_were_merged_is_replaced(tmp_path: Path) -> None:
    grown(tmp_path, MANY)
    before = existing_manifest(tmp_path)
    wide = msgspec.structs.replace(entry(12), upto=15, last=15, rows=3)
    after = msgspec.structs.replace(before, files=(*before.files[:12], wide, *before.files[15:]))
    write_lake_manifest(storage_of(tmp_path), after)
    found = existing_manifest(tmp_path)
    assert found.files == after.files
    assert found.segments[0] == before.segments[0]
    assert strays(storage_of(tmp_path), found) == sorted(segment.path for segment in before.segments[1:])


def test_a_damaged_or_missing_segment_is_refused(tmp_path: Path) -> None:
    grown(tmp_path, MANY)
    path = tmp_path / existing_manifest(tmp_path).segments[1].path
    copy = tmp_path.parent / f"{tmp_path.name}-copy"
    tmp_path.rename(copy)  # under another name nothing is in memory
    content = (copy / path.relative_to(tmp_path)).read_bytes()
    (copy / path.relative_to(tmp_path)).write_bytes(content.replace(b'"rows":1', b'"rows":2', 1))
    with pytest.raises(StoreCorrupt, match="SHA-256"):
        existing_manifest(copy)
    (copy / path.relative_to(tmp_path)).unlink()
    with pytest.raises(StoreCorrupt, match="No such file"):
        existing_manifest(copy)


def test_a_replaced_file_stays_until_its_time_is_over(tmp_path: Path) -> None:
    (tmp_path / "events").mkdir()
    for name in ("a", "b", "c"):
        (tmp_path / "events" / name).touch()
    lake = storage_of(tmp_path)
    retire(lake, ["events/a", "events/b", "events/c"], now_s=100)
    retire(lake, ["events/b"], now_s=150)  # the first compaction was killed before its manifest
    assert not replaced(lake, {"events/c"}, retain_s=60, now_s=159)
    remove(lake, replaced(lake, {"events/c"}, retain_s=60, now_s=160))
    assert sorted(path.name for path in (tmp_path / "events").iterdir()) == ["b", "c"], "c is listed, b was renewed"
    assert retired_paths(lake) == {"events/b": 150}
    remove(lake, replaced(lake, {"events/c"}, retain_s=0, now_s=160))
    assert sorted(path.name for path in (tmp_path / "events").iterdir()) == ["c"]
    assert retired_paths(lake) == {}
