"""Folders are named by paths or `file:` URLs; other file systems are refused, never taken for relative paths."""

from __future__ import annotations

from pathlib import Path

import pytest

import fencepost
from fencepost import InvalidInput
from fencepost.engines.lake.paths import local_path


@pytest.mark.parametrize(
    ("given", "path"),
    [
        ("/data/lake", "/data/lake"),
        ("data/lake", "data/lake"),
        ("file:/data/lake", "/data/lake"),
        ("file:///data/lake", "/data/lake"),
        ("file:lake", "lake"),
        ("./s3a:lake", "./s3a:lake"),
    ],
)
def test_a_path_or_a_file_url(given: str, path: str) -> None:
    assert local_path(given, "folder") == path


@pytest.mark.parametrize("given", ["s3a://bucket/lake", "dbfs:/lake", "abfs://box@host/lake", "hdfs:lake", "file:"])
def test_another_file_system_is_refused(given: str) -> None:
    with pytest.raises(InvalidInput, match=r"^folder: "):
        local_path(given, "folder")


def test_a_file_whose_name_has_a_colon_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("wallets:2026").mkdir()
    assert local_path("wallets:2026", "folder") == "wallets:2026"


def test_a_lake_elsewhere_is_not_opened_as_a_relative_path() -> None:
    with pytest.raises(InvalidInput, match="s3a://bucket/lake"):
        fencepost.open("lake:s3a://bucket/lake")
