"""The changes of a view: applied to an earlier version, they give the later one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from tests.spark.purses import Added, Moved, Opened, Purse
from tests.spark.test_view import append

from fencepost import Event, InvalidInput
from fencepost.decisions import Projection, on, tag
from fencepost.spark import View
from fencepost.spark.view import folder as folder_place
from fencepost.spark.view import views as viewing

Rows = dict[str, dict[str, Any]]


class Early(Projection):
    """A parameter with the name of a column of changes."""

    before: Annotated[str, tag("purse_id")]
    count: int = 0

    @on
    def _(self, event: Added) -> None:
        self.count += 1


@pytest.fixture
def log(tmp_path: Path) -> str:
    path = str(tmp_path / "purses.db")
    append(path, Opened("a", "Ada"), Added("a", 700), Opened("b", "Bob"), Moved("a", "b", 200))
    return path


def view_of(spark: SparkSession, log: str, tmp_path: Path, projection: Any = Purse, **options: Any) -> View:
    place = f"file:{tmp_path / 'view'}"
    return View(projection, by="purse_id", at=place, store=log, spark=spark, **{"changes": True} | options)


def contents(frame: DataFrame) -> Rows:
    """The rows of a view, by key."""
    rows = [row.asDict(recursive=True) for row in frame.drop("upto").collect()]
    return {row.pop("purse_id"): row for row in rows}


def applied(changes: DataFrame, rows: Rows) -> Rows:
    """The view after the changes. Each change must fit what is there, and come once for a key."""
    found = [row.asDict(recursive=True) for row in changes.collect()]
    assert len({row["purse_id"] for row in found}) == len(found)
    for row in found:
        assert row["before"] == rows.get(row["purse_id"])
        assert row["before"] != row["after"]
    return rows | {row["purse_id"]: row["after"] for row in found}


def grow(log: str, view: View) -> None:
    """Four versions, at 4, 7, 8 and 10; the refresh to 8 changes nothing."""
    view.refresh()
    append(log, Added("a", 1), Opened("c", "Cy"), Moved("c", "a", 9))
    view.refresh()
    append(log, Event("Unrelated", tags={"purse_id:b"}))
    view.refresh()
    append(log, Added("b", 2), Added("a", 3))
    view.refresh()


@pytest.mark.parametrize("recording", [True, False])
def test_changes_between_two_positions_turn_one_view_into_the_other(
    spark: SparkSession, log: str, tmp_path: Path, recording: bool
) -> None:
    check_changes(view_of(spark, log, tmp_path, changes=recording), log)


def check_changes(view: View, log: str) -> None:
    grow(log, view)
    assert view.versions == [4, 7, 8, 10]
    at = {position: contents(view.at(position)) for position in (0, 4, 6, 10)}
    for after, upto in ((0, 4), (4, 10), (6, 10)):
        changes = view.changes(after=after, upto=upto).cache()
        assert applied(changes, at[after]) == at[upto]
        assert {row["position"] for row in changes.collect()} == {upto}
    assert view.changes(after=10).count() == 0


def test_recorded_changes_are_read_without_the_store(spark: SparkSession, log: str, tmp_path: Path) -> None:
    view = view_of(spark, log, tmp_path)
    grow(log, view)
    alone = View(Purse, by="purse_id", at=f"file:{tmp_path / 'view'}", spark=spark)
    (Path(log)).unlink()
    expected = contents(alone.at(7))
    assert applied(alone.changes(after=7), expected) == contents(alone.latest())
    assert alone.changes(after=7, upto=8).count() == 0


def published(spark: SparkSession, view: View, tmp_path: Path) -> DataFrame:
    place = str(tmp_path / "view" / "changes" / view.generation)
    return spark.read.option("recursiveFileLookup", "true").parquet(place)


def test_published_changes_replayed_in_order_are_the_view_at_each_version(
    spark: SparkSession, log: str, tmp_path: Path
) -> None:
    view = view_of(spark, log, tmp_path, keep=2)
    grow(log, view)
    rows: Rows = {}
    feed = published(spark, view, tmp_path)
    for position in (4, 7, 8, 10):
        rows = applied(feed.where(f"position = {position}"), rows)
        assert rows == contents(view.at(position))
    assert set(feed.columns) == {"purse_id", "before", "after", "position"}
    assert feed.where("position = 8").count() == 0


def test_a_stream_of_published_changes_gives_each_change_once(spark: SparkSession, log: str, tmp_path: Path) -> None:
    view = view_of(spark, log, tmp_path)
    view.refresh()
    place = str(tmp_path / "view" / "changes" / view.generation)

    def read() -> None:
        feed = spark.readStream.schema(published(spark, view, tmp_path).schema).option("recursiveFileLookup", "true")
        writer = feed.parquet(place).writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
        writer.trigger(availableNow=True).start(str(tmp_path / "read")).awaitTermination()

    read()
    append(log, Added("b", 5))
    view.refresh()
    read()
    found = spark.read.parquet(str(tmp_path / "read")).select("purse_id", "position", "after.amount").collect()
    assert sorted(map(tuple, found)) == [("a", 4, 500), ("b", 4, 200), ("b", 5, 205)]


def test_a_refresh_that_fails_publishes_nothing_and_a_later_one_publishes_what_was_committed(
    spark: SparkSession, log: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    view = view_of(spark, log, tmp_path)
    view.refresh()
    append(log, Added("b", 50))

    def fail(*args: object) -> None:
        raise OSError("no space left on device")

    for step, version in (("commit_manifest", 4), ("combined", 5)):  # before the commit, and after it
        with monkeypatch.context() as broken:
            broken.setattr(folder_place, step, fail)
            with pytest.raises(OSError, match="no space"):
                view.refresh()
        assert view.position == version
        assert published(spark, view, tmp_path).where("position > 4").count() == 0
    assert applied(view.changes(after=4), contents(view.at(4))) == contents(view.latest())
    view.refresh()  # nothing is new
    (row,) = published(spark, view, tmp_path).where("position > 4").collect()
    assert (row["purse_id"], row["before"]["amount"], row["after"]["amount"], row["position"]) == ("b", 200, 250, 5)


def test_a_view_that_begins_to_record_publishes_itself_whole_first(
    spark: SparkSession, log: str, tmp_path: Path
) -> None:
    view_of(spark, log, tmp_path, changes=False).refresh()
    append(log, Added("b", 50))
    view = view_of(spark, log, tmp_path)
    assert not view.refresh().rebuilt
    feed = published(spark, view, tmp_path)
    rows = applied(feed.where("position = 4"), {})
    assert applied(feed.where("position = 5"), rows) == contents(view.latest())


def test_an_error_that_appears_is_a_change(spark: SparkSession, log: str, tmp_path: Path) -> None:
    view = view_of(spark, log, tmp_path, on_error="column")
    view.refresh()
    append(log, Event("Added", data=b"?", tags={"purse_id:b"}))
    view.refresh()
    append(log, Added("b", 1))  # its key has ended
    view.refresh()
    for recording in (view, view_of(spark, log, tmp_path, on_error="column", changes=False)):
        (row,) = recording.changes(after=4).collect()
        assert (row["before"]["error"], row["before"]["position"] == row["after"]["position"]) == (None, True)
        assert "at position 5" in row["after"]["error"]
        assert recording.changes(after=5).count() == 0


def test_changes_of_other_code_are_refused(
    spark: SparkSession, log: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    view = view_of(spark, log, tmp_path)
    view.refresh()
    known = view.generation
    assert view.changes(after=4, generation=known).count() == 0
    monkeypatch.setattr(viewing, "fingerprint", lambda projection: b"of other code")
    changed = view_of(spark, log, tmp_path)
    assert changed.refresh().rebuilt
    assert changed.generation != known
    with pytest.raises(InvalidInput, match="generation: the view is of generation"):
        changed.changes(after=4, generation=known)
    assert published(spark, changed, tmp_path).count() == 2


def test_what_changes_cannot_be_asked_for_is_refused(spark: SparkSession, log: str, tmp_path: Path) -> None:
    view = view_of(spark, log, tmp_path)
    view.refresh()
    with pytest.raises(InvalidInput, match="upto: 9 is above the view's position, 4"):
        view.changes(upto=9)
    with pytest.raises(InvalidInput, match="after: 4 is above the end of the changes, 3"):
        view.changes(after=4, upto=3)
    with pytest.raises(InvalidInput, match="changes: only a view in a folder or an object store"):
        View(Purse, by="purse_id", at="postgresql://localhost/x?table=purses", changes=True)
    with pytest.raises(InvalidInput, match="parameter 'before'"):
        View(Early, by="before", at=f"file:{tmp_path / 'early'}", changes=True)
