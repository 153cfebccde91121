"""Spark Connect: a server of its own, and a client that has no JVM."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.spark.conftest import stored
from tests.spark.slow.conftest import Daemon, Driver, free_port
from tests.support.postgres import PostgresServer

import fencepost
from fencepost import Event

CLIENT = """
import sys
import fencepost.spark
from fencepost import Query
from fencepost.spark import lake
from pyspark.sql import functions as F
from tests.spark.purses import Counts
address, secret, folder = sys.argv[1:]
spark = fencepost.spark.session(address)
place = {"storeFrom": "file:" + secret}
events = spark.read.format("fencepost").options(**place).load()
assert events.agg(F.count("*"), F.max("position")).collect()[0] == (500, 500)
narrow = spark.read.format("fencepost").options(**place).schema("position long, type string, tags array<string>").load()
assert fencepost.spark.match(narrow, {"w3": Query.of(tags={"w:3"})}).count() == 50
pinned = fencepost.spark.events(spark, open(secret).read())
halves = pinned.where("position <= 250").union(pinned.where("position > 250"))
with fencepost.open(open(secret).read()) as store:
    counts = []
    for _ in range(3):
        counts += [pinned.count(), pinned.where("position > 0").count(), halves.count()]
        store.append([fencepost.Event("Later")])
assert counts == [500] * 9, counts
copies = spark.readStream.format("fencepost").options(**place, upTo=500, maxEventsPerTrigger=200).load()
copies = copies.select(F.lit("Copied").alias("type"), "tags", "data")
for _ in range(2):
    query = copies.writeStream.format("fencepost").options(**place).option("checkpointLocation", folder + "/checkpoint")
    query = query.trigger(availableNow=True).start()
    query.awaitTermination()
address = open(secret).read()
counts = fencepost.spark.fold(spark, address, Counts, by="w", up_to=500)
assert {row["w"]: row["count"] for row in counts.collect()} == {str(n): 50 for n in range(10)}
view = fencepost.spark.View(Counts, by="w", at=folder + "/view", store=address, spark=spark)
assert view.refresh(up_to=300).changed == 10
assert view.refresh(up_to=305).changed == 5
assert {row["w"]: row["count"] for row in view.latest().collect()} == {str(n): 30 + (n < 5) for n in range(10)}
query = view.follow(checkpoint=folder + "/view-checkpoint", availableNow=True)
query.awaitTermination()
assert view.position >= 500, view.position
def handle(events, batch):  # on the server
    found = sorted(row["position"] for row in events.collect())
    assert found == list(range(batch.after + 1, batch.up_to + 1)), batch
    with open(folder + "/followed", "a") as file:
        print(batch.after, batch.up_to, file=file)
lake.export(spark, address, folder + "/lake", up_to=300)
with fencepost.open(address) as store:
    head = store.head()
options = {"lake": folder + "/lake", "checkpoint": folder + "/follow-checkpoint", "max_events": 400}
query = fencepost.spark.follow(spark, address, handle, **options, availableNow=True)
query.awaitTermination()
followed = [tuple(map(int, line.split())) for line in open(folder + "/followed")]
assert followed == [(after, min(after + 400, head)) for after in range(0, head, 400)], followed
try:
    spark.read.format("fencepost").option("stroe", "x").load().count()
except Exception as error:
    assert "option 'stroe': not known" in str(error), error
else:
    raise AssertionError
print("done")
"""

pytestmark = pytest.mark.timeout(900)  # several JVMs start in each, which takes long on a busy machine


def test_source_stream_and_sink_through_connect(server: PostgresServer, tmp_path: Path) -> None:
    address = server.url() + "?schema=connected"
    with fencepost.open(server.url(), schema="connected", create=True) as store:
        store.append([Event("Counted", data=str(n).encode(), tags={f"w:{n % 10}"}) for n in range(500)])
    secret = tmp_path / "address"
    secret.write_text(address)
    port = free_port()
    settings = {
        "spark.connect.grpc.binding.port": port,
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
    }
    conf = [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
    main = "org.apache.spark.sql.connect.service.SparkConnectServer"
    submit = "org.apache.spark.deploy.SparkSubmit"
    arguments = ("--master", "local[2]", *conf, "--class", main, "spark-internal")
    connect = Daemon(tmp_path, "connect", submit, *arguments)
    try:
        connect.wait_for("Spark Connect server started")
        done = Driver(tmp_path, CLIENT, f"sc://127.0.0.1:{port}", str(secret), str(tmp_path)).result()
        assert done.stdout.strip().endswith("done"), done.stderr[-3_000:] + connect.log()[-2_000:]
    finally:
        connect.kill()
    copied = [event for event in stored(address) if event.type == "Copied"]
    assert sorted(int(event.data) for event in copied) == list(range(500))
