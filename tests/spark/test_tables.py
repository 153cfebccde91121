"""Tables and views over a store in Spark's own catalogue."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from tests.spark.conftest import stored

from fencepost.spark.basics.options import parse


@pytest.fixture
def table(spark: SparkSession, log: str) -> Iterator[str]:
    spark.sql(f"CREATE TABLE wallet_log USING fencepost OPTIONS (store '{log}', data 'string')")
    yield "wallet_log"
    spark.sql("DROP TABLE wallet_log")


def test_a_temporary_view_in_sql_is_the_log(spark: SparkSession, log: str) -> None:
    options = f"OPTIONS (store '{log}', data 'string')"
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW wallet_view USING fencepost {options}")
    assert spark.sql("SELECT count(*) FROM wallet_view").collect()[0][0] == len(stored(log))
    (row,) = spark.sql("SELECT data FROM wallet_view WHERE position = 1").collect()
    assert row["data"].startswith("{")


def test_a_table_needs_its_options_again_in_each_query(spark: SparkSession, log: str, table: str) -> None:
    """Spark keeps the options of the table and passes none of them to a Python source."""
    counted = spark.sql(f"SELECT count(*) FROM {table} WITH (store = '{log}', data = 'string')")
    assert counted.collect()[0][0] == len(stored(log))
    with pytest.raises(AnalysisException, match="use CREATE TEMPORARY VIEW"):
        spark.sql(f"SELECT count(*) FROM {table}").collect()


def test_a_property_that_spark_adds_to_a_table_is_not_an_unknown_option(log: str) -> None:
    given = {"option.store": log, "owner": "ada", "provider": "fencepost", "option.data": "string", "data": "string"}
    assert parse(given).store.path == log
