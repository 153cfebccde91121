"""Lakes in an object store, on a mock of S3: the same as in a folder.

Spark's tasks are plain calls here; slow/test_object_lakes_on_spark.py has Spark. tests/spark/test_delta.py has the
commits of two processes.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import Cli
from tests.cli.conftest import cli as cli
from tests.spark.conftest import stored
from tests.spark.lakes import NO_SPARK, without_spark
from tests.support.mock_s3 import MockS3Apart, mock_s3_apart

import fencepost
from fencepost import AppendCondition, Event, Query, StoreError, StoreUnavailable
from fencepost.engine import recorded
from fencepost.spark import lake
from fencepost.spark.lake_engine.files import lake_at

URL = "s3://bucket/lakes/wallet"


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[MockS3Apart]:
    without_spark(monkeypatch)
    with mock_s3_apart() as mock:
        for name, value in mock.environment.items():
            monkeypatch.setenv(name, value)
        yield mock


def export(log: str, **options: Any) -> lake.Exported:
    return lake.export(NO_SPARK, log, URL, **{"chunk": 200, **options})


def test_exports_hold_the_log_row_by_row(s3: MockS3Apart, log: str, cli: Cli, tmp_path: Path) -> None:
    with fencepost.open(log, record_conditions=True) as store:
        assert export(log) == lake.Exported(3, 511, 511)
        store.append([Event("Late", tags={"wallet:w3"})], AppendCondition(Query.of(tags={"none"})))
        assert export(log) == lake.Exported(1, 1, 512)
        assert export(log) == lake.Exported(0, 0, 512)
        query = Query.of(tags={"wallet:w3"})
        with fencepost.open("lake:s3a://bucket/lakes/wallet/") as kept:
            assert list(kept.read()) == list(store.read())
            assert list(kept.read(query, after=150, up_to=512)) == list(store.read(query, after=150, up_to=512))
            assert list(recorded(kept)) == list(recorded(store))
            with pytest.raises(StoreError, match="read-only"):
                kept.append([Event("A")])
    assert lake.verify(NO_SPARK, URL) == []
    with fencepost.open(str(tmp_path / "restored.db")) as restored:
        lake.restore(URL, restored)
        assert list(restored.read()) == stored(log)
    assert cli("copy", f"lake:{URL}", str(tmp_path / "copied.db")).lines[0]["verified"]
    assert stored(str(tmp_path / "copied.db")) == stored(log)


def test_verify_finds_damage(s3: MockS3Apart, log: str) -> None:
    export(log)
    path = lake_at(URL).files[1].path
    s3.flip(f"bucket/lakes/wallet/{path}", 100)
    (problem,) = lake.verify(NO_SPARK, URL)
    assert problem.startswith(path)
    assert "SHA-256" in problem
    with fencepost.open("memory:") as store, pytest.raises(fencepost.StoreCorrupt):
        lake.restore(URL, store)


def test_a_reader_of_an_older_version_is_not_disturbed_by_a_compaction(s3: MockS3Apart, log: str) -> None:
    for up_to in (100, 200, 300):
        export(log, up_to=up_to, compact=False)
    with fencepost.open(f"lake:{URL}") as kept:
        reading = iter(kept.read())
        begun = [next(reading)]
        assert lake.compact(NO_SPARK, URL, chunk=300) == lake.Compacted(3, 1)
        assert begun + list(reading) == stored(log)[:300]
        assert list(kept.read()) == stored(log)[:300]
    assert len(s3.keys("/events/")) == 4
    assert lake.compact(NO_SPARK, URL, chunk=300, retain_hours=0) == lake.Compacted(1, 1)
    assert len(s3.keys("/events/")) == 1
    assert lake.verify(NO_SPARK, URL) == []


def test_what_is_not_there_is_said_and_nothing_is_written(s3: MockS3Apart, log: str, cli: Cli) -> None:
    with pytest.raises(StoreUnavailable, match="no such lake"):
        fencepost.open("lake:s3://bucket/other")
    ran = cli("lake", "follow", log, URL, "--once")
    assert (ran.code, "--checkpoint is needed" in ran.err) == (2, True)
    assert s3.keys() == []
