"""Views that keep their history: a row for each key and change, exact at every position."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from tests.spark.purses import Added, Diary, Moved, Opened, Purse

import fencepost
from fencepost import Event, InvalidInput
from fencepost.decisions import Projection, encode
from fencepost.spark import View, fold, view_table


def append_some(path: str, chance: random.Random, count: int) -> None:
    """Append events about a few purses: some are moves between two, some concern none of the projections."""
    keys = [f"p{number}" for number in range(6)]
    with fencepost.open(path) as store:
        for _ in range(count):
            made: list[Any] = [
                Opened(chance.choice(keys), "Ada"),
                Added(chance.choice(keys), chance.randint(1, 9), "note"),
                Moved(*chance.sample(keys, 2), 3),
            ]
            event = chance.choice([*map(encode, made), Event("Unrelated", tags={"purse_id:p1"})])
            store.append([event])


def contents(frame: DataFrame) -> list[dict[str, Any]]:
    return [row.asDict(recursive=True) for row in frame.orderBy("purse_id").collect()]


@pytest.mark.parametrize("projection", [Purse, Diary])
def test_a_history_is_the_fold_at_every_position(
    spark: SparkSession, tmp_path: Path, projection: type[Projection], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With refreshes that rewrite some buckets, and one that spreads the rows over more buckets."""
    monkeypatch.setattr(view_table, "FEWEST_BUCKETS", 2)
    monkeypatch.setattr(view_table, "BUCKET_KEYS", 8)
    chance = random.Random(27)
    log, place = str(tmp_path / "log.db"), str(tmp_path / "history")
    view = View(projection, by="purse_id", at=place, store=log, spark=spark, history=True, keep=2)
    for count in (9, 25, 1, 2):
        append_some(log, chance, count)
        view.refresh()
    head = view.position
    for position in [*sorted(chance.sample(range(1, head), 5)), head]:
        expected = contents(fold(spark, log, projection, by="purse_id", up_to=position))
        assert contents(view.at(position)) == expected
    with fencepost.open(log) as store:
        times = {event.position: event.recorded_at for event in store.read()}
    kept = DeltaTable(place).to_pyarrow_table().to_pylist()  # as an engine reads it that knows nothing of views
    rows = sorted(kept, key=lambda row: (row["purse_id"], row["valid_from"]))
    assert len(rows) == view.history().count() > 30
    for row, following in zip(rows, [*rows[1:], None], strict=True):
        ends = following["valid_from"] if following and following["purse_id"] == row["purse_id"] else None
        assert row["valid_to"] == ends
        assert row["valid_from_time"] == times[row["valid_from"]]
        assert row["valid_to_time"] == (None if ends is None else times[ends])


def test_changes_of_a_history_are_those_of_a_plain_view(spark: SparkSession, tmp_path: Path) -> None:
    log = str(tmp_path / "log.db")
    append_some(log, random.Random(1), 20)
    views = [
        View(Purse, by="purse_id", at=str(tmp_path / name), store=log, spark=spark, history=name == "history")
        for name in ("history", "plain")
    ]
    assert len({view.refresh() for view in views}) == 1
    append_some(log, random.Random(2), 5)
    assert len({view.refresh() for view in views}) == 1
    history, plain = (contents(view.changes(after=20)) for view in views)
    assert history == plain
    assert len(history) > 1


def test_a_history_with_errors_or_a_view_without_history_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="on_error: a history has no column for errors"):
        View(Purse, by="purse_id", at=str(tmp_path / "view"), on_error="column", history=True)
    with pytest.raises(InvalidInput, match="this view keeps no history"):
        View(Purse, by="purse_id", at=str(tmp_path / "view"), spark=spark).history()
