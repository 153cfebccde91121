"""The Spark session of a command, and the option that names its master."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from .options import extras
from .output import Output

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

master_option = click.option(
    "--master",
    default="local[*]",
    show_default=True,
    metavar="URL",
    help="The Spark master: local[N], spark://HOST:PORT or sc://HOST:PORT.",
)


@contextmanager
def spark_session(master: str, command: str, output: Output) -> Iterator[SparkSession]:
    """A session that ends with the command. An active session of this process is used instead and left running."""
    with extras():
        from pyspark.sql import SparkSession

        from ..spark import session
        from ..spark.session import interruptible, jobs_of
    found = SparkSession.getActiveSession()
    with output.progress.status("starting Spark"):
        spark = session(master, app=f"fencepost {command}")
    with interruptible(jobs_of(spark)):
        try:
            yield spark
        finally:
            if found is None:
                spark.stop()
