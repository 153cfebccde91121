"""Which files of a lake a compaction merges: few files remain, and no event is written again and again."""

from __future__ import annotations

import pytest

from fencepost.spark.lake.compaction import FULL_BYTES, runs
from fencepost.spark.lake_engine.files import LakeFile

CHUNK = 10_000


def file(after: int, up_to: int, size: int = 0) -> LakeFile:
    path = f"events/{after + 1}-{up_to}"
    rows = up_to - after
    return LakeFile(path=path, after=after, up_to=up_to, rows=rows, bytes=size, sha256="")


def merged(files: list[LakeFile], chunk: int = CHUNK) -> tuple[list[LakeFile], int]:
    """The files after a compaction, and how many events it wrote."""
    written = 0
    for run in runs(files, chunk):
        begin = files.index(run[0])
        assert list(run) == files[begin : begin + len(run)], "a run is consecutive"
        new = file(run[0].after, run[-1].up_to)
        assert new.rows <= chunk
        files = [*files[:begin], new, *files[begin + len(run) :]]
        written += new.rows
    return files, written


@pytest.mark.parametrize("events", [1, 7, 100, 999])
def test_exports_of_any_size_leave_few_files_and_write_each_event_a_few_times(events: int) -> None:
    files: list[LakeFile] = []
    written, most = 0, 0
    for number in range(3 * CHUNK // events):
        after, up_to = number * events, (number + 1) * events
        border = (after // CHUNK + 1) * CHUNK  # an export cuts at multiples of a chunk
        files += [file(after, min(up_to, border))] + ([file(border, up_to)] if up_to > border else [])
        files, cost = merged(files)
        written += cost
        most = max(most, len(files))
    assert most <= 3 + 5 * 8
    assert written <= 3 * CHUNK * 6
    assert [each.rows for each in files if each.up_to <= 2 * CHUNK] == [CHUNK, CHUNK], "full chunks are one file each"


def test_a_full_file_is_never_merged_again() -> None:
    files = [file(0, CHUNK), file(CHUNK, 2 * CHUNK), file(2 * CHUNK, 2 * CHUNK + 5)]
    assert runs(files, CHUNK) == []
    large = [file(0, 10, FULL_BYTES), file(10, 20, FULL_BYTES), file(20, 30, 1)]
    assert runs(large, CHUNK) == []


def test_a_large_file_is_not_merged_for_a_few_small_ones() -> None:
    files = [file(0, 9_000), *(file(9_000 + number, 9_001 + number) for number in range(7))]
    assert runs(files, CHUNK) == []
    (run,) = runs([*files, file(9_007, 9_008)], CHUNK)
    assert (run[0].after, run[-1].up_to) == (9_000, 9_008)


def test_a_lake_of_many_small_files_becomes_full_ones() -> None:
    files, _ = merged([file(number, number + 1) for number in range(2 * CHUNK)])
    assert [each.rows for each in files] == [CHUNK, CHUNK]
    assert runs([], CHUNK) == []
