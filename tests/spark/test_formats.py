"""Delta and Iceberg tables over files of our own: one commit adds and removes, and knows its position."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from fencepost import InvalidInput, StoreUnavailable
from fencepost.engines.lake.paths import storage_of
from fencepost.spark.formats import CatalogName, Change, DataFile, FileTable, State, commit_at, table_of
from fencepost.spark.formats.catalogs import identifier, opened

SCHEMA = pa.schema([pa.field("position", pa.int64(), nullable=False), ("text", pa.string())])


@dataclass(frozen=True)
class Made:
    """A table, the folder of its files, and commits on its state at the moment."""

    table: FileTable
    folder: Path

    def commit(self, add: Sequence[DataFile] = (), remove: Sequence[DataFile] = (), **more: Any) -> None:
        names = [file.name for file in remove]
        self.table.commit(self.table.state(), Change(add, names, **{"properties": {}, **more}))

    def written(self, first: int, last: int) -> DataFile:
        path = self.folder / f"{first}-{last}.parquet"
        positions = list(range(first, last + 1))
        content = pa.table({"position": positions, "text": [str(each) for each in positions]}, schema=SCHEMA)
        pq.write_table(content, path)
        return DataFile(path.name, len(positions), path.stat().st_size, first, last)


def made(kind: str, folder: Path, catalog: CatalogName | None = None) -> Made:
    storage = storage_of(folder)
    (folder / "data").mkdir(parents=True)
    return Made(
        table_of(kind, storage, data="data", home="home", schema=SCHEMA, name="things", catalog=catalog),
        folder / "data",
    )


@pytest.fixture(params=["delta", "iceberg", "iceberg in a named catalog"])
def table(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Made:
    kind, _, named = request.param.partition(" ")
    monkeypatch.setenv("PYICEBERG_CATALOG__MINE__URI", f"sqlite:///{tmp_path}/shared.db")
    return made(kind, tmp_path / "table", CatalogName("mine") if named else None)


class Meanwhile(Mapping[str, str]):
    """Properties of a commit. When the commit asks for them, it has read the table; then something else happens."""

    def __init__(self, act: Callable[[], None]) -> None:
        self._act = act

    def __getitem__(self, name: str) -> str:
        raise KeyError(name)

    def __len__(self) -> int:
        return 0

    def __iter__(self) -> Iterator[str]:
        self._act()
        return iter(())


def test_there_is_nothing_before_the_first_commit(table: Made) -> None:
    assert table.table.state() == State()


def test_one_commit_adds_and_removes_files_and_each_commit_can_be_read(table: Made) -> None:
    one, two, both = table.written(1, 2), table.written(3, 4), table.written(1, 4)
    table.commit([one], position=2, properties={"fencepost.word": "first"})
    table.commit([two], position=4)
    table.commit([both], [one, two], position=4, rewritten=True)
    table.commit(position=9)
    state = table.table.state()
    assert [commit.position for commit in state.commits] == [2, 4, 4, 9]
    assert state.commits[0].properties["fencepost.word"] == "first"
    files = [table.table.files(commit.version) for commit in state.commits]
    first, second, third = ({file.name: file.bytes} for file in (one, two, both))
    assert files == [first, first | second, third, third]
    assert state.files == {both.name}


def test_the_commit_of_a_position_is_the_first_that_covers_it_as_it_was_rewritten_last(table: Made) -> None:
    for position in (2, 4, 4, 9):
        table.commit(position=position)
    commits = table.table.state().commits
    assert [commits.index(commit_at(commits, position)) for position in (1, 2, 3, 4, 5, 9)] == [0, 0, 2, 2, 3, 3]
    with pytest.raises(InvalidInput, match="position: 10 is above the table's position, 9"):
        commit_at(commits, 10)


def test_a_commit_is_refused_if_another_was_made_since_the_state_was_read(table: Made) -> None:
    one, two = table.written(1, 2), table.written(3, 4)
    table.commit([one], position=2)
    state = table.table.state()
    table.commit([two], position=4)
    with pytest.raises(StoreUnavailable, match="another process has changed the table"):
        table.table.commit(state, Change([], [one.name], 5, {}))
    assert table.table.state().commits[-1].position == 4
    assert table.table.state().files == {one.name, two.name}


def test_a_commit_is_refused_if_another_is_made_while_it_is_at_work(table: Made) -> None:
    one = table.written(1, 2)
    table.commit([one], position=2)
    for add, remove in (([], [one]), ([table.written(5, 6)], [])):
        with pytest.raises(StoreUnavailable, match="another process has changed the table"):
            table.commit(add, remove, position=6, properties=Meanwhile(lambda: table.commit(position=4)))
    assert table.table.state().files == {one.name}


def test_of_two_first_commits_one_is_refused(table: Made) -> None:
    one, two = table.written(1, 2), table.written(3, 4)
    nothing = table.table.state()
    table.commit([one], position=2)
    with pytest.raises(StoreUnavailable, match="another process has changed the table"):
        table.table.commit(nothing, Change([two], [], 4, {}))
    assert table.table.state().files == {one.name}


def test_a_delta_commit_has_the_position_as_its_application_transaction_if_it_fits(tmp_path: Path) -> None:
    table = made("delta", tmp_path)
    for position in (7, 2**70):
        table.commit(position=position)
        assert table.table.state().commits[-1].position == position
        assert DeltaTable(str(tmp_path / "data")).transaction_version("fencepost") == 7


def test_an_iceberg_table_that_was_only_created_takes_no_commit_on_a_state_that_was_not_read(tmp_path: Path) -> None:
    """A process that is killed after it has created the table leaves it without settings, which the next one adds."""
    table = made("iceberg", tmp_path)
    one, two = table.written(1, 2), table.written(3, 4)
    with opened(tmp_path / "home", None) as catalog:
        catalog.create_namespace("fencepost")
        catalog.create_table("fencepost.things", schema=SCHEMA)
    created = table.table.state()
    table.commit([one], position=2)
    with pytest.raises(StoreUnavailable, match="another process has changed the table"):
        table.table.commit(created, Change([two], [], 4, {}))
    assert table.table.state().files == {one.name}


def test_tables_of_two_places_in_one_catalog_have_different_names(tmp_path: Path) -> None:
    shared, named = CatalogName("mine"), CatalogName("mine", "sales.wallet")
    places = [storage_of(tmp_path / name / "Wallet-1") for name in ("a", "b")]
    first, second = (identifier(place, "events", shared) for place in places)
    assert first != second
    assert re.fullmatch(r"fencepost\.events_wallet_1_[0-9a-f]{8}", first)
    assert identifier(places[0], "events", shared) == first
    assert identifier(places[0], "events", None) == "fencepost.events"
    assert identifier(places[0], "events", named) == "sales.wallet"


@pytest.mark.parametrize(
    ("name", "table", "said"),
    [
        (None, "sales.wallet", "second: it names a table of a catalog, and first is missing"),
        ("", None, "first: the name of a catalog is needed, not ''"),
        ("mine", "wallet", "second: NAMESPACE.TABLE .* is needed, not 'wallet'"),
        ("mine", "sales.'; drop", "second: NAMESPACE.TABLE .* is needed"),
    ],
)
def test_a_catalog_is_checked(name: str | None, table: str | None, said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        CatalogName.of(name, table, fields=("first", "second"))


def test_an_unknown_catalog_and_one_that_cannot_be_opened_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYICEBERG_CATALOG__BROKEN__TYPE", "imaginary")
    monkeypatch.setenv("PYICEBERG_CATALOG__BROKEN__URI", "postgresql://ada:hunter2@127.0.0.1:9/x")
    with pytest.raises(
        InvalidInput, match=r"^catalog: pyiceberg's configuration has no catalog 'other' \(known: .*broken"
    ):
        made("iceberg", tmp_path / "one", CatalogName("other")).table.state()
    with pytest.raises(StoreUnavailable, match="the Iceberg catalog broken cannot be opened") as raised:
        made("iceberg", tmp_path / "two", CatalogName("broken")).table.state()
    assert "hunter2" not in str(raised.value)


def test_an_unknown_format_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="table: one of delta, iceberg is needed, not 'hudi'"):
        made("hudi", tmp_path)
