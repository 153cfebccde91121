"""Folders are named by paths or `file:` URLs; other file systems are refused, never taken for relative paths."""

from __future__ import annotations

from pathlib import Path

import pytest

import fencepost
from fencepost import InvalidInput
from fencepost.core.address import Address
from fencepost.core.redaction import redacted
from fencepost.spark.location import absolute_location, local_path


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
    with pytest.raises(InvalidInput, match="hdfs://host/lake"):
        fencepost.open("lake:hdfs://host/lake")


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ("s3://bucket", "s3://bucket"),
        ("s3a://bucket/lakes/wallet/", "s3://bucket/lakes/wallet"),
        ("gs://bucket/lake", "gs://bucket/lake"),
        ("az://container/lake", "az://container/lake"),
        ("abfss://box@account.dfs.core.windows.net/lake", "abfss://box@account.dfs.core.windows.net/lake"),
    ],
)
def test_a_lake_may_be_in_an_object_store(given: str, url: str) -> None:
    assert absolute_location(given, "folder") == url
    address = Address.parse(f"lake:{given}")
    assert (address.location, address.absolute(), str(address)) == (url, address, f"lake:{url}")
    assert not address.has_secret


@pytest.mark.parametrize(
    "given",
    [
        "s3://",
        "s3:///lake",
        "s3://bucket//lake",
        "s3://bucket/../lake",
        "s3://bucket/a lake",
        "s3://bucket/lake?secret=hunter2",
        "s3://key:hunter2@bucket/lake",
        "abfss://box:hunter2@account/lake",
    ],
)
def test_a_url_that_is_malformed_or_holds_a_secret_is_refused_and_not_shown(given: str) -> None:
    with pytest.raises(InvalidInput, match="environment") as refused:
        Address.parse(f"lake:{given}")
    assert "hunter2" not in str(refused.value)
    assert "hunter2" not in redacted(f"lake:{given}")
