"""A store as a database of Spark's catalogue."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import fencepost
from fencepost import Event, InvalidInput
from fencepost.spark import catalog


@pytest.fixture
def log(tmp_path: Path) -> str:
    path = str(tmp_path / "it's a log.db")
    with fencepost.open(path) as store:
        store.append([Event("Added", data=b'{"amount": 5}', tags={"wallet:w1"}), Event("Opened")])
    return path


@pytest.fixture
def database(spark: SparkSession) -> Iterator[str]:
    yield "wallets_of_test"
    spark.sql("DROP DATABASE IF EXISTS wallets_of_test CASCADE")


def test_sql_reads_one_prefix_of_the_log_by_name_until_the_catalogue_moves_on(
    spark: SparkSession, log: str, database: str
) -> None:
    catalog(spark, database, log)
    catalog(spark, database, log)  # replaces it
    counts = f"SELECT count(*) FROM spark_catalog.{database}.events"
    assert spark.sql(counts).collect()[0][0] == 2
    with fencepost.open(log) as store:
        store.append([Event("Added", data=b'{"amount": 8}')])
    pairs = f"SELECT count(*) FROM {database}.events AS a JOIN {database}.events AS b USING (position)"
    assert spark.sql(counts).collect()[0][0] == spark.sql(pairs).collect()[0][0] == 2
    catalog(spark, database, log)
    assert spark.sql(counts).collect()[0][0] == 3
    amounts = f"SELECT sum(from_json(data, 'amount long').amount) FROM {database}.events WHERE type = 'Added'"
    assert spark.sql(amounts).collect()[0][0] == 13


def test_a_name_or_address_that_cannot_be_kept_is_refused(spark: SparkSession, log: str) -> None:
    with pytest.raises(InvalidInput, match="name: letters, digits and _ are needed"):
        catalog(spark, "a.b; DROP", log)
    with pytest.raises(InvalidInput, match="store: its address holds a password"):
        catalog(spark, "wallets", "postgresql://ada:secret@localhost/wallets")
