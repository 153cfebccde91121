"""PostgreSQL as the store of source and sink, and what becomes of its password."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.spark.conftest import NASTY_TAGS, append_each, stored, wallet_events
from tests.spark.rows import events_in

import fencepost
from fencepost import Event, Query
from fencepost.spark import events
from fencepost.spark.postgres_scan import split_address
from fencepost.testing.postgres import PostgresServer


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with PostgresServer(tcp=True) as server:
        yield server


@pytest.fixture(scope="module")
def url(server: PostgresServer) -> str:
    """A store of wallet events; the address holds the server's password."""
    with fencepost.open(server.url(), create=True) as store:
        append_each(store, wallet_events(500))
        store.append([Event("Odd", data=b"\x00\xff", tags=NASTY_TAGS)])
    return server.url()


def test_every_event_comes_with_every_field_as_it_is_stored(spark: SparkSession, url: str) -> None:
    assert events_in(events(spark, url, partitions=3)) == stored(url)


def test_ranges_queries_and_narrowed_columns(spark: SparkSession, url: str) -> None:
    query = Query.of(tags={"wallet:w3"}) | Query.of(types={"Odd"})
    with fencepost.open(url) as store:
        expected = list(store.read(query, after=20, upto=501))
    assert events_in(events(spark, url, query=query, after=20, upto=501, partitions=2)) == expected
    pushed = events(spark, url, columns="position long, type string", pushFilters="true")
    assert pushed.where("position > 10 and type in ('Odd', 'it''s')").collect() == [(501, "Odd")]


def test_a_store_in_another_schema(spark: SparkSession, server: PostgresServer) -> None:
    address = server.url() + "?schema=wallets"
    with fencepost.open(server.url(), schema="wallets", create=True) as store:
        store.append([Event("Here", data=b"1")])
    assert [event.type for event in events_in(events(spark, address))] == ["Here"]
    assert split_address(address) == (server.url(), '"wallets"')


def test_rows_are_written_once(spark: SparkSession, server: PostgresServer, tmp_path: Path) -> None:
    address = server.url() + "?schema=written"
    fencepost.open(server.url(), schema="written", create=True).close()
    secret = tmp_path / "address"
    secret.write_text(address)
    frame = spark.range(100).selectExpr("'Counted' AS type", "string(id) AS data")
    for _ in range(2):
        writer = frame.write.format("fencepost").option("storeFrom", f"file:{secret}").option("writeId", "import")
        writer.mode("append").save()
    assert sorted(int(event.data) for event in stored(address)) == list(range(100))


def test_the_password_is_nowhere_that_spark_shows(url: str, tmp_path: Path) -> None:
    """Plans, properties and everything else that the UI shows are in the event log."""
    secret = tmp_path / "address"
    secret.write_text(url)
    (tmp_path / "log").mkdir()
    done = subprocess.run(
        [sys.executable, "-c", SHOWN, str(secret), str(tmp_path / "log")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    password = url.split(":")[2].split("@")[0]
    written = "".join(path.read_text(errors="replace") for path in (tmp_path / "log").rglob("*") if path.is_file())
    assert "fencepost" in written
    for shown in (done.stdout, done.stderr, written):
        assert password not in shown


SHOWN = """
import sys
import fencepost.spark
secret, folder = sys.argv[1:]
spark = fencepost.spark.session("local[1]", config={"spark.eventLog.enabled": "true", "spark.eventLog.dir": folder})
read = spark.read.format("fencepost").option("storeFrom", "file:" + secret).load()
for frame in (read, fencepost.spark.events(spark, open(secret).read())):
    frame.explain(extended=True)
    assert frame.count() == 501
guarded = {"condition": '{"fail_if_events_match": {"items": [{}]}}', "rejected": folder + "/rejected"}
writer = read.limit(1).select("type").write.format("fencepost").options(storeFrom="file:" + secret, **guarded)
writer.mode("append").save()
spark.stop()
"""
