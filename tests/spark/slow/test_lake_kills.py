"""kill -9 of drivers that export and compact, while others read the lake and the store as one DataFrame."""

from __future__ import annotations

import random
import time
from functools import partial
from pathlib import Path

import pytest
from tests.spark.conftest import stored
from tests.spark.slow.conftest import Cluster, Daemon, Driver, free_port

import fencepost
from fencepost import Event
from fencepost.spark.lake_engine.files import lake_at, problem_of

pytestmark = pytest.mark.timeout(900)  # several JVMs start in each, which takes long on a busy machine

FOLLOW = """
import sys
from fencepost.spark import lake, session
store, folder, checkpoint = sys.argv[1:]
spark = session("local[2]")
lake.follow(spark, store, folder, checkpoint=checkpoint, chunk=100).awaitTermination()
"""

COMPARE = """
import sys
import fencepost
import fencepost.spark
from fencepost import Event
from fencepost.spark import events, lake
from pyspark.sql import functions as F
from tests.spark.rows import events_in
master, store, folder, *rest = sys.argv[1:]
config = {"spark.sql.shuffle.partitions": "4"}
if not master.startswith("sc:"):
    config |= {"spark.executor.memory": "700m", "spark.executor.cores": "1", "spark.driver.host": "127.0.0.1"}
spark = fencepost.spark.session(master, config=config)
with fencepost.open(store) as log:
    lake.export(spark, store, folder, chunk=300)
    log.append([Event("Late", data=b"%d" % number) for number in range(100)])
    frame, head = events(spark, store, lake=folder, partitions=3), log.head()
    expected = list(log.read())
    for number in range(3):
        log.append([Event("Later")] * 10)
        lake.export(spark, store, folder, chunk=300)
        assert frame.count() == frame.where("position > 0").count() == head
        halves = frame.where("type = 'Late'").union(frame.where("type <> 'Late'"))
        assert halves.agg(F.count("*"), F.countDistinct("position")).collect()[0] == (head, head)
    assert events_in(frame) == expected
    assert events_in(events(spark, store, lake=folder)) == list(log.read())
"""

SLOWLY = """
import time
from functools import partial
from pathlib import Path
from uuid import uuid4
def slowly(batches):
    Path(rest[0], uuid4().hex + "-" + Path.cwd().name).touch()  # an executor's folder has its number as a name
    time.sleep(2)
    yield from batches
spread = events(spark, store, lake=folder, partitions=4).repartition(12)
copied = spread.mapInArrow(slowly, spread.schema)
assert events_in(copied) == list(fencepost.open(store).read())
"""


def reached(folder: Path, position: int) -> bool:
    return (folder / "_delta_log").exists() and lake_at(folder).up_to >= position


def test_a_follower_that_is_killed_again_and_again_leaves_a_sound_lake(tmp_path: Path) -> None:
    log, folder = str(tmp_path / "log.db"), tmp_path / "lake"
    chance = random.Random(7)
    with fencepost.open(log) as store:
        for _ in range(3):
            store.append([Event("Counted")])
            driver = Driver(tmp_path, FOLLOW, log, str(folder), str(tmp_path / "checkpoint"))
            exported = 0
            while exported < 12 and driver.process.poll() is None:
                head = store.head()
                driver.wait_until(partial(reached, folder, head))
                store.append([Event("Counted", data=b"%d" % number) for number in range(15)])
                exported += 1
            assert driver.process.poll() is None, driver.complained()[-3_000:]
            time.sleep(chance.uniform(0.0, 1.0))
            driver.kill()
            found = lake_at(folder)
            assert not any(problem_of(found.table, file) for file in found.files)
            with fencepost.open(f"lake:{folder}") as lake:
                assert list(lake.read()) == list(store.read(up_to=found.up_to))
    done = Driver(tmp_path, COMPARE + "print('compared')", "local[2]", log, str(folder)).result()
    assert "compared" in done.stdout, done.stderr[-3_000:]
    assert len(lake_at(folder).files) < 20


def test_a_cluster_reads_lake_and_store_and_survives_the_loss_of_a_worker(cluster: Cluster, tmp_path: Path) -> None:
    log, folder, begun = str(tmp_path / "log.db"), str(tmp_path / "lake"), tmp_path / "begun"
    begun.mkdir()
    with fencepost.open(log) as store:
        store.append([Event("Counted", data=b"%d" % number, tags={f"w:{number % 7}"}) for number in range(1_000)])
    driver = cluster.begin(COMPARE + SLOWLY + "print('compared')", log, folder, str(begun))

    def in_mid_job() -> bool:
        """Both workers have begun tasks, and most tasks have not begun."""
        marks = [mark.name.rpartition("-")[2] for mark in begun.iterdir()]
        return len(marks) >= 3 and len(set(marks)) == 2

    driver.wait_until(in_mid_job)
    assert len(list(begun.iterdir())) < 12, driver.complained()[-3_000:]
    cluster.workers[0].kill()
    done = driver.result()
    assert "compared" in done.stdout, done.stderr[-3_000:]
    cluster.workers[0] = cluster.add_worker(2)
    assert len(stored(log)) > 1_000


def test_spark_connect_reads_lake_and_store_as_one_prefix(tmp_path: Path) -> None:
    log, folder = str(tmp_path / "log.db"), str(tmp_path / "lake")
    with fencepost.open(log) as store:
        store.append([Event("Counted", data=b"%d" % number) for number in range(500)])
    port = free_port()
    settings = {
        "spark.connect.grpc.binding.port": port,
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
    }
    conf = [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
    main = "org.apache.spark.sql.connect.service.SparkConnectServer"
    arguments = ("--master", "local[2]", *conf, "--class", main, "spark-internal")
    connect = Daemon(tmp_path, "connect", "org.apache.spark.deploy.SparkSubmit", *arguments)
    try:
        connect.wait_for("Spark Connect server started")
        address = f"sc://127.0.0.1:{port}"
        done = Driver(tmp_path, COMPARE + "print('compared')", address, log, folder).result()
        assert "compared" in done.stdout, done.stderr[-3_000:] + connect.log()[-2_000:]
    finally:
        connect.kill()
