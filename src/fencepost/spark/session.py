"""A SparkSession that is ready: on this machine, on a cluster, or through Spark Connect.

`session()` is for those who just want to begin: all cores of this machine, a Java from PyPI if
there is none, nothing on the network, nothing on the screen. `register(spark)` makes any session
know the source; everything in this package works on either.
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

from ..errors import InvalidInput
from .interrupts import interruptible
from .java import java_home
from .source import FencepostSource

# Python sources that take filters fail on every read unless Spark is told to push them down.
PUSH_DOWN: Final = "spark.sql.python.filterPushdown.enabled"

EVERYWHERE: Final = {
    PUSH_DOWN: "true",
    "spark.sql.session.timeZone": "UTC",  # times in the log are UTC; this is about how they are shown
    "spark.sql.execution.arrow.pyspark.enabled": "true",
}

# On one machine nothing has to be reachable from another.
HERE: Final = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}

# What the loggers at `fatal` report reaches the driver as an exception; here it would come again, with all of Java.
# The gateway's level must be the root's, or Spark announces on every start that it changes it.
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

    `master` is what Spark calls so (`local[2]`, `spark://host:7077`, `yarn`), or the address of a
    Spark Connect server (`sc://host:15002`). `config` has the last word over everything set here.
    """
    if not isinstance(master, str) or not master:
        raise InvalidInput("master", f"local[*], a cluster's URL or sc://host is needed, not {master!r}")
    given = dict(config or {})
    if master.startswith("sc://"):
        builder = SparkSession.builder.remote(master).appName(app)
        for name, value in (EVERYWHERE | given).items():
            builder = builder.config(name, value)
        return register(builder.getOrCreate())
    _prepare_environment()
    settings = EVERYWHERE | (_local(master) if master.startswith("local") else {}) | given
    if not _through_connect(settings):
        # The builder would do the same. Done here, the second block can take the place of Spark's own handler.
        with interruptible():
            SparkContext.getOrCreate(SparkConf().setMaster(master).setAppName(app).setAll(list(settings.items())))
    builder = SparkSession.builder.master(master).appName(app)
    for name, value in settings.items():
        builder = builder.config(name, value)
    with interruptible():
        return register(builder.getOrCreate())


def register(spark: SparkSession) -> SparkSession:
    """Make the session know `format("fencepost")`; returns the session."""
    if spark.conf.get(PUSH_DOWN, "false") != "true":  # declarative pipelines are configured, and let nobody set it
        spark.conf.set(PUSH_DOWN, "true")
    # Spark looks for the name in the session that was last active, and would refuse it here because it is known
    # there. Making a frame makes this one active.
    spark.createDataFrame([], "nothing int")
    spark.dataSource.register(FencepostSource)
    return spark


def _through_connect(settings: Mapping[str, str]) -> bool:
    """Whether the surroundings or the settings make every session one of Spark Connect."""
    mode = settings.get("spark.api.mode", os.environ.get("SPARK_API_MODE"))
    return mode == "connect" or "SPARK_REMOTE" in os.environ or is_remote()


def _local(master: str) -> dict[str, str]:
    cores = os.cpu_count() or 1
    threads = master.removeprefix("local").strip("[]").split(",")[0]
    if threads.isdigit():
        cores = int(threads)
    elif not threads:
        cores = 1
    # The default of 200 is for clusters: on one machine it is 200 tasks with nothing to do.
    return {**HERE, "spark.sql.shuffle.partitions": str(max(2, min(2 * cores, 32))), **_quiet()}


def _quiet() -> dict[str, str]:
    """Errors only; who wants more names a file in SPARK_CONF_DIR, as with any Spark."""
    if "SPARK_CONF_DIR" in os.environ:
        return {}
    path = Path(tempfile.gettempdir()) / f"fencepost-log4j2-{os.getuid()}.properties"
    if not path.exists() or path.read_text() != QUIET:
        draft = path.with_name(f"{path.name}.{os.getpid()}")
        draft.write_text(QUIET)
        draft.replace(path)
    return {"spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={path}"}


def _prepare_environment() -> None:
    """What the JVM and, through it, the Python workers inherit; of no effect once the JVM is there."""
    home = java_home(os.environ)
    if home is not None:
        os.environ["JAVA_HOME"] = home
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    # Workers have to find this package, also where it runs from a source tree that is not installed.
    here = str(Path(__file__).parents[2])
    paths = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    if here not in paths:
        os.environ["PYTHONPATH"] = os.pathsep.join([here, *paths])
