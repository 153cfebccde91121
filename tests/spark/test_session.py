"""The session, and the Java that it finds or brings."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import fencepost.spark
from fencepost import InvalidInput
from fencepost.spark.spark_session import java


def test_the_session_knows_the_source_and_speaks_to_nobody(spark: SparkSession) -> None:
    assert spark.conf.get("spark.sql.python.filterPushdown.enabled") == "true"
    assert spark.conf.get("spark.driver.host") == "127.0.0.1"
    assert spark.conf.get("spark.driver.bindAddress") == "127.0.0.1"
    assert spark.conf.get("spark.ui.enabled") == "false"
    assert spark.conf.get("spark.sql.shuffle.partitions") == "4"


def test_registering_works_on_any_session_and_twice(spark: SparkSession, log: str) -> None:
    other = spark.newSession()
    assert fencepost.spark.register(other) is other
    fencepost.spark.register(other)
    assert other.read.format("fencepost").option("store", log).option("upTo", 3).load().count() == 3


def test_a_master_must_be_named() -> None:
    with pytest.raises(InvalidInput, match="master"):
        fencepost.spark.session("")


def test_an_installed_java_wins(tmp_path: Path) -> None:
    assert java.java_home({"JAVA_HOME": "/opt/java", "PATH": ""}) is None
    (tmp_path / "java").write_text("#!/bin/sh\n")
    (tmp_path / "java").chmod(0o755)
    assert java.java_home({"PATH": str(tmp_path)}) is None
    assert java.java_home({"PATH": ""}) is not None


def test_the_wrapped_java_gets_all_arguments_but_those_that_it_does_not_know(tmp_path: Path) -> None:
    fake = tmp_path / "it's java"
    fake.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    fake.chmod(0o755)
    home = java.wrapped(fake)
    given = ["-Xmx1g", java.UNKNOWN_ARGUMENTS[0], "-Dname=two words", "", java.UNKNOWN_ARGUMENTS[1], "$HOME", "Main"]
    shown = subprocess.run([home / "bin" / "java", *given], capture_output=True, text=True, check=True).stdout
    assert shown.split("\n")[:-1] == ["-Xmx1g", "-Dname=two words", "", "$HOME", "Main"]
    assert java.wrapped(fake) == home
    assert (home / "bin" / "java").stat().st_mode & 0o077 == 0
