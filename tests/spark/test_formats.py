"""Delta and Iceberg tables over files of our own: one commit adds and removes, and knows its position."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from fencepost import InvalidInput, StoreUnavailable
from fencepost.spark.formats import DataFile, FileTable, commit_at, table_of

SCHEMA = pa.schema([pa.field("position", pa.int64(), nullable=False), ("text", pa.string())])


@pytest.fixture(params=["delta", "iceberg"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> FileTable:
    made = table_of(request.param, tmp_path / "table", schema=SCHEMA, name="things")
    made.folder.mkdir(parents=True)
    return made


def written(table: FileTable, first: int, last: int) -> DataFile:
    path = table.folder / f"{first}-{last}.parquet"
    positions = list(range(first, last + 1))
    pq.write_table(pa.table({"position": positions, "text": [str(each) for each in positions]}, schema=SCHEMA), path)
    return DataFile(path, len(positions), path.stat().st_size, first, last)


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


def test_there_is_nothing_before_the_first_commit(table: FileTable) -> None:
    assert (table.commits(), table.paths()) == ([], set())


def test_one_commit_adds_and_removes_files_and_each_commit_can_be_read(table: FileTable) -> None:
    one, two, both = written(table, 1, 2), written(table, 3, 4), written(table, 1, 4)
    table.commit([one], [], position=2, properties={"fencepost.word": "first"})
    table.commit([two], [], position=4, properties={})
    table.commit([both], [one.path, two.path], position=4, properties={}, rewritten=True)
    table.commit([], [], position=9, properties={})
    commits = table.commits()
    assert [commit.position for commit in commits] == [2, 4, 4, 9]
    assert commits[0].properties["fencepost.word"] == "first"
    files = [{path.name for path in table.paths(commit.version)} for commit in commits]
    assert files == [{"1-2.parquet"}, {"1-2.parquet", "3-4.parquet"}, {"1-4.parquet"}, {"1-4.parquet"}]
    assert table.paths() == {both.path}


def test_the_commit_of_a_position_is_the_first_that_covers_it_as_it_was_rewritten_last(table: FileTable) -> None:
    for position in (2, 4, 4, 9):
        table.commit([], [], position=position, properties={})
    commits = table.commits()
    assert [commits.index(commit_at(commits, position)) for position in (1, 2, 3, 4, 5, 9)] == [0, 0, 2, 2, 3, 3]
    with pytest.raises(InvalidInput, match="position: 10 is above the table's position, 9"):
        commit_at(commits, 10)


def test_a_commit_is_refused_if_another_was_made_since_it_read_the_table(table: FileTable) -> None:
    one, two = written(table, 1, 2), written(table, 3, 4)
    table.commit([one], [], position=2, properties={})
    with pytest.raises(StoreUnavailable, match="another process has changed the table"):
        table.commit(
            [], [one.path], position=5, properties=Meanwhile(lambda: table.commit([two], [], position=4, properties={}))
        )
    assert table.commits()[-1].position == 4
    assert table.paths() == {one.path, two.path}


def test_a_delta_commit_has_the_position_as_its_application_transaction_if_it_fits(tmp_path: Path) -> None:
    table = table_of("delta", tmp_path, schema=SCHEMA, name="things")
    for position in (7, 2**70):
        table.commit([], [], position=position, properties={})
        assert table.commits()[-1].position == position
        assert DeltaTable(str(tmp_path)).transaction_version("fencepost") == 7


def test_an_unknown_format_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="table: one of delta, iceberg is needed, not 'hudi'"):
        table_of("hudi", tmp_path, schema=SCHEMA, name="things")
