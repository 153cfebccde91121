"""Decoding the whole history on Spark: the same result as in one process."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.spark.purses import Added, Moved, Opened

import fencepost
from fencepost import Event, InvalidInput
from fencepost.consumers import check_types
from fencepost.decisions import encode
from fencepost.spark import check_types as check_on_spark
from fencepost.spark.scanning import scan

CLASSES = [Opened, Added, Moved]


@pytest.fixture
def log(tmp_path: Path) -> str:
    path = str(tmp_path / "purses.db")
    with fencepost.open(path) as store:
        for number in range(30):
            store.append([encode(Added("a", number)), encode(Moved("a", "b", number)), Event("Unrelated")])
            store.append([Event("Added", data=b'{"purse_id": "a", "amount": 3}', tags={"purse_id:a"})])  # version 1
    return path


def test_it_counts_what_one_process_counts(spark: SparkSession, log: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "default_parts", lambda events: 3)  # one more than run at once
    reached: list[tuple[int, int]] = []
    found = check_on_spark(spark, log, CLASSES, on_progress=lambda *at: reached.append(at))
    with fencepost.open(log) as store:
        assert found == check_types(store, CLASSES)
        head = store.head()
    assert found.decoded == {"Added": 60, "Moved": 30, "Opened": 0}
    assert len(reached) == 2
    assert reached[0][0] < head
    assert reached[1] == (head, head)


def test_it_names_the_first_events_that_cannot_be_decoded(spark: SparkSession, log: str) -> None:
    with fencepost.open(log) as store:
        bad = store.append([Event("Moved", data=b"{}", tags={"n"}) for _ in range(25)])
        in_one_process = check_types(store, CLASSES)
    found = check_on_spark(spark, log, CLASSES)
    assert found.unreadable == in_one_process.unreadable
    assert [each.position for each in found.unreadable] == list(range(bad.first, bad.first + 20))


def test_it_decodes_a_range_and_a_sample(spark: SparkSession, log: str) -> None:
    assert check_on_spark(spark, log, CLASSES, after=2, up_to=5).decoded == {"Added": 2, "Moved": 0, "Opened": 0}
    assert check_on_spark(spark, log, CLASSES, sample=7).decoded == {"Added": 9, "Moved": 5, "Opened": 0}


def test_a_mistake_is_named(spark: SparkSession, log: str) -> None:
    with pytest.raises(InvalidInput, match="classes: at least 1 event class is needed"):
        check_on_spark(spark, log, [])
    with pytest.raises(InvalidInput, match="sample: at least 1 is needed"):
        check_on_spark(spark, log, CLASSES, sample=0)
