"""Views in an object store, on a mock of S3 and a real Spark, which has no connector for it."""

from __future__ import annotations

import io
import pickle
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from tests.spark.purses import Added, Diary, Opened, Purse
from tests.spark.test_view import amounts, append, rows
from tests.spark.test_view import log as log
from tests.spark.test_view_changes import Rows, check_changes, contents
from tests.support.mock_s3 import Kept, MockS3, mock_s3

from fencepost import InvalidInput, StoreError, StoreUnavailable
from fencepost.spark import View, fold
from fencepost.spark.view import object_layers
from fencepost.spark.view import views as viewing
from fencepost.spark.view.folder import read_view_manifest
from fencepost.storage import objects

URL = "s3://bucket/views/purses"
KEY = "bucket/views/purses"
MANIFEST = f"{KEY}/view.json"


@pytest.fixture(scope="module")
def mock() -> Iterator[MockS3]:
    with mock_s3() as mock:
        yield mock


@pytest.fixture
def s3(mock: MockS3, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Iterator[MockS3]:
    """The mock, empty. The workers get the environment that Spark's context sends with each task."""
    for name, value in mock.environment.items():
        monkeypatch.setenv(name, value)
        monkeypatch.setitem(spark.sparkContext.environment, name, value)
    fresh = MockS3()
    mock.objects = fresh.objects
    mock.requests = fresh.requests
    yield mock
    mock.before, mock.refuses, mock.ignores_conditions = fresh.before, fresh.refuses, False


def view_of(spark: SparkSession, log: str, projection: Any = Purse, **options: Any) -> View:
    return View(projection, by="purse_id", **{"at": URL, "store": log, "spark": spark} | options)


def listed() -> set[str]:
    """The keys of the files that the manifest lists."""
    manifest = read_view_manifest(URL)
    assert manifest is not None
    layers = [layer for version in manifest.versions for layer in (*version.layers, version.changes) if layer]
    return {f"{KEY}/{file.path}" for layer in layers for file in layer.files or ()}


def age(s3: MockS3) -> None:
    """Some hours pass."""
    for key, kept in s3.objects.items():
        s3.objects[key] = Kept(kept.content, kept.written_s - 7_200)


class Holding:
    """Holds back the first requests of a kind, each until it is let go."""

    def __init__(self, s3: MockS3, method: str, part: str, count: int = 1) -> None:
        self._arrived = [threading.Event() for _ in range(count)]
        self._released = [threading.Event() for _ in range(count)]
        lock, seen = threading.Lock(), 0

        def before(found: str, key: str) -> None:
            nonlocal seen
            if found != method or part not in key:
                return
            with lock:
                number, seen = seen, seen + 1
            if number < count:
                self._arrived[number].set()
                self._released[number].wait()

        s3.before = before
        self._pool = ThreadPoolExecutor(count)

    def begin(self, number: int, work: Callable[[], Any]) -> Future[Any]:
        """Start the work in a thread, and wait until its request is held."""
        future = self._pool.submit(work)
        if not self._arrived[number].wait(120):
            self.let_go()
            raise AssertionError("the request was never sent") from future.exception(1)
        return future

    def let_go(self, *numbers: int) -> None:
        for number in numbers or range(len(self._released)):
            self._released[number].set()


@pytest.fixture
def hold(s3: MockS3) -> Iterator[Callable[..., Holding]]:
    made: list[Holding] = []

    def begin(method: str, part: str, count: int = 1) -> Holding:
        made.append(Holding(s3, method, part, count))
        return made[-1]

    yield begin
    for each in made:
        each.let_go()


@pytest.mark.parametrize("projection", [Purse, Diary])
def test_a_view_in_an_object_store_is_the_fold_and_the_view_in_a_folder(
    s3: MockS3, spark: SparkSession, log: str, tmp_path: Path, projection: Any
) -> None:
    view = view_of(spark, log, projection, at="s3a://bucket/views/purses/", keep=3)
    local = view_of(spark, log, projection, at=f"file:{tmp_path / 'view'}", keep=3)
    for number in range(4):
        assert view.refresh() == local.refresh()
        append(log, Added("a", number, "note"), Opened(f"c{number}", "Cy"))
    assert view.refresh(upto=view.position).changed == 0
    assert view.versions == local.versions == [6, 8, 10]
    for position in (5, 6, 8, 10):  # before every version, and each version
        found = rows(view.at(position))
        assert found == rows(local.at(position))
        assert found == rows(fold(spark, log, projection, by="purse_id", upto=position))
    assert set(s3.keys("/layers/")) == listed(), "old versions and merged layers are removed"
    assert not any(b"hunter2" in kept.content for kept in s3.objects.values())
    assert b"hunter2" not in pickle.dumps(view._place)


def published(s3: MockS3, view: View) -> dict[int, list[dict[str, Any]]]:
    """The published changes of each refresh, read without Spark."""
    keys = s3.keys(f"{KEY}/changes/{view.generation}/")
    return {int(key.split("/")[-2]): pq.read_table(io.BytesIO(s3.objects[key].content)).to_pylist() for key in keys}


def test_changes_are_recorded_and_published(s3: MockS3, spark: SparkSession, log: str) -> None:
    view = view_of(spark, log, changes=True)
    check_changes(view, log)
    feed = published(s3, view)
    assert list(feed) == [4, 7, 8, 10]
    assert feed[8] == []
    replayed: Rows = {}
    for position, changes in feed.items():
        for change in changes:
            assert change["before"] == replayed.get(change["purse_id"])
            assert change["position"] == position
        replayed |= {change["purse_id"]: change["after"] for change in changes}
        assert replayed == contents(view.at(position))


def test_two_processes_that_publish_the_same_changes_make_one_object(
    s3: MockS3, spark: SparkSession, log: str, hold: Callable[..., Holding]
) -> None:
    view = view_of(spark, log, changes=True)
    held = hold("PUT", "/changes/")
    first = held.begin(0, view.refresh)
    assert view_of(spark, log, changes=True).refresh().changed == 0, "it publishes what the other has committed"
    there = {key: s3.objects[key] for key in s3.keys("/changes/")}
    held.let_go()
    assert first.result().changed == 2
    assert {key: s3.objects[key] for key in s3.keys("/changes/")} == there, "a published file is never replaced"
    assert len(there) == 1


def test_of_two_refreshes_one_commits_and_the_other_reports_it(
    s3: MockS3, spark: SparkSession, log: str, hold: Callable[..., Holding]
) -> None:
    view = view_of(spark, log)
    view.refresh()
    append(log, Added("b", 50))
    held = hold("PUT", "view.json")
    lost = held.begin(0, view.refresh)
    assert view_of(spark, log).refresh().changed == 1
    held.let_go()
    with pytest.raises(StoreUnavailable, match=f"{URL}: another process is refreshing this view; try again later"):
        lost.result()
    assert (view.versions, amounts(view.latest())) == ([4, 5], {"a": 500, "b": 250})
    assert len(set(s3.keys("/layers/")) - listed()) == 1, "the layer of the one that lost"


def test_a_refresh_that_lost_begins_again(
    s3: MockS3, spark: SparkSession, log: str, hold: Callable[..., Holding]
) -> None:
    """As `follow` does. The very first refresh notices another one already when it creates the manifest."""
    held = hold("PUT", "view.json")
    view = view_of(spark, log)
    lost = held.begin(0, lambda: view._refresh(None, patience_s=60))
    view_of(spark, log).refresh(upto=3)
    held.let_go()
    assert (lost.result().position, lost.result().changed) == (4, 2)
    assert (view.versions, amounts(view.latest())) == ([3, 4], {"a": 500, "b": 200})
    assert set(s3.keys("/layers/")) == listed()


def test_a_refresh_removes_no_layer_of_another_that_commits_first(
    s3: MockS3, spark: SparkSession, log: str, hold: Callable[..., Holding], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second has seen the layer of the first among those to remove, but its own commit comes too late."""
    monkeypatch.setattr(object_layers, "LEFT_S", -60.0)
    view = view_of(spark, log)
    view.refresh()
    append(log, Added("b", 50))
    held = hold("PUT", "view.json", 2)
    first = held.begin(0, view.refresh)
    second = held.begin(1, view_of(spark, log).refresh)
    held.let_go(0)
    assert first.result().changed == 1
    held.let_go(1)
    with pytest.raises(StoreUnavailable, match="another process is refreshing"):
        second.result()
    assert amounts(view.latest()) == {"a": 500, "b": 250}


def test_a_live_refresh_whose_layer_was_removed_never_commits_it(
    s3: MockS3, spark: SparkSession, log: str, hold: Callable[..., Holding], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(object_layers, "LEFT_S", -60.0)
    view = view_of(spark, log)
    view.refresh()
    append(log, Added("b", 50))
    held = hold("PUT", "view.json")
    lost = held.begin(0, lambda: view._refresh(None, patience_s=60))
    view_of(spark, log).refresh()
    assert set(s3.keys("/layers/")) == listed(), "the layer of the live refresh is gone"
    held.let_go()
    assert lost.result().changed == 0, "it began again, and found nothing to do"
    assert amounts(view.latest()) == {"a": 500, "b": 250}


def test_a_refresh_whose_base_was_removed_reports_the_other_refresh(
    s3: MockS3, spark: SparkSession, log: str, hold: Callable[..., Holding]
) -> None:
    view = view_of(spark, log, keep=1)
    view.refresh()
    (base,) = listed()
    append(log, Added("b", 50))
    held = hold("HEAD", base)
    lost = held.begin(0, view.refresh)
    for _ in range(2):  # the second merges the layers
        append(log, Added("a", 1), Added("b", 1))
        view_of(spark, log, keep=1).refresh()
    assert base not in s3.objects
    held.let_go()
    with pytest.raises(StoreUnavailable, match="another process is refreshing this view"):
        lost.result()
    assert amounts(view.latest()) == {"a": 502, "b": 252}


def test_a_file_of_a_failed_task_is_not_part_of_the_view(s3: MockS3, spark: SparkSession, log: str) -> None:
    left: list[str] = []

    def lost_answer(method: str, key: str) -> bool:
        if method == "PUT" and "/layers/" in key and not left:
            left.append(key)
            s3.objects[key] = Kept(b"of the first try")
            return True
        return False

    s3.refuses = lost_answer
    view = view_of(spark, log)
    assert view.refresh().changed == 2
    assert rows(view.latest()) == rows(fold(spark, log, Purse, by="purse_id"))
    assert set(s3.keys("/layers/")) - listed() == set(left)
    append(log, Added("a", 1))
    view.refresh()
    assert left[0] in s3.objects, "for an hour, it might belong to a live refresh"
    age(s3)
    append(log, Added("a", 1))
    view.refresh()
    assert set(s3.keys("/layers/")) == listed()
    assert amounts(view.latest()) == {"a": 502, "b": 200}


def test_other_code_folds_the_view_again_and_removes_its_layers(
    s3: MockS3, spark: SparkSession, log: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    view_of(spark, log).refresh()
    before = listed()
    monkeypatch.setattr(viewing, "fingerprint", lambda projection: b"of other code")
    changed = view_of(spark, log)
    assert changed.position == 0
    assert changed.refresh().rebuilt
    assert not before & set(s3.keys())
    assert set(s3.keys("/layers/")) == listed()


def test_a_view_follows_a_stream(s3: MockS3, spark: SparkSession, log: str, tmp_path: Path) -> None:
    view = view_of(spark, log)
    view.follow(checkpoint=str(tmp_path / "checkpoint"), max_events=3, availableNow=True).awaitTermination()
    assert (view.versions, amounts(view.latest())) == ([3, 4], {"a": 500, "b": 200})


@pytest.mark.parametrize(
    ("how", "said"), [("flipped", ""), ("short", ""), ("missing", "No such file"), ("other", "rows, and the view's")]
)
def test_a_damaged_or_missing_layer_is_named(s3: MockS3, spark: SparkSession, log: str, how: str, said: str) -> None:
    view = view_of(spark, log)
    view.refresh()
    (key,) = listed()
    content = s3.objects[key].content
    if how == "missing":
        del s3.objects[key]
    elif how == "short":
        s3.objects[key] = Kept(content[:-9])
    elif how == "flipped":
        s3.objects[key] = Kept(content.replace(b"Ada", b"Ida", 1))  # which only the page's checksum shows
    else:
        half = io.BytesIO()
        pq.write_table(pq.read_table(io.BytesIO(content)).slice(0, 1), half)
        s3.objects[key] = Kept(half.getvalue())
    with pytest.raises(Exception, match=rf"s3://{key}: .*{said}.*delete view\.json there and refresh") as raised:
        rows(view.latest())
    assert "hunter2" not in str(raised.value)
    del s3.objects[MANIFEST]
    assert view.refresh().rebuilt, "as the message says"
    assert amounts(view.latest()) == {"a": 500, "b": 200}


def test_spark_reads_the_layers_itself_if_it_can_open_them(
    s3: MockS3, spark: SparkSession, log: str, tmp_path: Path
) -> None:
    """A file system of Hadoop that mounts a local folder under s3a:// stands in for the connector."""
    view = view_of(spark, log, at="s3://mounted/views/purses")
    view.refresh()
    append(log, Added("b", 1))
    view.refresh()
    for key in s3.keys("mounted/"):
        target = tmp_path / key
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(s3.objects[key].content)
    settings = {
        "fs.s3a.impl": "org.apache.hadoop.fs.viewfs.ViewFileSystemOverloadScheme",
        "fs.viewfs.overload.scheme.target.file.impl": "org.apache.hadoop.fs.LocalFileSystem",
        "fs.viewfs.mounttable.mounted.link./views": f"file://{tmp_path}/mounted/views",
    }
    assert "s3a" not in _plan(view.latest())
    try:
        for name, value in settings.items():
            spark.conf.set(name, value)
        latest = view.latest()
        assert "s3a://mounted/views/purses/layers" in _plan(latest)
        assert rows(latest) == rows(fold(spark, log, Purse, by="purse_id"))
    finally:
        for name in settings:
            spark.conf.unset(name)


def _plan(frame: Any) -> str:
    return str(frame._jdf.queryExecution().toString())


def test_a_store_that_ignores_conditions_is_refused(s3: MockS3, spark: SparkSession, log: str) -> None:
    s3.ignores_conditions = True
    with pytest.raises(StoreError, match="ignores the headers If-Match"):
        view_of(spark, log).refresh()
    assert s3.keys() == []


@pytest.mark.parametrize("at", ["s3://", "s3://bucket/a b", "gs://bucket/../x", "s3://key:hunter2@bucket/x"])
def test_a_malformed_address_is_refused(spark: SparkSession, at: str) -> None:
    with pytest.raises(InvalidInput, match=r"at: .*is not the URL of a prefix in an object store") as raised:
        View(Purse, by="purse_id", at=at, spark=spark)
    assert "hunter2" not in str(raised.value)


def test_an_object_store_that_cannot_be_reached_is_named(
    s3: MockS3, spark: SparkSession, log: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(StoreUnavailable, match="no such view yet"):
        view_of(spark, log).latest()
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setattr(objects, "RETRY_S", 0.0)
    with pytest.raises(StoreUnavailable, match=r"^s3://bucket/views/purses/view\.json: "):
        view_of(spark, log).refresh()


def test_a_view_that_was_copied_from_an_object_store_is_a_view_in_a_folder(
    s3: MockS3, spark: SparkSession, log: str, tmp_path: Path
) -> None:
    view_of(spark, log).refresh()
    for key in s3.keys(KEY):
        target = tmp_path / key.removeprefix("bucket/views/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(s3.objects[key].content)
    (file,) = listed()
    stray = tmp_path / "purses" / file.removeprefix(f"{KEY}/")
    stray.with_name("of-a-failed-task.parquet").write_bytes(stray.read_bytes())
    local = view_of(spark, log, at=f"file:{tmp_path / 'purses'}")
    assert rows(local.latest()) == rows(fold(spark, log, Purse, by="purse_id"))
    append(log, Added("a", 1))
    assert not local.refresh().rebuilt
    assert rows(local.latest()) == rows(fold(spark, log, Purse, by="purse_id"))
