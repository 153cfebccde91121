"""PostgreSQL as the store of source and sink."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.spark.conftest import NASTY_TAGS, append_each, stored, wallet_events
from tests.spark.rows import events_in
from tests.support.postgres import new_database, over_tcp

import fencepost
from fencepost import Event, Query
from fencepost.spark import events


@pytest.fixture(scope="module")
def database(postgres_url: str) -> str:
    """A new database; the address holds the server's password."""
    return over_tcp(new_database(postgres_url))


@pytest.fixture(scope="module")
def url(database: str) -> str:
    """A store of wallet events."""
    with fencepost.open(database, create=True) as store:
        append_each(store, wallet_events(500))
        store.append([Event("Odd", data=b"\x00\xff", tags=NASTY_TAGS)])
    return database


def test_every_event_comes_with_every_field_as_it_is_stored(spark: SparkSession, url: str) -> None:
    assert events_in(events(spark, url, partitions=3)) == stored(url)


def test_ranges_queries_and_narrowed_columns(spark: SparkSession, url: str) -> None:
    query = Query.of(tags={"wallet:w3"}) | Query.of(types={"Odd"})
    with fencepost.open(url) as store:
        expected = list(store.read(query, after=20, up_to=501))
    assert events_in(events(spark, url, query=query, after=20, up_to=501, partitions=2)) == expected
    pushed = events(spark, url, columns="position long, type string", pushFilters="true")
    assert pushed.where("position > 10 and type in ('Odd', 'it''s')").collect() == [(501, "Odd")]


def test_a_store_in_another_schema(spark: SparkSession, database: str) -> None:
    address = database + "?schema=wallets"
    with fencepost.open(database, schema="wallets", create=True) as store:
        store.append([Event("Here", data=b"1")])
    assert [event.type for event in events_in(events(spark, address))] == ["Here"]


def test_rows_are_written_once(spark: SparkSession, database: str, tmp_path: Path) -> None:
    address = database + "?schema=written"
    fencepost.open(database, schema="written", create=True).close()
    secret = tmp_path / "address"
    secret.write_text(address)
    frame = spark.range(100).selectExpr("'Counted' AS type", "string(id) AS data")
    for _ in range(2):
        writer = frame.write.format("fencepost").option("storeFrom", f"file:{secret}").option("writeId", "import")
        writer.mode("append").save()
    assert sorted(int(event.data) for event in stored(address)) == list(range(100))
