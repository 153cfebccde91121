"""Delta and Iceberg tables in an object store, on a mock of S3: lakes and views, races, and kills.

The tables are read with deltalake and pyiceberg alone. The mock is a process of its own, because deltalake holds
Python's lock during some requests.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql import SparkSession
from tests.cli.conftest import Cli
from tests.cli.conftest import cli as cli
from tests.spark.conftest import append_each, stored, wallet_events
from tests.spark.purses import Added, Moved, Opened, Purse
from tests.spark.slow.conftest import Driver, environment
from tests.spark.test_object_lakes import NO_SPARK, here
from tests.spark.test_view import append, rows
from tests.spark.test_view_changes import applied, contents
from tests.support.mock_s3 import MockS3Apart, mock_s3_apart

import fencepost
from fencepost import Event, InvalidInput, StoreError, StoreUnavailable
from fencepost.engines.lake.files import existing_manifest
from fencepost.engines.lake.paths import storage_of
from fencepost.spark import View, fold, lake
from fencepost.spark.formats import Change, table_of
from fencepost.spark.lake import compacting, exporting, verifying
from fencepost.spark.lake.tables import lake_table, sync
from fencepost.spark.view.files import FilesPlace

pytestmark = pytest.mark.timeout(600)

KINDS = ("delta", "iceberg")
LAKE = "s3://bucket/lakes/wallet"
VIEW = "s3://bucket/views/purses"
TABLE = "sales.things"


@dataclass
class Store:
    """The mock, and the formats' own libraries on it."""

    mock: MockS3Apart
    catalog: str  # the address of a SQL catalog

    def read(self, kind: str, place: str, version: int | None = None) -> pa.Table:
        if kind == "delta":
            return DeltaTable(place, version=version, storage_options={"allow_http": "true"}).to_pyarrow_table()
        endpoint = self.mock.environment["AWS_ENDPOINT_URL"]
        catalog = load_catalog(
            "mine", type="sql", uri=self.catalog, **{"s3.endpoint": endpoint, "s3.region": "us-east-1"}
        )
        try:
            return catalog.load_table(TABLE).scan(snapshot_id=version).to_arrow()
        finally:
            catalog.close()

    @contextmanager
    def holding(self, kind: str, number: int) -> Iterator[Callable[[], None]]:
        """Hold the next commit back until the block ends; yields what waits until the commit is about to be made.

        `number` is the version of a Delta table that it makes. An Iceberg commit is held before its statement of SQL:
        pyiceberg would send a request that the mock holds back a second time, after some seconds.
        """
        if kind == "delta":
            with self.mock.holding("PUT", f"_delta_log/{number:020d}.json") as wait:
                yield wait
            return
        arrived, release, mine = threading.Event(), threading.Event(), threading.Lock()
        write = SqlCatalog._write_metadata

        def held(*arguments: Any, **options: Any) -> None:
            write(*arguments, **options)
            if mine.acquire(blocking=False):
                arrived.set()
                release.wait()

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(SqlCatalog, "_write_metadata", staticmethod(held))
            try:
                yield lambda: None if arrived.wait(240) else pytest.fail("there was no commit")
            finally:
                release.set()


@pytest.fixture
def s3(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    with mock_s3_apart() as mock:
        for name, value in mock.environment.items():
            monkeypatch.setenv(name, value)
        catalog = f"sqlite:///{tmp_path}/catalog.db"
        monkeypatch.setenv("PYICEBERG_CATALOG__MINE__URI", catalog)
        yield Store(mock, catalog)


@pytest.fixture
def workers(spark: SparkSession, s3: Store) -> Iterator[SparkSession]:
    """Spark, whose workers have the environment of this process; they would have the one that Spark was started in."""
    found = spark.sparkContext.environment
    before = dict(found)
    found.update(s3.mock.environment)
    yield spark
    found.clear()
    found.update(before)


@pytest.fixture
def tasks_here(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (exporting, compacting, verifying):
        monkeypatch.setattr(module, "on_spark", here)


def export(kind: str, log: str, *, spark: Any = NO_SPARK, **options: Any) -> lake.Exported:
    tables: dict[str, Any] = {"delta": True}
    if kind == "iceberg":
        tables = {"iceberg": True, "iceberg_catalog": "mine", "iceberg_table": TABLE}
    return lake.export(spark, log, LAKE, **{"chunk": 200, **tables, **options})


def version_at(kind: str, position: int) -> int:
    named = {} if kind == "delta" else {"iceberg_catalog": "mine", "iceberg_table": TABLE}
    return lake.table_version(LAKE, position, table=kind, **named)


def events_of(table: pa.Table) -> list[tuple[Any, ...]]:
    found = table.sort_by("position").to_pylist()
    return [(row["position"], row["type"], row["data"], frozenset(row["tags"])) for row in found]


def expected(log: str, upto: int | None = None) -> list[tuple[Any, ...]]:
    return [(event.position, event.type, event.data, event.tags) for event in stored(log)[:upto]]


@pytest.mark.parametrize("kind", KINDS)
def test_a_table_over_a_lake_is_the_log_at_each_position(s3: Store, log: str, kind: str, workers: SparkSession) -> None:
    for upto in (100, 300):
        export(kind, log, spark=workers, upto=upto)
    assert export(kind, log, spark=workers).upto == 511
    newest = version_at(kind, 511)
    assert export(kind, log, spark=workers) == lake.Exported(0, 0, 511)
    assert version_at(kind, 511) == newest, "a repeated export commits nothing"
    assert events_of(s3.read(kind, f"{LAKE}/events")) == expected(log)
    for position, last in ((1, 100), (100, 100), (101, 300), (511, 511)):
        assert events_of(s3.read(kind, f"{LAKE}/events", version_at(kind, position))) == expected(log, last)
    with pytest.raises(InvalidInput, match="position: 512 is above the table's position, 511"):
        version_at(kind, 512)
    assert lake.verify(workers, LAKE) == []
    assert lake.compact(workers, LAKE, chunk=600).after == len(existing_manifest(LAKE).files) > 1, "it has a table"


@pytest.mark.parametrize("kind", KINDS)
def test_a_compaction_is_one_commit_that_changes_no_row(
    s3: Store, log: str, kind: str, monkeypatch: pytest.MonkeyPatch, tasks_here: None
) -> None:
    for upto in (100, 200, 300):
        export(kind, log, upto=upto)
    with monkeypatch.context() as unaware:
        unaware.setattr(compacting, "has_table", lambda storage: False)
        assert lake.compact(NO_SPARK, LAKE, chunk=300) == lake.Compacted(3, 1)
    before = version_at(kind, 300)
    assert export(kind, log, upto=300) == lake.Exported(0, 0, 300)
    assert version_at(kind, 300) != before
    assert events_of(s3.read(kind, f"{LAKE}/events")) == expected(log, 300)


def in_background(work: Callable[[], Any]) -> Future[Any]:
    pool = ThreadPoolExecutor(1)
    try:
        return pool.submit(work)
    finally:
        pool.shutdown(wait=False)


@pytest.mark.parametrize("kind", KINDS)
def test_of_two_exports_that_commit_to_the_table_at_once_both_end_with_the_newest_manifest(
    s3: Store, log: str, kind: str, tasks_here: None
) -> None:
    """The commit of the one that exports less is held back: it must not take the table back."""
    export(kind, log, upto=100)
    with s3.holding(kind, 2) as wait:
        first = in_background(lambda: export(kind, log, upto=300))
        wait()
        assert export(kind, log).upto == 511
    assert first.result().upto == 511
    assert events_of(s3.read(kind, f"{LAKE}/events")) == expected(log)
    newest = version_at(kind, 511)
    export(kind, log)
    assert version_at(kind, 511) == newest


def test_a_sync_with_an_older_manifest_takes_the_table_to_the_newest_one(s3: Store, log: str, tasks_here: None) -> None:
    export("delta", log, upto=100)
    older = existing_manifest(LAKE)
    export("delta", log)
    sync([lake_table(storage_of(LAKE), "delta")], storage_of(LAKE), older)
    assert events_of(s3.read("delta", f"{LAKE}/events")) == expected(log)


KILLED_EXPORT = """
import os, signal, sys
from fencepost.spark.formats import delta, iceberg
from tests.spark.slow import test_object_tables as these
from fencepost.spark.lake import compacting, exporting
exporting.on_spark = compacting.on_spark = these.here
def kill(*args, **options):
    os.kill(os.getpid(), signal.SIGKILL)
delta.DeltaFiles.commit = iceberg.IcebergFiles.commit = kill
these.export(sys.argv[1], sys.argv[2])
"""


@pytest.mark.parametrize("kind", KINDS)
def test_an_export_that_is_killed_before_the_commit_of_the_table_is_completed_by_the_next(
    s3: Store, log: str, kind: str, tasks_here: None, tmp_path: Path
) -> None:
    export(kind, log, upto=100)
    command = [sys.executable, "-c", KILLED_EXPORT, kind, log]
    killed = subprocess.run(command, env=environment(tmp_path), capture_output=True, timeout=300)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert existing_manifest(LAKE).upto == 511
    assert events_of(s3.read(kind, f"{LAKE}/events")) == expected(log, 100)
    assert export(kind, log) == lake.Exported(0, 0, 511)
    assert events_of(s3.read(kind, f"{LAKE}/events")) == expected(log)


def test_the_command_makes_tables(
    s3: Store, log: str, cli: Cli, tasks_here: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fencepost.cli.lake.spark_session", lambda *arguments: nullcontext(NO_SPARK))
    named = ("--iceberg-catalog", "mine", "--iceberg-table", TABLE)
    ran = cli("lake", "export", log, LAKE, "--delta", "--iceberg", *named)
    assert ran.code == 0, ran.err
    for kind in KINDS:
        assert events_of(s3.read(kind, f"{LAKE}/events")) == expected(log)
    ran = cli("lake", "export", log, LAKE, "--iceberg")
    assert (ran.code, "iceberg_catalog: missing" in ran.err) == (2, True)


def test_two_lakes_in_one_catalog_have_tables_of_their_own(s3: Store, tmp_path: Path, tasks_here: None) -> None:
    counts = {}
    for name, count in (("a", 5), ("b", 7)):
        path = str(tmp_path / f"{name}.db")
        with fencepost.open(path) as store:
            append_each(store, wallet_events(count))
        url = f"s3://bucket/{name}/wallet"
        lake.export(NO_SPARK, path, url, iceberg=True, iceberg_catalog="mine")
        counts[url] = lake.table_version(url, count, table="iceberg", iceberg_catalog="mine")
    assert len(set(counts.values())) == 2
    folder = str(tmp_path / "lake")
    lake.export(NO_SPARK, str(tmp_path / "a.db"), folder, iceberg=True, iceberg_catalog="mine", iceberg_table=TABLE)
    assert s3.read("iceberg", folder).num_rows == 5, "a lake in a folder, in the same catalog"


def place_of(kind: str) -> str:
    return f"delta:{VIEW}" if kind == "delta" else f"iceberg:{VIEW}?catalog=mine&table={TABLE}"


def view_of(spark: SparkSession, log: str | None, kind: str, **more: Any) -> View:
    return View(Purse, by="purse_id", at=place_of(kind), store=log, spark=spark, **more)


@pytest.fixture
def purses(tmp_path: Path) -> str:
    path = str(tmp_path / "purses.db")
    append(path, Opened("a", "Ada"), Added("a", 700, "first"), Opened("b", "Bob"), Moved("a", "b", 200))
    return path


def amounts(s3: Store, kind: str) -> dict[str, int]:
    kept = s3.read(kind, VIEW).select(["purse_id", "amount"]).to_pylist()
    assert len({row["purse_id"] for row in kept}) == len(kept), "one row for each key"
    return {row["purse_id"]: row["amount"] for row in kept}


def unused(view: View, s3: Store) -> set[str]:
    """Files in the store that the newest version does not have."""
    place = view._place
    assert isinstance(place, FilesPlace)
    return {key.rpartition("/")[2] for key in s3.mock.keys("/bucket-")} - place.table.state().files


@pytest.mark.parametrize("kind", KINDS)
def test_a_view_in_a_table_is_the_fold_at_each_position(
    s3: Store, purses: str, kind: str, workers: SparkSession
) -> None:
    view = view_of(workers, purses, kind)
    assert view.position == 0
    assert view.refresh().rebuilt
    last = append(purses, Added("a", 1), Opened("c", "Cy"), Moved("c", "a", 9))
    second = view.refresh()
    assert (second.position, second.changed, second.rebuilt) == (last, 2, False)
    assert view.refresh().changed == 0
    append(purses, Event("Unrelated"))
    assert view.refresh().changed == 0
    assert view.versions == [4, 7, 8]
    assert rows(view_of(workers, None, kind).latest()) == rows(fold(workers, purses, Purse, by="purse_id"))
    for position in (4, 6, 7):
        assert rows(view.at(position)) == rows(fold(workers, purses, Purse, by="purse_id", upto=position))
    assert amounts(s3, kind) == {"a": 510, "b": 200, "c": -9}
    assert applied(view.changes(after=4), contents(view.at(4))) == contents(view.latest())


@pytest.mark.parametrize("kind", KINDS)
def test_of_two_refreshes_at_once_one_commits_and_the_other_says_so(
    s3: Store, purses: str, kind: str, workers: SparkSession
) -> None:
    view_of(workers, purses, kind, keep=1).refresh(upto=3)
    append(purses, Added("b", 50))
    first, second = view_of(workers, purses, kind, keep=1), view_of(workers, purses, kind, keep=1)
    with s3.holding(kind, 2) as wait:
        held = in_background(lambda: first.refresh(upto=4))
        wait()
        assert second.refresh().position == 5
        assert unused(second, s3) == set(), "also the files of the refresh that can no longer commit"
    with pytest.raises(StoreUnavailable, match="another process has changed the table"):
        held.result()
    assert (second.versions, amounts(s3, kind)) == ([5], {"a": 500, "b": 250})
    assert rows(second.latest()) == rows(fold(workers, purses, Purse, by="purse_id"))
    append(purses, Added("a", 1))
    assert first.refresh().position == 6
    assert unused(first, s3) == set()


@pytest.mark.parametrize("kind", KINDS)
def test_a_refresh_whose_base_has_gone_is_refused(s3: Store, purses: str, kind: str, workers: SparkSession) -> None:
    """Another refresh commits after this one has read the view, and before it reads the table."""
    view = view_of(workers, purses, kind, keep=1)
    view.refresh(upto=3)
    place = view._place
    assert isinstance(place, FilesPlace)
    save = place.save

    def late(*arguments: Any) -> int:
        view_of(workers, purses, kind, keep=1).refresh()
        return save(*arguments)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(
            FilesPlace, "save", lambda self, *arguments: late(*arguments) if self is place else REAL(self, *arguments)
        )
        with pytest.raises(StoreUnavailable, match="another process has refreshed this view"):
            view.refresh(upto=4)
    assert (view.versions, amounts(s3, kind)) == ([4], {"a": 500, "b": 200})


REAL = FilesPlace.save

KILLED_REFRESH = """
import os, signal, sys
import fencepost.spark
from fencepost.spark.formats import delta, iceberg
from tests.spark.slow import test_object_tables as these
def kill(*args, **options):
    os.kill(os.getpid(), signal.SIGKILL)
delta.DeltaFiles.commit = iceberg.IcebergFiles.commit = kill
these.view_of(fencepost.spark.session("local[2]"), sys.argv[2], sys.argv[1], keep=1).refresh()
"""


@pytest.mark.parametrize("kind", KINDS)
def test_a_killed_refresh_has_not_happened_and_the_next_one_removes_its_files(
    s3: Store, purses: str, kind: str, workers: SparkSession, tmp_path: Path
) -> None:
    view = view_of(workers, purses, kind, keep=1)
    view.refresh(upto=3)
    killed = Driver(tmp_path, KILLED_REFRESH, kind, purses).result()
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert (view.versions, amounts(s3, kind)) == ([3], {"a": 700, "b": 0})
    assert unused(view, s3), "the files of the killed refresh"
    assert view.refresh().position == 4
    assert (view.versions, amounts(s3, kind)) == ([4], {"a": 500, "b": 200})
    assert unused(view, s3) == set()


def test_a_store_that_ignores_conditions_is_refused(s3: Store) -> None:
    s3.mock.ignore_conditions()
    schema = pa.schema([("position", pa.int64())])
    table = table_of("delta", storage_of(VIEW), data="", home="", schema=schema, name="view")
    with pytest.raises(StoreError, match="ignores the header If-None-Match"):
        table.commit(table.state(), Change([], [], 1, {}))
    assert s3.mock.keys() == []


@pytest.mark.parametrize(
    ("at", "said"),
    [
        (f"iceberg:{VIEW}", r"^at: .* has no Iceberg catalog; name one .*\?catalog=NAME"),
        (f"iceberg:{VIEW}?table=a.b", "^at: table: it names a table of a catalog"),
        (f"iceberg:{VIEW}?catalog=mine&color=red", "^at: unknown option 'color'"),
        (f"delta:{VIEW}?catalog=mine", "^at: unknown option 'catalog'; a view in a table of delta takes no options"),
        ("delta:s3://key:hunter2@bucket/x", "^at: .* is not the URL of a prefix"),
        ("iceberg:s3://key:hunter2@bucket/x?catalog=mine", "^at: .* is not the URL of a prefix"),
    ],
)
def test_a_bad_place_is_refused(at: str, said: str) -> None:
    with pytest.raises(InvalidInput, match=said) as raised:
        View(Purse, by="purse_id", at=at)
    assert "hunter2" not in str(raised.value)


def test_an_unknown_catalog_is_refused(purses: str) -> None:
    view = View(Purse, by="purse_id", at=f"iceberg:{VIEW}?catalog=unknown", store=purses)
    with pytest.raises(InvalidInput, match=r"^at: catalog: pyiceberg's configuration has no catalog 'unknown'"):
        view.refresh()


def test_spark_reads_the_files_itself_if_it_can_open_them(
    s3: Store, purses: str, workers: SparkSession, tmp_path: Path
) -> None:
    """A file system of Hadoop that mounts a folder as s3a:// stands in for the connector."""
    view = view_of(workers, purses, "delta")
    view.refresh()
    for key in s3.mock.keys("/bucket-"):
        (tmp_path / "mounted").mkdir(exist_ok=True)
        (tmp_path / "mounted" / key.rpartition("/")[2]).write_bytes(s3.mock.content(key))
    settings = {
        "fs.s3a.impl": "org.apache.hadoop.fs.viewfs.ViewFileSystemOverloadScheme",
        "fs.s3a.impl.disable.cache": "true",  # or the session could open s3a:// after the test, too
        "fs.viewfs.overload.scheme.target.file.impl": "org.apache.hadoop.fs.LocalFileSystem",
        "fs.viewfs.mounttable.bucket.link./views/purses": f"file://{tmp_path}/mounted",
    }
    for name, value in settings.items():
        workers.conf.set(name, value)
    try:
        assert "s3a://bucket" in view.latest()._jdf.queryExecution().toString()  # type: ignore[operator]
        assert rows(view.latest()) == rows(fold(workers, purses, Purse, by="purse_id"))
    finally:
        for name in settings:
            workers.conf.unset(name)
    assert "s3a://bucket" not in view.latest()._jdf.queryExecution().toString()  # type: ignore[operator]
