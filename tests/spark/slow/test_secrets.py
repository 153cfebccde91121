"""What becomes of a password in an address."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.spark.slow.conftest import Driver
from tests.support.postgres import PostgresServer

import fencepost
from fencepost import Event

pytestmark = pytest.mark.timeout(900)  # a JVM starts, which takes long on a busy machine


def test_the_password_is_nowhere_that_spark_shows(server: PostgresServer, tmp_path: Path) -> None:
    """Plans, properties and everything else that the UI shows are in the event log."""
    url = server.url() + "?schema=secrets"
    with fencepost.open(server.url(), schema="secrets", create=True) as store:
        store.append([Event("A") for _ in range(501)])
    secret = tmp_path / "address"
    secret.write_text(url)
    (tmp_path / "log").mkdir()
    done = Driver(tmp_path, SHOWN, str(secret), str(tmp_path / "log")).result()
    assert done.returncode == 0, done.stderr
    password = server.password
    written = "".join(path.read_text(errors="replace") for path in (tmp_path / "log").rglob("*") if path.is_file())
    assert "SparkListenerSQLExecutionStart" in written  # plans and all, in plain text
    for shown in (done.stdout, done.stderr, written):
        assert password not in shown


SHOWN = """
import sys
import fencepost.spark
secret, folder = sys.argv[1:]
logging = {"spark.eventLog.enabled": "true", "spark.eventLog.dir": folder, "spark.eventLog.compress": "false"}
spark = fencepost.spark.session("local[1]", config=logging)
read = spark.read.format("fencepost").option("storeFrom", "file:" + secret).load()
for frame in (read, fencepost.spark.events(spark, open(secret).read())):
    frame.explain(extended=True)
    assert frame.count() == 501
guarded = {"condition": '{"fail_if_events_match": {"items": [{}]}}', "rejected": folder + "/rejected"}
writer = read.limit(1).select("type").write.format("fencepost").options(storeFrom="file:" + secret, **guarded)
writer.mode("append").save()
spark.stop()
"""
