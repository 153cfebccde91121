"""A SparkSession that is ready: on this machine, on a cluster, or through Spark Connect.

`session()` uses all cores of this machine, a Java from PyPI if the machine has none, no network, and prints nothing.
`register(spark)` makes any session know the source. Everything in this package works on either.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession
from pyspark.sql.utils import is_remote

from ...engine import write_durably
from ...errors import InvalidInput
from ..source import FencepostSource
from .interrupts import interruptible
from .java import java_home

# A Python source that accepts filters fails on every read unless this setting is on.
PUSH_DOWN: Final = "spark.sql.python.filterPushdown.enabled"

EVERYWHERE: Final = {
    PUSH_DOWN: "true",
    "spark.sql.session.timeZone": "UTC",  # how times are shown; times in the log are UTC
    "spark.sql.execution.arrow.pyspark.enabled": "true",
}

# On one machine no port has to be reachable from another.
HERE: Final = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}

# What the loggers at `fatal` report also reaches the driver as an exception; without this it is printed a second time,
# with Java's stack. The gateway's level must equal the root's, or Spark prints on every start that it changes it.
QUIET: Final = """status = error
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex{short}
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = error
logger.executor.name = org.apache.spark.executor
logger.executor.level = fatal
logger.scheduler.name = org.apache.spark.scheduler
logger.scheduler.level = fatal
logger.streaming.name = org.apache.spark.sql.execution.streaming
logger.streaming.level = fatal
logger.writing.name = org.apache.spark.sql.execution.datasources.v2
logger.writing.level = fatal
logger.python.name = org.apache.spark.sql.execution.python
logger.python.level = fatal
"""


def session(
    master: str = "local[*]", *, app: str = "fencepost", config: Mapping[str, str] | None = None
) -> SparkSession:
    """A session with the source registered.

    `master` is Spark's master URL (`local[2]`, `spark://host:7077`, `yarn`), or the address of a Spark Connect server
    (`sc://host:15002`). `config` takes precedence over all settings made here.
    """
    if not isinstance(master, str) or not master:
        raise InvalidInput("master", f"local[*], a cluster's URL or sc://host is needed, not {master!r}")
    given = dict(config or {})
    if master.startswith("sc://"):
        return register(
            SparkSession.builder.remote(master).appName(app).config(map={**EVERYWHERE, **given}).getOrCreate()
        )
    _prepare_environment()
    settings = EVERYWHERE | (_local(master) if master.startswith("local") else {}) | given
    if not _through_connect(settings):
        # The builder would do the same. Done here, the second block can replace the signal handler that Spark installs.
        with interruptible():
            SparkContext.getOrCreate(SparkConf().setMaster(master).setAppName(app).setAll(list(settings.items())))
    with interruptible():
        return register(SparkSession.builder.master(master).appName(app).config(map={**settings}).getOrCreate())


def register(spark: SparkSession) -> SparkSession:
    """Make the session know `format("fencepost")`; returns the session."""
    if spark.conf.get(PUSH_DOWN, "false") != "true":  # in a declarative pipeline it is configured and cannot be set
        spark.conf.set(PUSH_DOWN, "true")
    # Spark looks for the name in the last active session, and refuses it here if that session knows it. Creating a
    # DataFrame makes this session the active one.
    spark.createDataFrame([], "nothing int")
    spark.dataSource.register(FencepostSource)
    return spark


def _through_connect(settings: Mapping[str, str]) -> bool:
    """Whether the environment or the settings make every session a Spark Connect session."""
    mode = settings.get("spark.api.mode", os.environ.get("SPARK_API_MODE"))
    return mode == "connect" or "SPARK_REMOTE" in os.environ or is_remote()


def _local(master: str) -> dict[str, str]:
    cores = os.cpu_count() or 1
    threads = master.removeprefix("local").strip("[]").split(",")[0]
    if threads.isdigit():
        cores = int(threads)
    elif not threads:
        cores = 1
    # The default of 200 is for clusters; on one machine most of those tasks would have no rows.
    return {**HERE, "spark.sql.shuffle.partitions": str(max(2, min(2 * cores, 32))), **_quiet()}


def _quiet() -> dict[str, str]:
    """Log errors only. To change this, put a log4j2 file in SPARK_CONF_DIR."""
    if "SPARK_CONF_DIR" in os.environ:
        return {}
    path = Path(tempfile.gettempdir()) / f"fencepost-log4j2-{os.getuid()}.properties"
    if not path.exists() or path.read_text() != QUIET:
        write_durably(path, QUIET.encode(), replace=True)
    return {"spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={path}"}


def _prepare_environment() -> None:
    """Set what the JVM and its Python workers inherit. Has no effect once the JVM runs."""
    home = java_home(os.environ)
    if home is not None:
        os.environ["JAVA_HOME"] = home
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    # Workers must find this package, even if it runs from a source tree that is not installed.
    here = str(Path(__file__).parents[3])
    paths = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    if here not in paths:
        os.environ["PYTHONPATH"] = os.pathsep.join([here, *paths])
