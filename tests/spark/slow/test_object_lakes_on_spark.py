"""Lakes and views in an object store with a real Spark, on a mock of S3: streams, DataFrames, and commands."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.spark.slow.conftest import Driver
from tests.support.mock_s3 import mock_s3_apart

import fencepost
from fencepost import Event

URL = "s3://bucket/lake"

# A file system of Hadoop that mounts a local folder under s3a:// stands in for hadoop-aws, which the registries do not
# have: it shows when Spark's own reader is used, not that it reads from S3.
SCRIPT = """
import sys
import fencepost, fencepost.spark
from pathlib import Path
from fencepost.spark import events, fold, lake
from fencepost.spark.delta import FileTable
from tests.spark.rows import events_in
store, url, folder = sys.argv[1:]
spark = fencepost.spark.session("local[2]")
log = fencepost.open(store)

assert lake.export(spark, store, "s3a://bucket/lake/", up_to=300, chunk=200).events == 300
query = lake.follow(spark, store, url, checkpoint=folder + "/follow", chunk=200, availableNow=True)
query.awaitTermination()
assert lake.verify(spark, url) == []
log.append([fencepost.Event("Late", tags={"w:1"})])
expected = list(log.read())
assert events_in(spark.read.format("fencepost").option("store", "lake:" + url).load()) == expected[:-1]
assert events_in(events(spark, "lake:" + url)) == expected[:-1]

def compare():
    frame = events(spark, store, lake=url)
    assert events_in(frame) == expected
    query = fencepost.Query.of(tags={"w:1"})
    assert events_in(events(spark, store, lake=url, query=query, after=150)) == list(log.read(query, after=150))
    narrow = events(spark, store, lake=url, columns="position long, data string", data="string")
    assert narrow.count() == len(expected)
    return frame._jdf.queryExecution().toString()

assert "s3a" not in compare(), "there is no connector: the Python source reads the lake"

objects = FileTable(url)
Path(folder, "mounted", "events").mkdir(parents=True)
for path in objects.listed("events"):
    with objects.source(path) as file:
        Path(folder, "mounted", path).write_bytes(file.read())
settings = {
    "fs.s3a.impl": "org.apache.hadoop.fs.viewfs.ViewFileSystemOverloadScheme",
    "fs.viewfs.overload.scheme.target.file.impl": "org.apache.hadoop.fs.LocalFileSystem",
    "fs.viewfs.mounttable.bucket.link./lake": "file://" + folder + "/mounted",
}
for name, value in settings.items():
    spark.conf.set(name, value)
assert "s3a://bucket/lake/events" in compare(), "Spark reads the files itself"
for name in settings:
    spark.conf.unset(name)

assert lake.compact(spark, url, chunk=500, retain_hours=0).after == 1
assert "s3a" not in compare()
from tests.spark.purses import Added, Purse
from fencepost.decisions import encode
purses = fencepost.open(folder + "/purses.db")
view = fencepost.spark.View(Purse, by="purse_id", at="s3://bucket/view", store=folder + "/purses.db", spark=spark)
for amount in (1, 2):
    purses.append([encode(Added("a", amount)), encode(Added("b", amount))])
    view.refresh()
    expected_rows = sorted(map(str, fold(spark, folder + "/purses.db", Purse, by="purse_id").collect()))
    assert sorted(map(str, view.latest().collect())) == expected_rows
assert view.changes(after=2).count() == 2 and view.at(2).count() == 2

restored = fencepost.open("memory:")
lake.restore(url, restored)
assert list(restored.read()) == expected[:-1]

from fencepost.cli import main
for command in (["export", store, url], ["verify", url], ["compact", url], ["restore", url, folder + "/copy.db"]):
    sys.argv = ["fencepost", "lake", *command, "--json"]
    try:
        main()
    except SystemExit as ended:
        assert not ended.code, (command, ended.code)
assert list(fencepost.open(folder + "/copy.db").read()) == expected
print("compared")
"""


@pytest.mark.timeout(900)
def test_a_lake_in_an_object_store_on_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = str(tmp_path / "log.db")
    with fencepost.open(log) as store:
        store.append([Event("Counted", data=b"%d" % number, tags={f"w:{number % 7}"}) for number in range(500)])
    with mock_s3_apart() as mock:
        for name, value in mock.environment.items():
            monkeypatch.setenv(name, value)
        done = Driver(tmp_path, SCRIPT, log, URL, str(tmp_path)).result()
    assert "compared" in done.stdout, done.stdout[-2_000:] + done.stderr[-5_000:]
    assert "hunter2" not in done.stdout + done.stderr
