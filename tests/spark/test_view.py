"""Folds that are kept as Delta tables: refreshed by what is new, in one step, and readable as they were."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from tests.spark import purses
from tests.spark.purses import Added, Diary, Moved, Opened, Purse

import fencepost
from fencepost import Event, InvalidInput, StoreUnavailable
from fencepost.decisions import Projection, encode, on, project, tag
from fencepost.spark import View, fold, lake, view_table
from fencepost.spark import view as viewing
from fencepost.spark.delta import FileTable, TableChanged
from fencepost.spark.folding import log as folding_log
from fencepost.spark.frames import PATTERNS

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
    with fencepost.open(path) as store:
        store.append([encode(Opened("a", "Ada")), encode(Added("a", 700)), encode(Opened("b", "Bob"))])
        store.append([encode(Moved("a", "b", 200))])
    return path


def append(path: str, *events: Any) -> int:
    with fencepost.open(path) as store:
        return store.append([event if isinstance(event, Event) else encode(event) for event in events]).last


def rows(frame: DataFrame) -> list[Any]:
    return frame.orderBy("purse_id").collect()


def amounts(frame: DataFrame) -> dict[str, int]:
    return {row["purse_id"]: row["amount"] for row in frame.collect()}


@pytest.fixture
def view(spark: SparkSession, log: str, tmp_path: Path) -> View:
    return View(Purse, by="purse_id", at=str(tmp_path / "view"), store=log, spark=spark)


def test_a_view_is_the_fold_at_every_version_and_between(
    spark: SparkSession, view: View, log: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = view.refresh()
    assert (first.position, first.changed, first.rebuilt) == (4, 2, True)
    last = append(log, Added("a", 1), Event("Unrelated", tags={"purse_id:b"}), Opened("c", "Cy"), Moved("c", "a", 9))
    second = view.refresh()
    assert (second.position, second.changed, second.rebuilt) == (last, 2, False)
    assert view.refresh().changed == 0
    assert view.versions == [4, last]
    assert rows(view.latest()) == rows(fold(spark, log, Purse, by="purse_id"))
    monkeypatch.setattr(viewing, "FEW_EVENTS", 0)
    third = view.refresh(up_to=append(log, Added("b", 2), Opened("d", "Di")))
    assert (third.changed, third.rebuilt) == (2, False)
    assert rows(view.latest()) == rows(fold(spark, log, Purse, by="purse_id"))
    for position in (3, 5):  # before every version, and between two
        assert rows(view.at(position)) == rows(fold(spark, log, Purse, by="purse_id", up_to=position))
    table = DeltaTable(str(tmp_path / "view"))  # as an engine reads it that knows nothing of views
    kept = table.to_pyarrow_table().select(["purse_id", "amount"]).to_pylist()
    assert sorted((row["purse_id"], row["amount"]) for row in kept) == sorted(amounts(view.latest()).items())
    assert table.history(1)[0]["fencepost.position"] == str(third.position)


@pytest.mark.parametrize("character", PATTERNS)
def test_a_name_that_spark_takes_for_a_pattern_is_refused(tmp_path: Path, character: str) -> None:
    with pytest.raises(InvalidInput, match="rename the folder"):
        View(Purse, by="purse_id", at=f"file:{tmp_path}/a{character}b")


def test_a_view_of_rich_states_goes_on_from_exactly_them(spark: SparkSession, log: str, tmp_path: Path) -> None:
    view = View(Diary, by="purse_id", at=str(tmp_path / "view"), store=log, spark=spark)
    view.refresh()
    append(log, Added("a", 3, "note"), Opened("b", "Bob"))
    view.refresh()
    assert rows(view.latest()) == rows(fold(spark, log, Diary, by="purse_id"))


def test_a_view_follows_a_stream(
    spark: SparkSession, log: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a lake, which has a part of the first batch."""
    lake.export(spark, log, str(tmp_path / "lake"))
    append(log, *[Added("b", 1) for _ in range(5)])
    from_lake: list[int] = []
    plain = folding_log.lake_frame
    monkeypatch.setattr(
        folding_log, "lake_frame", lambda *args, **named: from_lake.append(named["after"]) or plain(*args, **named)
    )
    at, folder = str(tmp_path / "view"), str(tmp_path / "lake")
    view = View(Purse, by="purse_id", at=at, store=log, spark=spark, lake=folder)
    for _ in range(2):  # the second run finds nothing new
        query = view.follow(checkpoint=str(tmp_path / "checkpoint"), max_events=6, availableNow=True)
        query.awaitTermination()
    assert view.versions == [6, 9]
    assert from_lake == [0, 6]
    with fencepost.open(log) as store:
        assert amounts(view.latest()) == {key: project(store, Purse(key)).amount for key in ("a", "b")}


def test_an_event_that_does_not_fit_ends_its_key_alone(spark: SparkSession, log: str, tmp_path: Path) -> None:
    view = View(Purse, by="purse_id", at=str(tmp_path / "view"), store=log, spark=spark, on_error="column")
    append(log, Event("Added", data=b"?", tags={"purse_id:b"}))
    view.refresh()
    append(log, Added("a", 1), Added("b", 1))
    view.refresh()
    found = {row["purse_id"]: (row["amount"], row["error"]) for row in view.latest().collect()}
    assert found["a"] == (501, None)
    assert found["b"][0] == 200
    assert "at position 5" in found["b"][1]


def test_what_cannot_be_refreshed_is_refused_and_changes_nothing(
    view: View, spark: SparkSession, log: str, tmp_path: Path
) -> None:
    place = str(tmp_path / "view")
    with pytest.raises(StoreUnavailable, match="refresh it first"):
        view.latest()
    view.refresh()
    append(log, Added("a", 1))
    other = str(tmp_path / "other.db")
    for count in (1, 6):  # shorter, and as long
        append(other, *[Added("z", 1) for _ in range(count)])
        with pytest.raises(InvalidInput, match="another log"):
            View(Purse, by="purse_id", at=place, store=other, spark=spark).refresh()
    with pytest.raises(InvalidInput, match=r"the view kept there is of tests\.spark\.purses\.Purse"):
        View(Diary, by="purse_id", at=place, store=log, spark=spark).refresh()
    with pytest.raises(InvalidInput, match="5 is above the view's position, 4"):
        view.at(5)
    with pytest.raises(InvalidInput, match="versions are kept at 4; for other positions, name the store"):
        View(Purse, by="purse_id", at=place, spark=spark).at(2)
    with pytest.raises(InvalidInput, match="store: missing"):
        View(Purse, by="purse_id", at=place, spark=spark).refresh()
    for at in ("/data/a%20b", "/data/a#b", "hdfs://x", "postgresql://localhost/x?table=purses", ""):
        with pytest.raises(InvalidInput, match=r"^at: "):
            View(Purse, by="purse_id", at=at)
    with pytest.raises(InvalidInput, match="keep: at least 1"):
        View(Purse, by="purse_id", at=place, keep=0)
    with pytest.raises(InvalidInput, match="up_to: 9 is above the view's position, 4"):
        view.changes(up_to=9)
    with pytest.raises(InvalidInput, match="after: 4 is above the end of the changes, 3"):
        view.changes(after=4, up_to=3)
    early = View(Early, by="before", at=str(tmp_path / "early"), store=log, spark=spark)
    with pytest.raises(InvalidInput, match="parameter 'before'"):
        early.changes()
    assert amounts(View(purses.Purse, by="purse_id", at=place, spark=spark).latest()) == {"a": 500, "b": 200}


def contents(frame: DataFrame) -> Rows:
    """The rows of a view, by key."""
    rows = [row.asDict(recursive=True) for row in frame.drop("up_to").collect()]
    return {row.pop("purse_id"): row for row in rows}


def applied(changes: DataFrame, rows: Rows) -> Rows:
    """The view after the changes. Each change must fit what is there, and come once for a key."""
    found = [row.asDict(recursive=True) for row in changes.collect()]
    assert len({row["purse_id"] for row in found}) == len(found)
    for row in found:
        assert row["before"] == rows.get(row["purse_id"])
        assert row["before"] != row["after"]
    return rows | {row["purse_id"]: row["after"] for row in found}


@pytest.mark.parametrize("projection", [Purse, Diary])
def test_changes_between_two_positions_turn_one_view_into_the_other(
    spark: SparkSession, log: str, tmp_path: Path, projection: type[Projection]
) -> None:
    """Diary has states of every type."""
    view = View(projection, by="purse_id", at=str(tmp_path / "view"), store=log, spark=spark)
    view.refresh()
    for events in (
        [Added("a", 1), Opened("c", "Cy"), Moved("c", "a", 9)],
        [Event("Unrelated", tags={"purse_id:b"})],
        [Added("b", 2), Added("a", 3)],
    ):
        append(log, *events)
        view.refresh()
    assert view.versions == [4, 7, 8, 10]
    at = {position: contents(view.at(position)) for position in (0, 4, 6, 10)}
    for after, up_to in ((0, 4), (4, 10), (6, 10)):
        changes = view.changes(after=after, up_to=up_to).cache()
        assert applied(changes, at[after]) == at[up_to]
        assert {row["position"] for row in changes.collect()} == {up_to}
    assert view.changes(after=10).count() == 0
    alone = View(projection, by="purse_id", at=str(tmp_path / "view"), spark=spark)
    Path(log).unlink()
    assert applied(alone.changes(after=4), at[4]) == at[10], "versions are compared without the store"


def test_a_refresh_that_fails_leaves_the_view_whole(
    view: View, log: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the files are written, and before they are committed."""
    view.refresh()
    append(log, Added("b", 50))

    def fail(*args: object) -> None:
        raise OSError("no space left on device")

    for owner, step in ((view_table.ViewTable, "_written"), (FileTable, "commit")):
        with monkeypatch.context() as broken:
            broken.setattr(owner, step, fail)
            with pytest.raises(OSError, match="no space"):
                view.refresh()
        assert (view.position, amounts(view.latest())) == (4, {"a": 500, "b": 200})
    assert view.refresh().position == 5
    assert amounts(view.latest()) == {"a": 500, "b": 250}


def overtaken(monkeypatch: pytest.MonkeyPatch, work: Callable[[], object]) -> None:
    """Let another process refresh the view before the next commit of this one."""
    plain, done = FileTable.commit, list[int]()

    def commit(self: Any, *args: Any) -> Any:
        if not done:
            done.append(1)
            work()
        return plain(self, *args)

    monkeypatch.setattr(FileTable, "commit", commit)


def test_of_two_refreshes_one_commits_and_the_other_reports_it_or_begins_again(
    view: View, log: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    view.refresh()
    append(log, Added("b", 50), Added("b", 50))
    with monkeypatch.context() as patched:
        overtaken(patched, lambda: view.refresh(up_to=5))
        with pytest.raises(TableChanged):
            view.refresh()
    assert (view.versions, amounts(view.latest())) == ([4, 5], {"a": 500, "b": 250})
    append(log, Added("a", 1))
    overtaken(monkeypatch, lambda: view.refresh(up_to=6))
    assert view._refresh(None, patience_s=60.0).position == 7
    assert (view.versions, amounts(view.latest())) == ([4, 5, 6, 7], {"a": 501, "b": 300})


def test_old_versions_and_their_files_go(spark: SparkSession, log: str, tmp_path: Path) -> None:
    view = View(Purse, by="purse_id", at=str(tmp_path / "my größe, 100% a:c"), store=log, spark=spark, keep=2)
    for _ in range(3):
        append(log, Added("a", 1))
        view.refresh()
    assert view.versions == [6, 7]
    assert amounts(view.latest()) == {"a": 503, "b": 200}
    assert amounts(view.at(6)) == {"a": 502, "b": 200}
    table = view._table
    kept = {path for version in table.versions() for path in table.files(version)}
    assert set(table.table.listed("rows")) == kept


def test_a_view_that_has_grown_is_spread_over_more_buckets(
    spark: SparkSession, log: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(view_table, "FEWEST_BUCKETS", 1)
    monkeypatch.setattr(view_table, "BUCKET_KEYS", 2)
    view = View(Purse, by="purse_id", at=str(tmp_path / "view"), store=log, spark=spark)
    view.refresh()
    append(log, *[Added(f"p{number}", number) for number in range(40)])
    view.refresh()
    append(log, Added("p1", 1))
    view.refresh()
    files = view._table.files(view._table.versions()[-1])
    assert {path.partition("/")[2][:4] for path in files} == {"0032"}
    assert rows(view.latest()) == rows(fold(spark, log, Purse, by="purse_id"))


def test_a_projection_that_has_changed_is_folded_anew_also_with_other_columns(
    view: View, spark: SparkSession, log: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    view.refresh()
    known = view.generation
    monkeypatch.setattr(viewing, "fingerprint", lambda projection: b"of other code")
    place = str(tmp_path / "view")
    for schema in (None, "amount decimal(38,0)"):
        changed = View(Purse, by="purse_id", at=place, store=log, spark=spark, schema=schema)
        assert changed.position == 0
        with pytest.raises(StoreUnavailable, match="other code has folded it"):
            changed.latest()
        assert changed.refresh().rebuilt
        assert changed.versions == [4]
        assert {key: int(amount) for key, amount in amounts(changed.latest()).items()} == {"a": 500, "b": 200}
        with pytest.raises(InvalidInput, match="generation: the view is of generation"):
            changed.changes(after=4, generation=known)


def test_an_error_that_appears_is_a_change(spark: SparkSession, log: str, tmp_path: Path) -> None:
    view = View(Purse, by="purse_id", at=str(tmp_path / "view"), store=log, spark=spark, on_error="column")
    view.refresh()
    for late in (Event("Added", data=b"?", tags={"purse_id:b"}), Added("b", 1)):  # the second comes after its key ended
        append(log, late)
        view.refresh()
    (row,) = view.changes(after=4).collect()
    assert (row["before"]["error"], row["before"]["position"] == row["after"]["position"]) == (None, True)
    assert "at position 5" in row["after"]["error"]
    assert view.changes(after=5).count() == 0
