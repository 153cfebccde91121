"""Delta tables whose files we write, in a folder and on a mock of S3. No Spark session is needed."""

from __future__ import annotations

import os
import pickle
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError
from tests.support.mock_s3 import MockS3Apart, mock_s3_apart

from fencepost import StoreCorrupt, StoreUnavailable
from fencepost.spark.delta import Change, DataFile, FileTable, TableChanged, changing

SCHEMA = pa.schema([pa.field("position", pa.int64(), nullable=False), pa.field("name", pa.string())])
URL = "s3://bucket/tables/one"


@dataclass
class Place:
    table: FileTable
    names: Callable[[], list[str]]
    grow_old: Callable[[], None]  # two hours pass for every file there is


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[MockS3Apart]:
    with mock_s3_apart() as mock:
        for name, value in mock.environment.items():
            monkeypatch.setenv(name, value)
        yield mock


@pytest.fixture(params=["folder", "object store"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "folder":
        return Place(
            FileTable(str(tmp_path / "table")),
            lambda: sorted(str(path.relative_to(tmp_path / "table")) for path in tmp_path.rglob("*.parquet")),
            lambda: [os.utime(path, (time.time() - 7_200,) * 2) for path in tmp_path.rglob("*")] and None,
        )
    s3: MockS3Apart = request.getfixturevalue("s3")
    return Place(
        FileTable(URL),
        lambda: [key.removeprefix("bucket/tables/one/") for key in s3.keys("/rows/")],
        lambda: s3.grow_old(7_200),
    )


def put(table: FileTable, name: str, *positions: int) -> DataFile:
    path = f"rows/{name}.parquet"
    with table.draft("rows") as draft:
        rows = {"position": list(positions), "name": [name] * len(positions)}
        pq.write_table(pa.table(rows, schema=SCHEMA), draft, write_page_checksum=True)
        size = draft.stat().st_size
        table.put(draft, path)
    return DataFile(path=path, rows=len(positions), bytes=size)


def positions(table: FileTable, version: int | None = None) -> list[int]:
    """What deltalake alone reads."""
    found = DeltaTable(table.location, version=version, storage_options=table._options).to_pyarrow_table()
    return sorted(found["position"].to_pylist())


def test_a_commit_adds_and_removes_files_and_carries_its_position(place: Place) -> None:
    table = place.table
    assert table.state() is None
    state = table.create(SCHEMA, "events", {})
    one, two = put(table, "one", 1, 2), put(table, "two", 3)
    state = table.commit(state, Change([one], (), 2, "d2", {"fencepost.kind": "x"}))
    state = table.commit(state, Change([two], (), 3, "d3"))
    assert state.files == {"rows/one.parquet": one, "rows/two.parquet": two}
    merged = put(table, "merged", 1, 2, 3)
    state = table.commit(state, Change([merged], [one.path, two.path], 3, "d3", rewritten=True))
    assert positions(table) == [1, 2, 3]
    assert [(version.position, version.digest) for version in state.versions(3)] == [(3, "d3"), (3, "d3"), (2, "d2")]
    older = table.state(state.versions()[2].number)
    assert older is not None
    assert older.newest.properties["fencepost.kind"] == "x"
    assert positions(table, older.number) == [1, 2]
    assert [batch.num_rows for batch in table.batches(merged.path, ["name"])] == [3]


def test_columns_and_rows_are_replaced_in_one_commit(place: Place) -> None:
    table = place.table
    state = table.create(SCHEMA, "view", {})
    state = table.commit(state, Change([put(table, "one", 1, 2)], (), 2, ""))
    other = pa.schema([*SCHEMA, pa.field("more", pa.int64())])
    new = put(table, "two", 9)
    state = table.commit(state, Change([new], (), 9, "", schema=other))
    assert state.files == {new.path: new}
    assert state.loaded.schema().to_json().count('"more"') == 1


def test_of_two_commits_on_one_state_one_is_refused(place: Place) -> None:
    table = place.table
    with pytest.raises(TableChanged):
        [table.create(SCHEMA, "events", {}) for _ in range(2)]
    ours, theirs = table.state(), table.state()
    assert ours is not None
    assert theirs is not None
    table.commit(theirs, Change([put(table, "theirs", 1)], (), 1, ""))
    for schema in (None, SCHEMA):
        with pytest.raises(TableChanged, match="another process has changed this table"):
            table.commit(ours, Change([put(table, "ours", 1)], (), 1, "", schema=schema))
    assert positions(table) == [1]


def test_a_commit_whose_answer_was_lost_is_recognised(place: Place) -> None:
    """The client sends the request again, and the store answers that the file exists."""
    table = place.table
    state = table.create(SCHEMA, "events", {})
    plain = state.loaded.create_write_transaction

    def unanswered(*args: Any, **named: Any) -> None:
        plain(*args, **named)
        raise CommitFailedError("it exists")

    state.loaded.create_write_transaction = unanswered
    assert table.commit(state, Change([put(table, "one", 1)], (), 1, "")).newest.position == 1


def test_files_that_no_kept_version_has_are_unused_after_their_time(place: Place) -> None:
    table = place.table
    state = table.create(SCHEMA, "events", {})
    one, two = put(table, "one", 1), put(table, "two", 1)
    state = first = table.commit(state, Change([one], (), 1, ""))
    state = table.commit(state, Change([two], [one.path], 1, ""))
    put(table, "left", 7)
    assert table.unused(state, retain_hours=0) == [one.path], "the file of a process that may be alive stays"
    assert table.unused(state, retain_hours=24) == []
    assert table.unused(state, retain_hours=0, keep=[first.number, state.number]) == []
    place.grow_old()
    assert table.unused(state, retain_hours=0) == ["rows/left.parquet", one.path]
    table.delete(["rows/left.parquet", one.path, "rows/missing.parquet"])
    assert place.names() == table.listed("rows") == [two.path]
    assert positions(table) == [1]


@pytest.mark.parametrize("how", ["flipped", "missing"])
def test_a_damaged_file_is_refused(tmp_path: Path, how: str) -> None:
    table = FileTable(str(tmp_path), "at", "repair it")
    file = put(table, "one", *range(100))
    path = tmp_path / file.path
    if how == "missing":
        path.unlink()
    else:
        content = bytearray(path.read_bytes())
        content[40] ^= 1
        path.write_bytes(content)
    with pytest.raises(StoreCorrupt, match=r"rows/one\.parquet: .*; repair it"):
        list(table.batches(file.path, ["position"]))


def test_a_damaged_log_of_the_table_is_one_error(tmp_path: Path) -> None:
    table = FileTable(str(tmp_path))
    table.commit(table.create(SCHEMA, "events", {}), Change([put(table, "one", 1)], (), 1, ""))
    commit = tmp_path / "_delta_log" / f"{1:020d}.json"
    commit.write_bytes(commit.read_bytes()[:-40])
    with pytest.raises(StoreCorrupt, match="its Delta log cannot be read"):
        table.state()


def test_a_store_that_cannot_be_reached(monkeypatch: pytest.MonkeyPatch, s3: MockS3Apart) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    table = FileTable(URL)
    assert table._options is not None
    table._options["max_retries"] = "0"
    with pytest.raises(StoreUnavailable, match=f"^{URL}: "):
        table.state()


def test_no_secret_leaves_the_process(s3: MockS3Apart) -> None:
    table = FileTable(URL)
    assert table.listed("rows") == []
    for secret in (b"hunter2", b"http"):
        assert secret not in pickle.dumps(table)
    assert pickle.loads(pickle.dumps(table)) == table


def test_work_that_was_overtaken_begins_again_until_its_patience_ends() -> None:
    tries = iter([TableChanged("1"), TableChanged("2"), None])

    def work() -> str:
        error = next(tries)
        if error is not None:
            raise error
        return "done"

    assert changing(work, 60.0) == "done"
    with pytest.raises(TableChanged, match="3"):
        changing(lambda: (_ for _ in ()).throw(TableChanged("3")), 0.0)
