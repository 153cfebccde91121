"""A session that was made without this package knows the source, because Spark finds `pyspark_fencepost`."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.spark.conftest import stored
from tests.spark.slow.conftest import Driver

JOB = """
import sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
events = spark.read.format("fencepost").option("store", sys.argv[1])
print("all", events.load().count())
print("filtered", events.option("pushFilters", "true").load().where("position <= 20").count())
import fencepost.spark
fencepost.spark.register(spark)
print("registered", events.load().where("position <= 30").count())
print("filtered again", events.option("pushFilters", "true").load().where("position <= 40").count())
spark.stop()
"""


@pytest.mark.timeout(600)
def test_the_format_is_known_without_registration(log: str, tmp_path: Path) -> None:
    done = Driver(tmp_path, JOB, log).result()
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if line.split()[0] in ("all", "filtered", "registered")]
    assert lines == [f"all {len(stored(log))}", "filtered 20", "registered 30", "filtered again 40"]
