"""Views in Delta and Iceberg tables: the same view, for engines that know nothing of Fencepost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import StaticTable
from pyspark.sql import SparkSession
from tests.spark.purses import Added, Moved, Opened, Purse
from tests.spark.test_view import append, rows
from tests.spark.test_view_changes import applied, contents

from fencepost import Event, InvalidInput, StoreUnavailable
from fencepost.spark import View, fold
from fencepost.spark.view import views as viewing
from fencepost.spark.view.files import FilesPlace

KINDS = ("delta", "iceberg")


@pytest.fixture
def log(tmp_path: Path) -> str:
    path = str(tmp_path / "purses.db")
    append(path, Opened("a", "Ada"), Added("a", 700, "first"), Opened("b", "Bob"), Moved("a", "b", 200))
    return path


def view_of(
    spark: SparkSession, log: str | None, tmp_path: Path, kind: str, projection: Any = Purse, **more: Any
) -> View:
    return View(projection, by="purse_id", at=f"{kind}:{tmp_path / 'view'}", store=log, spark=spark, **more)


def amounts(tmp_path: Path, kind: str, position: int | None = None) -> dict[str, int]:
    """The table at the newest commit, or at the one of a position, read by the format's own library."""
    if kind == "delta":
        place = str(tmp_path / "view")
        history = {entry.get("fencepost.position"): entry["version"] for entry in DeltaTable(place).history()}
        table = DeltaTable(place, version=None if position is None else history[str(position)]).to_pyarrow_table()
    else:
        newest = max((tmp_path / "view" / "fencepost" / "view" / "metadata").glob("*.metadata.json"))
        static = StaticTable.from_metadata(f"file://{newest}")
        found = {each.summary.additional_properties["fencepost.position"]: each for each in static.snapshots()}  # type: ignore[union-attr]
        table = static.scan(snapshot_id=None if position is None else found[str(position)].snapshot_id).to_arrow()
    kept = table.select(["purse_id", "amount"]).to_pylist()
    assert len({row["purse_id"] for row in kept}) == len(kept), "one row for each key"
    return {row["purse_id"]: row["amount"] for row in kept}


def on_disk(place: FilesPlace) -> set[str]:
    return {name for name in place.storage.listed(place.data) if name.endswith(".parquet")}


@pytest.mark.parametrize("kind", KINDS)
def test_a_view_in_a_table_is_the_fold_and_other_engines_read_it_at_each_position(
    spark: SparkSession, log: str, tmp_path: Path, kind: str
) -> None:
    view = view_of(spark, log, tmp_path, kind)
    assert view.position == 0
    assert view.refresh().rebuilt
    last = append(log, Added("a", 1), Opened("c", "Cy"), Moved("c", "a", 9))
    second = view.refresh()
    assert (second.position, second.changed, second.rebuilt) == (last, 2, False)
    assert view.refresh().changed == 0
    append(log, Event("Unrelated"))
    assert view.refresh().changed == 0  # its position grows
    assert view.versions == [4, 7, 8]
    assert rows(view.latest()) == rows(fold(spark, log, Purse, by="purse_id"))
    for position in (4, 6, 7):
        assert rows(view.at(position)) == rows(fold(spark, log, Purse, by="purse_id", upto=position))
    assert amounts(tmp_path, kind, 4) == {"a": 500, "b": 200}
    assert amounts(tmp_path, kind) == {"a": 510, "b": 200, "c": -9}
    assert applied(view.changes(after=4), contents(view.at(4))) == contents(view.latest())


@pytest.mark.parametrize("kind", KINDS)
def test_a_refresh_that_fails_leaves_the_table_and_the_next_one_removes_its_files(
    spark: SparkSession, log: str, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    view = view_of(spark, log, tmp_path, kind, keep=1)
    view.refresh()
    append(log, Added("b", 50))

    def fail(*args: object, **more: object) -> None:
        raise OSError("no space left on device")

    place = view._place
    assert isinstance(place, FilesPlace)
    with monkeypatch.context() as broken:
        broken.setattr(type(place.table), "commit", fail)
        with pytest.raises(OSError, match="no space"):
            view.refresh()
    assert (view.position, amounts(tmp_path, kind)) == (4, {"a": 500, "b": 200})
    assert on_disk(place) > place.table.state().files
    view.refresh()
    assert (view.versions, amounts(tmp_path, kind)) == ([5], {"a": 500, "b": 250})
    assert on_disk(place) == place.table.state().files


def test_an_iceberg_catalog_finds_the_table(spark: SparkSession, log: str, tmp_path: Path) -> None:
    view_of(spark, log, tmp_path, "iceberg").refresh()
    home = tmp_path / "view"
    catalog = SqlCatalog("fencepost", uri=f"sqlite:///{home / 'catalog.db'}", warehouse=f"file://{home}")
    try:
        assert catalog.load_table("fencepost.view").scan(row_filter="purse_id = 'a'").to_arrow().num_rows == 1
    finally:
        catalog.close()


@pytest.mark.parametrize("kind", KINDS)
def test_a_changed_projection_replaces_every_row_and_other_columns_are_refused(
    spark: SparkSession, log: str, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    view_of(spark, log, tmp_path, kind).refresh()
    other = view_of(spark, log, tmp_path, kind, schema="amount decimal(38,0)")
    with pytest.raises(InvalidInput, match="has other columns"):
        other.refresh()
    monkeypatch.setattr(viewing, "fingerprint", lambda projection: b"of other code")
    changed = view_of(spark, log, tmp_path, kind)
    with pytest.raises(StoreUnavailable, match="other code has folded it"):
        changed.latest()
    assert changed.refresh().rebuilt
    assert changed.versions == [4]
    assert amounts(tmp_path, kind) == {"a": 500, "b": 200}
