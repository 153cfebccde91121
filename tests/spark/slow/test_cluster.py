"""A real cluster: a master and two workers, PostgreSQL as the store."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.spark.conftest import stored
from tests.spark.purses import Added
from tests.spark.slow.conftest import Cluster
from tests.support.postgres import PostgresServer

import fencepost
from fencepost import Event
from fencepost.decisions import encode

PRELUDE = """
import sys
import fencepost.spark
from pyspark.sql import functions as F
master, secret, *rest = sys.argv[1:]
spark = fencepost.spark.session(master, config={
    "spark.driver.host": "127.0.0.1", "spark.executor.memory": "700m", "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "4", "spark.executor.cores": "1",
})
log = spark.read.format("fencepost").option("storeFrom", "file:" + secret)
"""

pytestmark = pytest.mark.timeout(900)  # several JVMs start in each, which takes long on a busy machine

READ_AND_WRITE = (
    PRELUDE
    + """
events = log.option("partitions", 8).load()
assert events.agg(F.count("*"), F.countDistinct("position"), F.sum("position")).collect()[0] == (2000, 2000, 2001000)
copies = events.select(F.lit("Copied").alias("type"), "tags", "data")
for _ in range(2):
    writer = copies.write.format("fencepost").option("storeFrom", "file:" + secret).option("writeId", "copy")
    writer.mode("append").save()
print("executors", spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size() - 1)
"""
)

FOLD_AND_VIEW = (
    PRELUDE
    + """
from pathlib import Path
from tests.spark.purses import Added, Purse
import fencepost
from fencepost.decisions import encode
address, folder = Path(secret).read_text(), rest[0]
def amounts(frame):
    return {row["purse_id"]: row["amount"] for row in frame.collect()}
expected = {f"p{n}": n * 10 for n in range(20)}
assert amounts(fencepost.spark.fold(spark, address, Purse, by="purse_id")) == expected
view = fencepost.spark.View(Purse, by="purse_id", at=folder, store=address, spark=spark)
assert view.refresh().changed == 20
with fencepost.open(address) as store:
    store.append([encode(Added("p3", 1)), encode(Added("new", 2))])
assert view.refresh().changed == 2
assert amounts(view.latest()) == {**expected, "p3": 31, "new": 2}
print("folded")
"""
)

SLOW_COPY = (
    PRELUDE
    + """
import time
from pathlib import Path
from uuid import uuid4
def slowly(batches):
    Path(rest[0], uuid4().hex + "-" + Path.cwd().name).touch()  # an executor's folder has its number as a name
    time.sleep(3)
    yield from batches
events = log.option("partitions", 16).option("upTo", 2000).schema("data binary, tags array<string>").load()
copies = events.mapInArrow(slowly, events.schema).withColumn("type", F.lit("Slow"))
copies.write.format("fencepost").option("storeFrom", "file:" + secret).option("writeId", "slow").mode("append").save()
print("copied")
"""
)


def secret_for(url: str, folder: Path) -> str:
    path = folder / "address"
    path.write_text(url)
    return str(path)


def test_source_and_sink_on_two_workers_with_postgres(cluster: Cluster, server: PostgresServer, tmp_path: Path) -> None:
    with fencepost.open(server.url(), create=True) as store:
        store.append([Event("Counted", data=str(number).encode(), tags={"n"}) for number in range(2_000)])
    done = cluster.run(READ_AND_WRITE, secret_for(server.url(), tmp_path))
    assert done.returncode == 0, done.stderr[-3_000:]
    assert "executors 2" in done.stdout
    copied = [event for event in stored(server.url()) if event.type == "Copied"]
    assert sorted(int(event.data) for event in copied) == list(range(2_000))


def test_fold_and_view_on_two_workers_with_postgres(cluster: Cluster, server: PostgresServer, tmp_path: Path) -> None:
    with fencepost.open(server.url(), schema="purses", create=True) as store:
        store.append([encode(Added(f"p{number}", number)) for number in range(20) for _ in range(10)])
    done = cluster.run(FOLD_AND_VIEW, secret_for(server.url() + "?schema=purses", tmp_path), str(tmp_path / "view"))
    assert done.stdout.endswith("folded\n"), done.stderr[-3_000:]


def test_a_worker_that_is_killed_in_mid_job_does_not_change_the_result(
    cluster: Cluster, server: PostgresServer, tmp_path: Path
) -> None:
    address = server.url() + "?schema=killed"
    secret = secret_for(address, tmp_path)
    with fencepost.open(address, create=True) as store:
        store.append([Event("Counted", data=str(number).encode(), tags={"n"}) for number in range(2_000)])
    begun = tmp_path / "begun"
    begun.mkdir()
    driver = cluster.begin(SLOW_COPY, secret, str(begun))

    def in_mid_job() -> bool:
        """Some tasks are done, each worker is busy with one, and some have not begun."""
        marks = [mark.name.rpartition("-")[2] for mark in begun.iterdir()]
        return len(marks) >= 3 and len(set(marks)) == 2

    driver.wait_until(in_mid_job)
    assert len(list(begun.iterdir())) < 16, driver.complained()[-3_000:]
    cluster.workers[0].kill()
    done = driver.result()
    assert "copied" in done.stdout, done.stderr[-3_000:]
    copied = [event for event in stored(address) if event.type == "Slow"]
    assert sorted(int(event.data) for event in copied) == list(range(2_000))
    cluster.workers[0] = cluster.add_worker(2)
