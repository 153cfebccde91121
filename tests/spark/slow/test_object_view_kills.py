"""A refresh of a view in an object store that ends at any of its requests: the old versions stay, the next one goes on.

A kill at each request is simulated: the store carries out no further request, of the driver or of a task. One real
kill -9 of driver and JVM comes while the manifest is being replaced.
"""

from __future__ import annotations

import io
import threading
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from tests.server.following import eventually
from tests.spark.conftest import spark as spark
from tests.spark.purses import Added
from tests.spark.slow.conftest import Driver, environment
from tests.spark.test_object_views import KEY, URL, age, listed, published, view_of
from tests.spark.test_object_views import mock as mock
from tests.spark.test_object_views import s3 as s3
from tests.spark.test_view import amounts, append
from tests.spark.test_view import log as log
from tests.support.mock_s3 import MockS3

from fencepost.spark.view.folder import read_view_manifest

pytestmark = pytest.mark.timeout(1_800)  # each step runs several Spark jobs


def kill_at(s3: MockS3, step: int) -> None:
    """Refuse this request that changes the store, and every later request."""
    count = 0

    def refuses(method: str, key: str) -> bool:
        nonlocal count
        if method in ("PUT", "POST") or count >= step:
            count += 1
        return count >= step

    s3.refuses = refuses


def whole(s3: MockS3) -> dict[int, dict[str, int]]:
    """Every kept version, read without Spark: the newest layer that has a key counts. Each listed file must exist."""
    manifest = read_view_manifest(URL)
    found: dict[int, dict[str, int]] = {}
    for version in manifest.versions if manifest is not None else ():
        rows: dict[str, int] = {}
        for layer in version.layers:
            for file in layer.files or ():
                table = pq.read_table(io.BytesIO(s3.objects[f"{KEY}/{file.path}"].content))
                rows |= {row["purse_id"]: row["amount"] for row in table.to_pylist()}
        found[version.position] = rows
    return found


def test_a_kill_at_any_request_leaves_the_versions_before_it(s3: MockS3, spark: SparkSession, log: str) -> None:
    expected = {4: {"a": 500, "b": 200}, 6: {"a": 501, "b": 201}, 8: {"a": 503, "b": 203}}
    view = view_of(spark, log, changes=True, keep=1)
    view.refresh()
    append(log, Added("a", 1), Added("b", 1))
    view.refresh()
    append(log, Added("a", 2), Added("b", 2))
    begun, step, killed, reasons = dict(s3.objects), 0, True, list[str]()
    while killed:  # the refresh to 8 writes a layer, merges the layers, commits, removes two layers and publishes
        step += 1
        s3.objects = dict(begun)
        kill_at(s3, step)
        try:
            view.refresh()
            killed = False
        except Exception as error:
            reasons.append(f"{type(error).__name__}: {error}")
        s3.refuses = MockS3().refuses
        for position, rows in whole(s3).items():
            assert rows == expected[position]
        assert set(published(s3, view)) <= {4, 6, *whole(s3)}, "no changes of a refresh that was not committed"
        committed = 8 in whole(s3)
        age(s3)
        assert view.refresh().position == 8
        assert whole(s3) == {8: expected[8]}
        assert set(published(s3, view)) == {4, 6, 8}
        left = set(s3.keys("/layers/")) - listed()
        assert left <= (set(begun) if committed else set()), "only what a killed removal has left, for the next commit"
    assert step == 7
    assert all("AccessDenied" in reason for reason in reasons), reasons
    assert amounts(view.latest()) == expected[8]


REFRESH = """
import sys
import fencepost.spark
from tests.spark.purses import Purse
spark = fencepost.spark.session("local[2]")
view = fencepost.spark.View(Purse, by="purse_id", at=sys.argv[2], store=sys.argv[1], spark=spark)
print(view.refresh().position, flush=True)
"""


def test_a_refresh_that_is_killed_with_its_commit_on_the_way_is_whole_or_absent(
    s3: MockS3, spark: SparkSession, log: str, tmp_path: Path
) -> None:
    view = view_of(spark, log)
    view.refresh()
    append(log, Added("b", 50))
    arrived, release = threading.Event(), threading.Event()

    def before(method: str, key: str) -> None:
        if method == "PUT" and key.endswith("view.json"):
            arrived.set()
            release.wait(120)

    s3.before = before
    driver = Driver(tmp_path, REFRESH, log, URL, env=environment(tmp_path))
    try:
        driver.wait_until(arrived.is_set)
        assert arrived.is_set(), driver.complained()[-2_000:]
        driver.kill()
        assert whole(s3) == {4: {"a": 500, "b": 200}}
    finally:
        release.set()
        s3.before = MockS3().before
    # The request had left the process, so the store carries it out now.
    eventually(lambda: 5 in whole(s3))
    assert whole(s3) == {4: {"a": 500, "b": 200}, 5: {"a": 500, "b": 250}}
    assert view.refresh().changed == 0
