"""Folds that are kept: refreshed by what is new, in one step, and readable as they were."""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from tests.spark import purses
from tests.spark.purses import Added, Diary, Moved, Opened, Purse

import fencepost
from fencepost import Event, InvalidInput, StoreUnavailable
from fencepost.decisions import encode, project
from fencepost.spark import View, fold, lake
from fencepost.spark.basics.locking import locked, patiently
from fencepost.spark.folding import log as folding_log
from fencepost.spark.view import folder as folder_place
from fencepost.spark.view import layers
from fencepost.spark.view import views as viewing
from fencepost.spark.view.folder import LOCK, PATTERNS, VIEW, read_view_manifest
from fencepost.storage import storage_at


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


def refreshing(folder: Path) -> AbstractContextManager[None]:
    return locked(storage_at(folder, VIEW), LOCK, folder=layers.LAYERS)


def amounts(frame: DataFrame) -> dict[str, int]:
    return {row["purse_id"]: row["amount"] for row in frame.collect()}


@pytest.fixture
def view(spark: SparkSession, log: str, tmp_path: Path) -> View:
    return View(Purse, by="purse_id", at=f"file:{tmp_path / 'view'}", store=log, spark=spark)


def test_a_view_is_the_fold_at_every_version_and_between(
    spark: SparkSession, view: View, log: str, monkeypatch: pytest.MonkeyPatch
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
    third = view.refresh(upto=append(log, Added("b", 2), Opened("d", "Di")))
    assert (third.changed, third.rebuilt) == (2, False)
    assert rows(view.latest()) == rows(fold(spark, log, Purse, by="purse_id"))
    for position in (3, 5):  # before every version, and between two
        assert rows(view.at(position)) == rows(fold(spark, log, Purse, by="purse_id", upto=position))


def test_a_refresh_that_fails_leaves_the_view_whole(
    view: View, log: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At each of its steps: while the layer is written, before it counts, before the manifest is replaced."""
    view.refresh()
    append(log, Added("b", 50))

    def fail(*args: object) -> None:
        raise OSError("no space left on device")

    for module, step in ((layers, "settled"), (folder_place, "commit_manifest")):
        with monkeypatch.context() as broken:
            broken.setattr(module, step, fail)
            with pytest.raises(OSError, match="no space"):
                view.refresh()
        assert (view.position, amounts(view.latest())) == (4, {"a": 500, "b": 200})
    assert view.refresh().position == 5
    assert amounts(view.latest()) == {"a": 500, "b": 250}
    named = {layer.name for version in _manifest(tmp_path).versions for layer in version.layers}
    assert {place.name for place in (tmp_path / "view" / "layers").iterdir()} == named, "what was left is swept"


def _manifest(tmp_path: Path) -> Any:
    return read_view_manifest(tmp_path / "view")


def test_layers_are_put_together_and_old_versions_go(spark: SparkSession, log: str, tmp_path: Path) -> None:
    view = View(Purse, by="purse_id", at=f"file:{tmp_path / 'view'}", store=log, spark=spark, keep=2)
    for _ in range(4):
        append(log, Added("a", 1))
        view.refresh()
    assert view.versions == [7, 8]
    assert len(_manifest(tmp_path).versions[-1].layers) < 4
    assert amounts(view.latest()) == {"a": 504, "b": 200}
    assert amounts(view.at(7)) == {"a": 503, "b": 200}


@pytest.mark.parametrize("name", ["my view", "größe", "100%25#a,b:c"])
def test_a_view_is_kept_in_a_folder_of_any_name(spark: SparkSession, log: str, tmp_path: Path, name: str) -> None:
    view = View(Purse, by="purse_id", at=f"file:{tmp_path / name}", store=log, spark=spark)
    for amount in (501, 502):
        append(log, Added("a", 1))
        view.refresh()
        assert amounts(view.latest()) == {"a": amount, "b": 200}
    assert {place.name for place in tmp_path.iterdir() if place.is_dir()} == {name}


@pytest.mark.parametrize("character", PATTERNS)
def test_a_name_that_spark_takes_for_a_pattern_is_refused(tmp_path: Path, character: str) -> None:
    with pytest.raises(InvalidInput, match="treats as a pattern"):
        View(Purse, by="purse_id", at=f"file:{tmp_path}/a{character}b")


def test_a_view_of_rich_states_goes_on_from_exactly_them(spark: SparkSession, log: str, tmp_path: Path) -> None:
    view = View(Diary, by="purse_id", at=f"file:{tmp_path / 'view'}", store=log, spark=spark)
    view.refresh()
    append(log, Added("a", 3, "note"), Opened("b", "Bob"))
    view.refresh()
    assert rows(view.latest()) == rows(fold(spark, log, Diary, by="purse_id"))


def test_a_field_may_be_named_as_the_layers_are(spark: SparkSession, log: str, tmp_path: Path) -> None:
    view = View(purses.Stacked, by="purse_id", at=f"file:{tmp_path / 'stacked'}", store=log, spark=spark)
    for _ in range(2):
        append(log, Added("a", 1), Added("b", 1))
        view.refresh()
    assert {row["purse_id"]: row["layer"] for row in view.latest().collect()} == {"a": 103, "b": 102}


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
    at = f"file:{tmp_path / 'view'}"
    view = View(Purse, by="purse_id", at=at, store=log, spark=spark, lake=str(tmp_path / "lake"))
    for _ in range(2):  # the second run finds nothing new
        query = view.follow(checkpoint=str(tmp_path / "checkpoint"), max_events=6, availableNow=True)
        query.awaitTermination()
    assert view.versions == [6, 9]
    assert from_lake == [0, 6]
    with fencepost.open(log) as store:
        assert amounts(view.latest()) == {key: project(store, Purse(key)).amount for key in ("a", "b")}


def test_a_stream_waits_while_somebody_else_refreshes(view: View, log: str, tmp_path: Path) -> None:
    query = None
    try:
        with refreshing(tmp_path / "view"):
            query = view.follow(checkpoint=str(tmp_path / "checkpoint"), availableNow=True)
            assert not query.awaitTermination(5)
        query.awaitTermination(60)
    finally:
        if query is not None:
            query.stop()
    assert view.position == 4


def test_patience_ends(tmp_path: Path) -> None:
    with (
        refreshing(tmp_path),
        pytest.raises(StoreUnavailable, match="another process"),
        patiently(partial(refreshing, tmp_path), 0.5),
    ):
        pass


def test_an_event_that_does_not_fit_ends_its_key_alone(spark: SparkSession, log: str, tmp_path: Path) -> None:
    view = View(Purse, by="purse_id", at=f"file:{tmp_path / 'view'}", store=log, spark=spark, on_error="column")
    append(log, Event("Added", data=b"?", tags={"purse_id:b"}))
    view.refresh()
    append(log, Added("a", 1), Added("b", 1))
    view.refresh()
    found = {row["purse_id"]: (row["amount"], row["error"]) for row in view.latest().collect()}
    assert found["a"] == (501, None)
    assert found["b"][0] == 200
    assert "at position 5" in found["b"][1]


def test_a_projection_that_has_changed_is_folded_anew(
    view: View, spark: SparkSession, log: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    view.refresh()
    monkeypatch.setattr(viewing, "fingerprint", lambda projection: b"of other code")
    changed = View(Purse, by="purse_id", at=f"file:{tmp_path / 'view'}", store=log, spark=spark)
    assert changed.position == 0
    with pytest.raises(StoreUnavailable, match="other code has folded it"):
        changed.latest()
    assert changed.refresh().rebuilt
    assert changed.versions == [4]


def test_what_cannot_be_refreshed_is_refused_and_changes_nothing(
    view: View, spark: SparkSession, log: str, tmp_path: Path
) -> None:
    place = f"file:{tmp_path / 'view'}"
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
    with pytest.raises(InvalidInput, match="at: file:<folder>"):
        View(Purse, by="purse_id", at="hdfs://x")
    with pytest.raises(InvalidInput, match="keep: at least 1"):
        View(Purse, by="purse_id", at=place, keep=0)
    with refreshing(tmp_path / "view"), pytest.raises(StoreUnavailable, match="another process"):
        view.refresh()
    assert amounts(View(purses.Purse, by="purse_id", at=place, spark=spark).latest()) == {"a": 500, "b": 200}
