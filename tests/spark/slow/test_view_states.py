"""States of every type: views in tables continue from them, and changes hold them before and after."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.spark import test_view_changes, test_view_files
from tests.spark.purses import Added, Diary, Moved, Opened
from tests.spark.test_view import append, rows

from fencepost.spark import fold

pytestmark = pytest.mark.timeout(900)


@pytest.fixture
def log(tmp_path: Path) -> str:
    path = str(tmp_path / "purses.db")
    append(path, Opened("a", "Ada"), Added("a", 700, "first"), Opened("b", "Bob"), Moved("a", "b", 200))
    return path


@pytest.mark.parametrize("kind", test_view_files.KINDS)
def test_a_view_in_a_table_continues_from_states_of_every_type(
    spark: SparkSession, log: str, tmp_path: Path, kind: str
) -> None:
    view = test_view_files.view_of(spark, log, tmp_path, kind, Diary)
    view.refresh()
    append(log, Added("a", 3, "note"), Opened("b", "Bob"))
    view.refresh()
    assert rows(view.latest()) == rows(fold(spark, log, Diary, by="purse_id"))


def test_recorded_changes_hold_states_of_every_type(spark: SparkSession, log: str, tmp_path: Path) -> None:
    test_view_changes.check_changes(test_view_changes.view_of(spark, log, tmp_path, Diary), log)
